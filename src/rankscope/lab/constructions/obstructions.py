"""Functions that networks cannot represent: polynomial activations, one hidden layer."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy
from numpy.polynomial import Chebyshev, Polynomial
from torch import nn

from rankscope.errors import ConstructionError
from rankscope.lab.constructions.dense import (
    Box,
    DenseLayer,
    Rationals,
    Reals,
    dense_layers,
    rational,
    relu_network,
    require_finite,
    require_shape,
)
from rankscope.lab.constructions.regions import regions_in_plane, regions_on_line
from rankscope.theorem import Status, Theorem

# Polynomial activations are not universal.


LARGEST_DEGREE = 60
GRID = 4001
MOST_EXCHANGES = 60


@dataclass(frozen=True, eq=False)
class PolynomialBarrier:
    """How well networks with a polynomial activation of some degree can do, whatever their width.

    Args:
        degree: of the polynomials that they compute.
        points: degree + 2 points of the interval that prove the lower bound.
        lower: no polynomial of the degree is nearer to the function than this, in the supremum.
        measured: the error of `polynomial` on a fine grid.
        polynomial: one that is nearly best.
    """

    degree: int
    points: Reals
    lower: float
    measured: float
    polynomial: Polynomial

    def __str__(self) -> str:
        return (
            f"degree {self.degree}: every width stays at least {self.lower:.6g} away; "
            f"{self.measured:.6g} is reached"
        )


def polynomial_barrier(
    function: Callable[[Reals], Reals], low: float, high: float, *, degree: int
) -> PolynomialBarrier:
    r"""Bound the best error of polynomial activations on a function of one variable from below.

    A network with one hidden layer and an activation of degree N computes a polynomial q of degree
    at most N (N^L with L layers). For x_0 < … < x_{N+1} and
    :math:`\lambda_i = \prod_{j \ne i} (x_i - x_j)^{-1}` the divided difference of q vanishes, so

    .. math:: \max_i |g(x_i) - q(x_i)| \ge \Bigl|\sum_i \lambda_i g(x_i)\Bigr|
              \Big/ \sum_i |\lambda_i| .

    The points are chosen by Remez' exchange; the bound is computed from them in fractions, and
    holds for the float64 values that `function` gives.

    Example:
        >>> barrier = polynomial_barrier(numpy.abs, -1.0, 1.0, degree=2)
        >>> round(barrier.lower, 6), round(barrier.measured, 6)  # x² + 1/8
        (0.125, 0.125)

    Raises:
        ConstructionError: if the interval or the degree does not fit, or values are not finite.

    Reference:
        de la Vallée Poussin (1910); Diehl (2023), Theorem 1.5.
    """
    who = "polynomial_barrier"
    require_finite(who, low=low, high=high)
    if not low < high:
        raise ConstructionError(f"{who}: the interval must go upwards, got {low} to {high}.")
    if not 0 <= degree <= LARGEST_DEGREE:
        raise ConstructionError(f"{who}: degree must be in 0..{LARGEST_DEGREE}, got {degree}.")
    # Dense at the ends, where extrema of polynomials crowd.
    grid = (low + high) / 2 - (high - low) / 2 * numpy.cos(numpy.linspace(0, numpy.pi, GRID))
    values = numpy.asarray(function(grid), dtype=float)
    require_finite(who, values=values)
    # Not symmetric: at symmetric points even functions have no alternating error to level.
    chosen = numpy.round(numpy.linspace(0, 0.9 * GRID, degree + 2)).astype(int)
    best: tuple[float, numpy.ndarray, Chebyshev] | None = None
    for _ in range(MOST_EXCHANGES):
        fit = _equioscillating_polynomial(grid[chosen], values[chosen], degree, (low, high))
        errors = values - fit(grid)
        measured = float(numpy.abs(errors).max())
        if best is None or measured < best[0]:
            best = measured, chosen, fit
        following = _exchange(errors, degree + 2)
        if following is None or (following == chosen).all():
            break
        chosen = following
    assert best is not None
    points = grid[best[1]]
    lower = _divided_difference(points, values[best[1]])
    return PolynomialBarrier(degree, points, lower, best[0], best[2].convert(kind=Polynomial))


def _equioscillating_polynomial(
    points: Reals, values: Reals, degree: int, ends: tuple[float, float]
) -> Chebyshev:
    """The polynomial whose errors at the points are equal with alternating signs."""
    scaled = (2 * points - ends[0] - ends[1]) / (ends[1] - ends[0])
    basis = numpy.polynomial.chebyshev.chebvander(scaled, degree)
    signs = (-1.0) ** numpy.arange(degree + 2)
    solution = numpy.linalg.solve(numpy.column_stack([basis, signs]), values)
    return Chebyshev(solution[:-1], domain=list(ends))


def _exchange(errors: Reals, count: int) -> "numpy.ndarray | None":
    """Largest errors of alternating signs; None if there are too few."""
    signs = numpy.sign(errors)
    starts = numpy.flatnonzero(numpy.concatenate([[True], signs[1:] != signs[:-1]]))
    runs = numpy.split(numpy.arange(len(errors)), starts[1:])
    peaks = [run[numpy.abs(errors[run]).argmax()] for run in runs if signs[run[0]] != 0]
    if len(peaks) < count:
        return None
    while len(peaks) > count:
        # Only an end may go without breaking the alternation.
        first, last = abs(errors[peaks[0]]), abs(errors[peaks[-1]])
        peaks.pop(0 if first < last else -1)
    return numpy.array(peaks)


def _divided_difference(points: Reals, values: Reals) -> float:
    exact = [Fraction(point) for point in points.tolist()]
    weights: list[Fraction] = []
    for place, point in enumerate(exact):
        product = Fraction(1)
        for other in exact[:place] + exact[place + 1 :]:
            product *= point - other
        weights.append(1 / product)
    terms = [w * Fraction(v) for w, v in zip(weights, values.tolist(), strict=True)]
    result = abs(sum(terms, Fraction(0))) / sum(map(abs, weights), Fraction(0))
    return max(0.0, float(numpy.nextafter(float(result), -numpy.inf)))


# Functions on the plane that no network with one hidden layer equals, with a certificate.
#
# A sum of c_i ReLU(a_i x + b_i) breaks along whole lines: across each line the gradient jumps by
# the same vector at all of its points but finitely many. A break that ends, or jumps differently
# further along its line, is out of reach of any number of units.


WHOLE_LINES = Theorem(
    "Rankscope, after Foucart (2022), Theorem 24.1",
    "breaks of one hidden layer are whole lines with constant jumps: docs/proofs.md, section 31",
    None,
    ("one hidden layer", "ReLU", "two inputs", "any width"),
    Status.PROVED_HERE,
)
# How far beside a line its neighbourhood is looked at, as a share of the box.
BESIDE = 1e-7
RationalPoint = tuple[Fraction, Fraction]
ExactLayers = list[tuple[Rationals, Rationals]]


@dataclass(frozen=True)
class Crossing:
    """A segment of a line and two points, one on each side, whose regions both touch it."""

    segment: tuple[RationalPoint, RationalPoint]
    sides: tuple[RationalPoint, RationalPoint]


@dataclass(frozen=True)
class Obstruction:
    """Two places on one line at which the gradient jumps differently.

    Everything is a fraction, and `verify_obstruction` checks it against the network alone.
    """

    first: Crossing
    second: Crossing


def maximum_of_three() -> nn.Sequential:
    """The function max(0, x, y) on the whole plane, with two hidden layers.

    Its breaks are three half-lines, so that one hidden layer cannot equal it.
    """
    first = DenseLayer(numpy.array([[-1.0, 1.0], [1.0, 0.0], [-1.0, 0.0]]), numpy.zeros(3))
    second = DenseLayer(numpy.array([[1.0, 1.0, -1.0]]), numpy.zeros(1))
    return relu_network([first, second, DenseLayer(numpy.ones((1, 1)), numpy.zeros(1))])


def find_obstruction(network: nn.Module, box: Box) -> Obstruction | None:
    """A proof that no one-hidden-layer ReLU network equals this one on the box; None if not found.

    Example:
        >>> box = Box.of([-1.0, -1.0], [1.0, 1.0])
        >>> obstruction = find_obstruction(maximum_of_three(), box)
        >>> verify_obstruction(maximum_of_three(), obstruction)
        True
        >>> shallow = relu_network(
        ...     [
        ...         DenseLayer(numpy.eye(2), numpy.zeros(2)),
        ...         DenseLayer(numpy.ones((1, 2)), numpy.zeros(1)),
        ...     ]
        ... )
        >>> find_obstruction(shallow, box) is None
        True

    Raises:
        ConstructionError: if the network is not from R^2 to R.
    """
    layers = dense_layers(network)
    require_shape("find_obstruction", layers, inputs=2, outputs=1)
    exact = _exactly(layers)
    regions = regions_in_plane(network, box)
    lines = set()
    for pair in regions.neighbours:
        if regions.pieces[pair.first] != regions.pieces[pair.second]:
            patterns = (regions.regions[n].pattern for n in (pair.first, pair.second))
            lines.add(_separating_line(exact, *patterns))
    for line in lines:
        places = [(_jump(exact, place), place) for place in _places(network, line, box)]
        for jump, place in places:
            for other, elsewhere in places:
                if jump is not None and other is not None and jump != other:
                    return Obstruction(place, elsewhere)
    return None


def verify_obstruction(network: nn.Module, obstruction: Obstruction) -> bool:
    """Check a certificate in fractions, from the weights alone.

    All four segment ends lie on one line; at each of the two places, both side points are inside
    regions whose closures contain the segment; and the gradient jumps by different vectors.

    Raises:
        ConstructionError: if the network is not from R^2 to R.
    """
    layers = dense_layers(network)
    require_shape("verify_obstruction", layers, inputs=2, outputs=1)
    (start, end), places = obstruction.first.segment, (obstruction.first, obstruction.second)
    for place in places:
        turns = [_turn(start, end, point) for point in (*place.segment, *place.sides)]
        if turns[:2] != [0, 0] or place.segment[0] == place.segment[1]:
            return False
        if not turns[2] > 0 > turns[3]:
            return False
    jumps = [_jump(_exactly(layers), place) for place in places]
    return None not in jumps and jumps[0] != jumps[1]


def _exactly(layers: Sequence[DenseLayer]) -> ExactLayers:
    return [(rational(layer.weight), rational(layer.bias)) for layer in layers]


def _jump(layers: ExactLayers, place: Crossing) -> tuple[Fraction, ...] | None:
    """Change of the gradient from the second side to the first; None if it is not certain."""
    first, second = (_gradient(layers, side, place.segment) for side in place.sides)
    if first is None or second is None:
        return None
    return tuple(a - b for a, b in zip(first, second, strict=True))


def _turn(start: RationalPoint, end: RationalPoint, point: RationalPoint) -> Fraction:
    """Positive left of the line, negative right of it, zero on it."""
    along, across = (
        (end[0] - start[0], end[1] - start[1]),
        (point[0] - start[0], point[1] - start[1]),
    )
    return along[0] * across[1] - along[1] * across[0]


def _gradient(
    layers: ExactLayers, inside: RationalPoint, touched: tuple[RationalPoint, RationalPoint]
) -> list[Fraction] | None:
    """The gradient of the region that a point is inside of, if its closure contains two others."""
    weight, bias = rational(numpy.eye(2)), rational(numpy.zeros(2))
    for matrix, offset in layers[:-1]:
        weight, bias = matrix @ weight, matrix @ bias + offset
        own, *others = (weight @ numpy.array(p, dtype=object) + bias for p in (inside, *touched))
        # A unit may be zero at the point only if it is zero everywhere around it.
        if any(not value and any(row) for value, row in zip(own, weight, strict=True)):
            return None
        if any(
            (value > 0 > v) or (value < 0 < v)
            for o in others
            for value, v in zip(own, o, strict=False)
        ):
            return None
        mask = numpy.array([int(value > 0) for value in own], dtype=object)
        weight, bias = weight * mask[:, None], bias * mask
    return [Fraction(value) for value in (layers[-1][0] @ weight)[0]]


def _separating_line(
    layers: ExactLayers, first: Sequence[bool], second: Sequence[bool]
) -> tuple[Fraction, Fraction, Fraction]:
    """The zeros a x + b y + c = 0 of the first unit that two neighbours disagree about."""
    weight, bias = rational(numpy.eye(2)), rational(numpy.zeros(2))
    done = 0
    for matrix, offset in layers[:-1]:
        weight, bias = matrix @ weight, matrix @ bias + offset
        own, other = (pattern[done : done + len(bias)] for pattern in (first, second))
        if own != other:
            unit = next(place for place in range(len(bias)) if own[place] != other[place])
            # The same line has the same numbers, whichever unit draws it.
            scale = next(value for value in weight[unit] if value)
            return weight[unit][0] / scale, weight[unit][1] / scale, bias[unit] / scale
        mask = numpy.array([int(is_on) for is_on in own], dtype=object)
        weight, bias, done = weight * mask[:, None], bias * mask, done + len(bias)
    raise AssertionError("neighbours differ in some unit")


def _places(
    network: nn.Module, line: tuple[Fraction, Fraction, Fraction], box: Box
) -> Iterator[Crossing]:
    """Places along a line, one between any two changes of the activation pattern beside it."""
    a, b, c = line
    square = a * a + b * b
    middle = [Fraction(value) for value in ((box.low + box.high) / 2).tolist()]
    excess = (a * middle[0] + b * middle[1] + c) / square
    base = middle[0] - a * excess, middle[1] - b * excess
    normal = numpy.array([float(a), float(b)])
    along = numpy.array([-normal[1], normal[0]])
    ends = _inside(box, numpy.array(base, dtype=float), along)
    step = float((box.high - box.low).max()) * BESIDE / float(numpy.linalg.norm(normal))
    cuts: list[Reals] = []
    for sign in (1, -1):
        start = numpy.array(base, dtype=float) + sign * step * normal
        cuts.append(regions_on_line(network, start, along, ends=ends).edges.astype(float))
    edges = numpy.unique(numpy.concatenate(cuts))
    for low, high in itertools.pairwise(edges):
        if high - low > 8 * step:
            # Well inside, and so near that no other break lies between.
            thirds = [Fraction(low + share * (high - low)) for share in (0.25, 0.5, 0.75)]
            points = [(base[0] - b * t, base[1] + a * t) for t in thirds]
            away = Fraction(step)
            x, y = points[1]
            sides = (x - away * a, y - away * b), (x + away * a, y + away * b)
            yield Crossing((points[0], points[2]), sides)


def _inside(box: Box, base: Reals, along: Reals) -> tuple[float, float]:
    """The parameters between which base + t along is in the box."""
    moving = along != 0
    limits = numpy.stack([box.low, box.high])[:, moving]
    times = (limits - base[moving]) / along[moving]
    return float(times.min(axis=0).max()), float(times.max(axis=0).min())
