"""Largest balls in polyhedra by linear programming, and what proves there is one, or none."""

from dataclasses import dataclass
from fractions import Fraction

import flint
import numpy
from scipy.optimize import linprog

from rankscope.constructions.dense import Rationals, Reals
from rankscope.errors import ConstructionError

# Multipliers below this share of the largest are zero.
ZERO_MULTIPLIER = 1e-9


@dataclass(frozen=True, eq=False)
class Ball:
    """A ball in the polyhedron, or, with a radius of at most zero, the least violation.

    Args:
        centre: of the ball.
        radius: at most one, so that unbounded polyhedra have one.
        multipliers: of the constraints; with radius <= 0 they combine them to a contradiction.
    """

    centre: Reals
    radius: float
    multipliers: Reals


def largest_ball(normals: Reals, offsets: Reals) -> Ball:
    """The largest ball, of radius 1 at most, in the points x with `normals` x + `offsets` >= 0.

    Raises:
        ConstructionError: if the solver gives up.
    """
    lengths = numpy.linalg.norm(normals, axis=1)
    # One constraint for each row: length · radius - normal · x <= offset.
    rows = numpy.column_stack([-normals, lengths]) / lengths[:, None]
    goal = numpy.zeros(normals.shape[1] + 1)
    goal[-1] = -1.0
    bounds = [(None, None)] * normals.shape[1] + [(None, 1.0)]
    found = linprog(goal, rows, offsets / lengths, bounds=bounds, method="highs")
    if found.status != 0:
        raise ConstructionError(
            f"largest_ball: the solver gave up on {len(offsets)} constraints in "
            f"{normals.shape[1]} dimensions: {found.message}"
        )
    multipliers = -numpy.asarray(found.ineqlin.marginals) / lengths
    return Ball(numpy.asarray(found.x[:-1]), float(found.x[-1]), multipliers)


def proves_interior(ball: Ball, normals: Rationals, offsets: Rationals) -> bool:
    """Whether the centre, taken as fractions, satisfies all constraints strictly."""
    centre = [Fraction(value) for value in ball.centre.tolist()]
    slack = normals @ numpy.array(centre, dtype=object) + offsets
    return all(value > 0 for value in slack)


def proves_empty(ball: Ball, normals: Rationals, offsets: Rationals) -> bool:
    """Whether non-negative fractions combine the constraints to 0 x + c >= 0 with c <= 0.

    Then no point satisfies all of them strictly. The solver says which constraints take part;
    their weights are solved for again, without rounding.
    """
    used = numpy.flatnonzero(ball.multipliers > ZERO_MULTIPLIER * ball.multipliers.max())
    if not len(used):
        return False
    rows = [[_flint(value) for value in row] for row in normals[used].T]
    matrix = flint.fmpq_mat(rows)
    reduced, rank = matrix.rref()
    if rank != len(used) - 1:
        return False
    weights = _kernel_vector(reduced, rank, len(used))
    total = sum(w * _flint(b) for w, b in zip(weights, offsets[used], strict=True))
    return all(weight >= 0 for weight in weights) and total <= 0


def _kernel_vector(reduced: flint.fmpq_mat, rank: int, count: int) -> list[flint.fmpq]:
    """The vector that a matrix in echelon form with one free column maps to zero."""
    pivots = []
    for row in range(rank):
        pivots.append(next(c for c in range(count) if reduced[row, c] != 0))
    free = next(column for column in range(count) if column not in pivots)
    vector = [flint.fmpq(0)] * count
    vector[free] = flint.fmpq(1)
    for row, pivot in enumerate(pivots):
        vector[pivot] = -reduced[row, free]
    return vector


def _flint(value: Fraction) -> flint.fmpq:
    return flint.fmpq(value.numerator, value.denominator)
