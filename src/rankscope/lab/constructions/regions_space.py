"""Affine regions of a ReLU network with any number of inputs, by linear programming."""

from dataclasses import dataclass
from fractions import Fraction

import flint
import networkx
import numpy
from scipy.linalg import null_space
from scipy.optimize import linprog
from torch import nn

from rankscope.errors import ConstructionError, TooLargeError
from rankscope.lab.constructions.dense import (
    Box,
    DenseLayer,
    Rationals,
    Reals,
    dense_layers,
    rational,
)

# Largest balls in polyhedra by linear programming, and what proves there is one, or none.


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
    result = linprog(goal, rows, offsets / lengths, bounds=bounds, method="highs")
    if result.status != 0:
        raise ConstructionError(
            f"largest_ball: the solver gave up on {len(offsets)} constraints in "
            f"{normals.shape[1]} dimensions: {result.message}"
        )
    multipliers = -numpy.asarray(result.ineqlin.marginals) / lengths
    return Ball(numpy.asarray(result.x[:-1]), float(result.x[-1]), multipliers)


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


# Balls of a smaller radius are none: solvers are right to about 1e-9.
SMALLEST_RADIUS = 1e-8


@dataclass(frozen=True, eq=False)
class SpaceRegion:
    """The polyhedron on which one set of hidden units is switched on.

    Args:
        pattern: which units are on, layer after layer.
        normals: with `offsets`, the constraints normals x + offsets > 0, as fractions.
        offsets: see `normals`.
        weight: the gradient of the outputs of the last layer so far, as fractions.
        bias: their values at zero.
        centre: a point inside.
        radius: of a ball around it, at most 1.
    """

    pattern: tuple[bool, ...]
    normals: Rationals
    offsets: Rationals
    weight: Rationals
    bias: Rationals
    centre: Reals
    radius: float


@dataclass(frozen=True, eq=False)
class SpaceRegions:
    """The regions of a network.

    Args:
        regions: one for each activation pattern with interior.
        num_affine_pieces: maximal connected pieces on which the outputs are affine.
        smallest_margin: the smallest radius of a largest ball in a region.
        largest_rejected: the largest radius that was taken for none; far below zero or 0 is good.
        num_unproved: decisions that fractions did not confirm; 0 means that the count is a theorem.
    """

    regions: tuple[SpaceRegion, ...]
    num_affine_pieces: int
    smallest_margin: float
    largest_rejected: float
    num_unproved: int

    @property
    def num_patterns(self) -> int:
        """Activation patterns with interior."""
        return len(self.regions)

    def __str__(self) -> str:
        proof = "proved in fractions" if not self.num_unproved else f"{self.num_unproved} unproved"
        return (
            f"{self.num_patterns:,} activation patterns, {self.num_affine_pieces:,} affine pieces, "
            f"smallest radius {self.smallest_margin:.2g}, {proof}"
        )


def regions_in_space(
    network: nn.Module, box: Box | None = None, *, max_regions: int = 5_000
) -> SpaceRegions:
    """Find all regions of a network on which it is affine, in a box or in the whole space.

    Unit by unit, each region is cut in two if there is a ball on both sides, which a linear
    program in float64 decides unless the largest ball of the region lies on one side. Decisions
    are checked in fractions: the centre of a ball satisfies the constraints, or multipliers of
    the solver combine them to a contradiction.

    Example:
        >>> from rankscope.lab.constructions.explicit_networks import montufar_network
        >>> network = montufar_network(num_inputs=3, widths=[3, 4])
        >>> regions_in_space(network, Box.unit(3)).num_patterns
        15

    Raises:
        ConstructionError: if the box has another dimension, or the solver gives up.
        TooLargeError: if there are more than `max_regions` regions.
    """
    layers = dense_layers(network)
    inputs = layers[0].weight.shape[1]
    if box is not None and box.num_inputs != inputs:
        raise ConstructionError(
            f"regions_in_space: the network has {inputs} inputs, the box {box.num_inputs}."
        )
    search = _Search(max_regions)
    regions = [_whole(inputs, box)]
    for layer in layers[:-1]:
        regions = [finer for region in regions for finer in search.refine(region, layer)]
    regions = [_after(region, layers[-1]) for region in regions]
    return SpaceRegions(
        tuple(regions),
        search.count_pieces(regions),
        min(region.radius for region in regions),
        search.largest_rejected,
        search.num_unproved,
    )


def _whole(inputs: int, box: Box | None) -> SpaceRegion:
    identity, zero = rational(numpy.eye(inputs)), rational(numpy.zeros(inputs))
    if box is None:
        none = numpy.empty(0, dtype=object)
        return SpaceRegion(
            (), none.reshape(0, inputs), none, identity, zero, numpy.zeros(inputs), 1.0
        )
    normals = numpy.concatenate([identity, -identity])
    offsets = numpy.concatenate([-rational(box.low), rational(box.high)])
    radius = float(min(1.0, (box.high - box.low).min() / 2))
    return SpaceRegion((), normals, offsets, identity, zero, (box.low + box.high) / 2, radius)


def _after(region: SpaceRegion, layer: DenseLayer) -> SpaceRegion:
    weight = rational(layer.weight)
    return SpaceRegion(
        region.pattern,
        region.normals,
        region.offsets,
        weight @ region.weight,
        weight @ region.bias + rational(layer.bias),
        region.centre,
        region.radius,
    )


class _Search:
    """Cuts regions and keeps account of how sure that was."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.largest_rejected = -numpy.inf
        self.num_unproved = 0

    def refine(self, region: SpaceRegion, layer: DenseLayer) -> list[SpaceRegion]:
        """The regions into which one more layer cuts a region."""
        units = _after(region, layer)
        parts = [units]
        for normal, offset in zip(units.weight, units.bias, strict=True):
            parts = [finer for part in parts for finer in self._cut(part, normal, offset)]
            if len(parts) > self.most:
                raise TooLargeError(
                    what="regions_in_space",
                    entries=len(parts),
                    limit=self.most,
                    instead="Use a smaller box, regions_in_plane, or raise max_regions.",
                )
        width = len(units.bias)
        return [_masked(part, width) for part in parts]

    def _cut(self, region: SpaceRegion, normal: Rationals, offset: Fraction) -> list[SpaceRegion]:
        if not any(normal):
            return [_with(region, is_on=offset > 0)]
        results = []
        height = sum(n * Fraction(c) for n, c in zip(normal, region.centre.tolist(), strict=True))
        distance = float(height + offset) / float(numpy.linalg.norm(normal.astype(float)))
        for sign in (1, -1):
            normals = numpy.vstack([region.normals, sign * normal[None, :]])
            offsets = numpy.array([*region.offsets, sign * offset], dtype=object)
            ball: tuple[Reals, float] | None = region.centre, region.radius
            if sign * distance < region.radius:
                ball = self._ball(normals, offsets)
            if ball is not None:
                part = SpaceRegion(
                    region.pattern, normals, offsets, region.weight, region.bias, *ball
                )
                results.append(_with(part, is_on=sign > 0))
        return results

    def _ball(self, normals: Rationals, offsets: Rationals) -> tuple[Reals, float] | None:
        ball = largest_ball(normals.astype(float), offsets.astype(float))
        if ball.radius > SMALLEST_RADIUS:
            self.num_unproved += not proves_interior(ball, normals, offsets)
            return ball.centre, ball.radius
        self.largest_rejected = max(self.largest_rejected, ball.radius)
        self.num_unproved += not proves_empty(ball, normals, offsets)
        return None

    def count_pieces(self, regions: list[SpaceRegion]) -> int:
        """Join regions that compute the same affine function and share a facet."""
        groups: dict[tuple[object, ...], list[int]] = {}
        for number, region in enumerate(regions):
            key = (*region.weight.ravel().tolist(), *region.bias.tolist())
            groups.setdefault(key, []).append(number)
        graph = networkx.empty_graph(len(regions))
        for members in groups.values():
            for place, first in enumerate(members):
                for second in members[place + 1 :]:
                    if _share_facet(regions[first], regions[second]):
                        graph.add_edge(first, second)
        return int(networkx.number_connected_components(graph))


def _with(region: SpaceRegion, *, is_on: bool) -> SpaceRegion:
    return SpaceRegion(
        (*region.pattern, is_on),
        region.normals,
        region.offsets,
        region.weight,
        region.bias,
        region.centre,
        region.radius,
    )


def _masked(region: SpaceRegion, width: int) -> SpaceRegion:
    mask = numpy.array([int(is_on) for is_on in region.pattern[-width:]], dtype=object)
    return SpaceRegion(
        region.pattern,
        region.normals,
        region.offsets,
        region.weight * mask[:, None],
        region.bias * mask,
        region.centre,
        region.radius,
    )


def _share_facet(first: SpaceRegion, second: SpaceRegion) -> bool:
    """Whether the two are on the two sides of a hyperplane and a ball of it touches both.

    The cut that separated them is among the constraints of both, with opposite signs.
    """
    others = {
        (*normal, offset) for normal, offset in zip(second.normals, second.offsets, strict=True)
    }
    for normal, offset in zip(first.normals, first.offsets, strict=True):
        if (*-normal, -offset) in others:
            normals = numpy.vstack([first.normals, second.normals]).astype(float)
            offsets = numpy.concatenate([first.offsets, second.offsets]).astype(float)
            if _has_room(normals, offsets, normal.astype(float), float(offset)):
                return True
    return False


def _has_room(normals: Reals, offsets: Reals, normal: Reals, offset: float) -> bool:
    """Whether the constraints leave space for a ball in the hyperplane normal x + offset = 0."""
    along = null_space(normal[None, :])
    point = -offset * normal / (normal @ normal)
    slopes, values = normals @ along, normals @ point + offsets
    lengths = numpy.linalg.norm(normals, axis=1)
    parallel = numpy.linalg.norm(slopes, axis=1) <= 1e-12 * lengths
    if (values[parallel] < -SMALLEST_RADIUS * lengths[parallel]).any():
        return False
    if parallel.all():
        return True
    return largest_ball(slopes[~parallel], values[~parallel]).radius > SMALLEST_RADIUS
