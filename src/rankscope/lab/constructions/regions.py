"""Affine regions of a ReLU network: bounds on their number, and all of them on a line or plane."""

import itertools
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import networkx
import numpy
from numpy.typing import NDArray
from torch import nn

from rankscope.errors import ConstructionError, TooLargeError
from rankscope.lab.constructions.dense import (
    Box,
    DenseLayer,
    Rationals,
    Reals,
    dense_layers,
    rational,
    require_finite,
)
from rankscope.lab.constructions.piecewise_linear import PiecewiseLinear
from rankscope.theorem import LowerBound, Magnitude, Status, Theorem, UpperBound

# How many affine regions a ReLU network can have.


QUANTITY = "affine regions"
ZASLAVSKY = Theorem(
    "Zaslavsky (1975)",
    "regions of an arrangement of hyperplanes",
    None,
    ("one hidden layer", "all weights; attained in general position"),
)
PRODUCT = Theorem(
    "Montúfar (2017)",
    "Proposition 3",
    None,
    ("ReLU", "all weights"),
    Status.RECALLED,
)
MONTUFAR = Theorem(
    "Montúfar, Pascanu, Cho & Bengio (2014)",
    "Theorem 4",
    "1402.1869",
    ("ReLU", "every hidden layer is at least as wide as the input", "the best weights"),
    Status.RECALLED,
)


def zaslavsky_upper_bound(*, num_inputs: int, width: int) -> UpperBound:
    r"""Most regions of one hidden layer; hyperplanes in general position have as many.

    .. math:: \sum_{j=0}^{d} \binom{n}{j}

    Example:
        >>> zaslavsky_upper_bound(num_inputs=2, width=4).value
        11

    Raises:
        ConstructionError: if a size is not positive.

    Reference:
        Zaslavsky (1975), "Facing up to arrangements", Memoirs of the AMS 154.
    """
    _require_sizes("zaslavsky_upper_bound", num_inputs, [width])
    return UpperBound(Magnitude.of(_arrangement(num_inputs, width)), ZASLAVSKY, QUANTITY)


def product_upper_bound(*, num_inputs: int, widths: Sequence[int]) -> UpperBound:
    r"""Most regions of a deep network.

    .. math:: \prod_{l=1}^{L} \sum_{j=0}^{m_l} \binom{n_l}{j}, \qquad
              m_l = \min(n_0, \dots, n_{l-1})

    A region of the first l - 1 layers is mapped into an affine space of dimension m_l at most,
    which layer l cuts by n_l hyperplanes.

    Example:
        >>> product_upper_bound(num_inputs=2, widths=[4, 4, 4]).value
        1331

    Raises:
        ConstructionError: if a size is not positive.

    Reference:
        Montúfar (2017), "Notes on the number of linear regions of deep neural networks", Prop. 3.
    """
    _require_sizes("product_upper_bound", num_inputs, widths)
    total, dimension = 1, num_inputs
    for width in widths:
        total *= _arrangement(dimension, width)
        dimension = min(dimension, width)
    return UpperBound(Magnitude.of(total), PRODUCT, QUANTITY)


def montufar_lower_bound(*, num_inputs: int, widths: Sequence[int]) -> LowerBound:
    r"""Regions that some network of the architecture has; `montufar_network` builds it.

    .. math:: \Bigl(\prod_{l=1}^{L-1} \lfloor n_l / n_0 \rfloor^{n_0}\Bigr)
              \sum_{j=0}^{n_0} \binom{n_L}{j}

    Example:
        >>> montufar_lower_bound(num_inputs=2, widths=[8, 8, 8]).value
        9472

    Raises:
        ConstructionError: if a size is not positive or a layer is narrower than the input.

    Reference:
        Montúfar, Pascanu, Cho & Bengio (2014), Theorem 4, arXiv:1402.1869.
    """
    _require_sizes("montufar_lower_bound", num_inputs, widths)
    require_wide("montufar_lower_bound", num_inputs, widths)
    folds = math.prod((width // num_inputs) ** num_inputs for width in widths[:-1])
    regions = folds * _arrangement(num_inputs, widths[-1])
    return LowerBound(Magnitude.of(regions), MONTUFAR, QUANTITY)


def require_wide(who: str, num_inputs: int, widths: Sequence[int]) -> None:
    """Refuse layers that are narrower than the input.

    Raises:
        ConstructionError: if there is one.
    """
    for place, width in enumerate(widths, start=1):
        if width < num_inputs:
            raise ConstructionError(
                f"{who}: hidden layer {place} has {width} units, fewer than the {num_inputs} "
                "inputs."
            )


def _arrangement(dimension: int, width: int) -> int:
    return sum(math.comb(width, chosen) for chosen in range(dimension + 1))


def _require_sizes(who: str, num_inputs: int, widths: Sequence[int]) -> None:
    if num_inputs < 1 or not widths or min(widths) < 1:
        raise ConstructionError(
            f"{who} needs at least one input and hidden layers of at least one unit, got "
            f"{num_inputs} inputs and widths {list(widths)}."
        )


# Affine regions of a ReLU network along a line, found exactly.


# Slopes that differ by less, relative to the largest, are equal in float64.
SAME_SLOPE = 1e-9
Column = Reals | Rationals


@dataclass(frozen=True, eq=False)
class LineRegions:
    """The pieces of t -> network(start + t direction).

    Args:
        edges: where activation patterns change, with both ends (which may be infinite).
        patterns: for each piece (rows), which hidden units are switched on, layer after layer.
        slopes: of each output (columns) in each piece.
        intercepts: values that the affine pieces have at t = 0.
        is_exact: whether numbers are fractions and nothing was rounded.
    """

    edges: Column
    patterns: NDArray[numpy.bool_]
    slopes: Column
    intercepts: Column
    is_exact: bool

    @property
    def num_patterns(self) -> int:
        """Activation patterns with interior."""
        return len(self.patterns)

    @property
    def num_affine_pieces(self) -> int:
        """Maximal affine pieces: patterns between which no slope changes count once."""
        return 1 + int(self._breaks().sum())

    @property
    def smallest_margin(self) -> float:
        """Length of the shortest piece: how near two breaks are to being one."""
        return float(min(numpy.diff(self.edges)))

    def function(self, output: int = 0) -> PiecewiseLinear:
        """One output as a piecewise-linear function of t, extended beyond finite ends."""
        breaks = self._breaks()
        starts = numpy.concatenate([[True], breaks])
        slopes = numpy.asarray(self.slopes[starts, output], dtype=float)
        kinks = numpy.asarray(self.edges[1:-1][breaks], dtype=float)
        intercepts = numpy.asarray(self.intercepts[starts, output], dtype=float)
        if not len(kinks):
            return PiecewiseLinear(kinks, slopes, 0.0, float(intercepts[0]))
        value = float(self.slopes[0, output] * self.edges[1:-1][breaks][0])
        return PiecewiseLinear(kinks, slopes, float(kinks[0]), value + float(intercepts[0]))

    def _breaks(self) -> NDArray[numpy.bool_]:
        """Whether some slope changes at each inner edge."""
        changes = numpy.abs(numpy.diff(self.slopes, axis=0))
        threshold = 0.0 if self.is_exact else SAME_SLOPE * float(numpy.abs(self.slopes).max())
        return numpy.asarray((changes > threshold).any(axis=1), dtype=bool)


def regions_on_line(
    network: nn.Module,
    start: Reals | None = None,
    direction: Reals | None = None,
    *,
    ends: tuple[float, float] = (-numpy.inf, numpy.inf),
    exactly: bool = False,
) -> LineRegions:
    """Cut a line into the pieces on which a network is affine.

    Layer after layer, the zeros of the units inside each piece are computed and cut it.

    Args:
        network: Linear, ReLU, …, Linear.
        start: the point at t = 0; the origin if None.
        direction: the step of t; needed if the network has more than one input.
        ends: least and largest t.
        exactly: compute with fractions, which is slow.

    Example:
        >>> from rankscope.lab.constructions.explicit_networks import sawtooth_network
        >>> regions_on_line(sawtooth_network(5), ends=(0.0, 1.0)).num_affine_pieces
        32

    Raises:
        ConstructionError: if the line does not fit the network or its ends are not in order.
    """
    layers = dense_layers(network)
    begin, step = _line(start, direction, layers[0].weight.shape[1])
    if not ends[0] < ends[1]:
        raise ConstructionError(f"regions_on_line: the ends must be in order, got {ends}.")
    convert = rational if exactly else numpy.asarray
    edges: Column = (
        convert(numpy.array(ends))
        if numpy.isfinite(ends).all()
        else numpy.array(ends, dtype=object if exactly else float)
    )
    slopes, intercepts = convert(step)[None, :], convert(begin)[None, :]
    patterns = numpy.zeros((1, 0), dtype=bool)
    for layer in layers[:-1]:
        weight = convert(layer.weight).T
        slopes, intercepts = slopes @ weight, intercepts @ weight + convert(layer.bias)
        zeros = _zeros(slopes, intercepts)
        inside = (zeros > edges[:-1, None]) & (zeros < edges[1:, None])
        finer = numpy.unique(numpy.concatenate([edges, zeros[inside]]))
        parents = numpy.searchsorted(edges, finer[:-1], side="right") - 1
        edges = finer
        slopes, intercepts, zeros = slopes[parents], intercepts[parents], zeros[parents]
        # Zeros are edges now, so that comparing the two is free of rounding.
        is_on = numpy.where(
            slopes == 0,
            intercepts > 0,
            numpy.where(slopes > 0, zeros <= edges[:-1, None], zeros >= edges[1:, None]),
        ).astype(bool)
        slopes, intercepts = slopes * is_on, intercepts * is_on
        patterns = numpy.hstack([patterns[parents], is_on])
    weight = convert(layers[-1].weight).T
    return LineRegions(
        edges, patterns, slopes @ weight, intercepts @ weight + convert(layers[-1].bias), exactly
    )


def _zeros(slopes: Column, intercepts: Column) -> Column:
    """Where each affine function is zero; infinity where it never is, or always."""
    zeros = slopes * 0 + numpy.inf
    moving = slopes != 0
    with numpy.errstate(over="ignore"):
        zeros[moving] = -intercepts[moving] / slopes[moving]
    return zeros


def _line(start: Reals | None, direction: Reals | None, inputs: int) -> tuple[Reals, Reals]:
    begin = numpy.zeros(inputs) if start is None else start
    if direction is None and inputs > 1:
        raise ConstructionError(
            f"regions_on_line: a network with {inputs} inputs needs a direction to cut along."
        )
    step = numpy.ones(1) if direction is None else direction
    require_finite("regions_on_line", start=begin, direction=step)
    if begin.shape != (inputs,) or step.shape != (inputs,) or not step.any():
        raise ConstructionError(
            f"regions_on_line: start and direction must be vectors of {inputs} numbers, the "
            f"direction not zero, got {begin.tolist()} and {step.tolist()}."
        )
    return begin, step


# Convex polygons that are cut by lines and remember which cut made each edge.


Point = tuple[float, float]


@dataclass(frozen=True)
class Polygon:
    """A convex polygon.

    Args:
        vertices: in order around it.
        cuts: for each vertex, the number of the cut that the edge to the next vertex lies on.
    """

    vertices: tuple[Point, ...]
    cuts: tuple[int, ...]

    @property
    def area(self) -> float:
        """Twice the triangle sum, halved; from the first vertex, so that small ones keep digits."""
        (x, y), *others = self.vertices
        moved = [(a - x, b - y) for a, b in others]
        return abs(sum(a * d - b * c for (a, b), (c, d) in itertools.pairwise(moved))) / 2

    @property
    def inner_radius(self) -> float:
        """A lower bound on the radius of the largest circle inside: area over perimeter."""
        around = zip(self.vertices, self.vertices[1:] + self.vertices[:1], strict=True)
        return self.area / sum(math.dist(first, second) for first, second in around)


def split(
    polygon: Polygon, values: Sequence[float], tolerance: float, cut: int
) -> tuple[Polygon, Polygon] | None:
    """The parts of a polygon where an affine function is positive and negative.

    Args:
        polygon: what is cut.
        values: of the function at the vertices.
        tolerance: vertices with smaller values lie on the line.
        cut: the number that the new edges get.

    Returns:
        The two parts, or None if one of them would be empty.
    """
    signs = [0 if abs(value) <= tolerance else 1 if value > 0 else -1 for value in values]
    if max(signs) <= 0 or min(signs) >= 0:
        return None
    sides: tuple[list[tuple[Point, int]], list[tuple[Point, int]]] = ([], [])
    count = len(signs)
    for place in range(count):
        following = (place + 1) % count
        start, end = polygon.vertices[place], polygon.vertices[following]
        sign, next_sign, label = signs[place], signs[following], polygon.cuts[place]
        for side, own in zip(sides, (1, -1), strict=True):
            if sign != -own:
                leaves = sign == 0 and next_sign == -own
                side.append((start, cut if leaves else label))
        if sign * next_sign < 0:
            share = values[place] / (values[place] - values[following])
            middle = (
                start[0] + share * (end[0] - start[0]),
                start[1] + share * (end[1] - start[1]),
            )
            # The side that the edge leaves goes on along the cut.
            sides[0].append((middle, cut if sign > 0 else label))
            sides[1].append((middle, cut if sign < 0 else label))
    positive, negative = (Polygon(*map(tuple, zip(*side, strict=True))) for side in sides)
    return positive, negative


# Affine regions of a ReLU network with two inputs, as polygons.


# Vertices nearer to a line than this share of the size of things lie on it.
ON_THE_LINE = 1e-12
# Gradients that differ by less, relative to the largest, are equal in float64.
SAME_GRADIENT = 1e-9


@dataclass(frozen=True, eq=False)
class PlaneRegion:
    """A polygon on which one set of hidden units is switched on."""

    polygon: Polygon
    pattern: tuple[bool, ...]
    output: DenseLayer


@dataclass(frozen=True)
class Neighbours:
    """Two regions, by number, and the segment that they share."""

    first: int
    second: int
    segment: tuple[Point, Point]


@dataclass(frozen=True, eq=False)
class PlaneRegions:
    """The regions of a network in a box.

    Args:
        regions: one for each activation pattern with interior.
        neighbours: all pairs that share an edge.
        pieces: for each region, the number of the maximal affine piece it belongs to.
        smallest_margin: no region has a smaller inscribed circle than of this radius.
    """

    regions: tuple[PlaneRegion, ...]
    neighbours: tuple[Neighbours, ...]
    pieces: tuple[int, ...]
    smallest_margin: float

    @property
    def num_patterns(self) -> int:
        """Activation patterns with interior."""
        return len(self.regions)

    @property
    def num_affine_pieces(self) -> int:
        """Maximal connected pieces on which the outputs are affine."""
        return len(set(self.pieces))

    def __str__(self) -> str:
        return (
            f"{self.num_patterns:,} activation patterns, {self.num_affine_pieces:,} affine pieces, "
            f"smallest radius {self.smallest_margin:.2g}"
        )


def regions_in_plane(network: nn.Module, box: Box, *, max_regions: int = 200_000) -> PlaneRegions:
    """Cut a box in the plane into the polygons on which a network is affine.

    Layer after layer, each polygon is split along the zeros of the units that change their sign
    on it. Computed in float64: look at `smallest_margin` before believing a count.

    Example:
        >>> from rankscope.lab.constructions.explicit_networks import montufar_network
        >>> network = montufar_network(num_inputs=2, widths=[4, 4])
        >>> print(regions_in_plane(network, Box.unit(2)).num_affine_pieces)
        44

    Raises:
        ConstructionError: if the network or the box has not two inputs.
        TooLargeError: if there are more than `max_regions` regions.
    """
    layers = dense_layers(network)
    inputs = layers[0].weight.shape[1]
    if inputs != 2 or box.num_inputs != 2:
        raise ConstructionError(
            f"regions_in_plane needs two inputs, got a network with {inputs} and a box with "
            f"{box.num_inputs}. Cut a plane out of more with `on_plane`."
        )
    cuts = _Cuts(float(numpy.abs(numpy.stack([box.low, box.high])).max()), max_regions)
    (x, y), (right, top) = box.low.tolist(), box.high.tolist()
    corners = ((x, y), (right, y), (right, top), (x, top))
    identity = DenseLayer(numpy.eye(2), numpy.zeros(2))
    regions = [PlaneRegion(Polygon(corners, (-1, -1, -1, -1)), (), identity)]
    for layer in layers[:-1]:
        regions = [finer for region in regions for finer in cuts.refine(region, layer)]
        cuts.require(len(regions))
    regions = [PlaneRegion(r.polygon, r.pattern, layers[-1].after(r.output)) for r in regions]
    neighbours = _neighbours(regions)
    return PlaneRegions(
        tuple(regions),
        tuple(neighbours),
        _pieces(regions, neighbours),
        min(region.polygon.inner_radius for region in regions),
    )


class _Cuts:
    """Splits regions and numbers the cuts."""

    def __init__(self, size: float, most: int) -> None:
        self.size = size
        self.most = most
        self.count = 0

    def require(self, count: int) -> None:
        if count > self.most:
            raise TooLargeError(
                what="regions_in_plane",
                entries=count,
                limit=self.most,
                instead="Make the box smaller, or raise max_regions.",
            )

    def refine(self, region: PlaneRegion, layer: DenseLayer) -> list[PlaneRegion]:
        """The regions into which one more layer cuts a region."""
        units = layer.after(region.output)
        sizes = numpy.abs(units.weight).sum(axis=1) * self.size + numpy.abs(units.bias)
        tolerances = ON_THE_LINE * sizes
        vertices = numpy.array(region.polygon.vertices)
        values = vertices @ units.weight.T + units.bias
        crossing = (values.min(axis=0) < -tolerances) & (values.max(axis=0) > tolerances)
        polygons = [region.polygon]
        for unit in numpy.flatnonzero(crossing):
            line = (*units.weight[unit].tolist(), float(units.bias[unit]))
            polygons = self._cut(polygons, line, float(tolerances[unit]))
        return [_switch_pattern(polygon, region.pattern, units) for polygon in polygons]

    def _cut(
        self, polygons: list[Polygon], line: tuple[float, float, float], tolerance: float
    ) -> list[Polygon]:
        a, b, c = line
        results: list[Polygon] = []
        for polygon in polygons:
            values = [a * x + b * y + c for x, y in polygon.vertices]
            parts = split(polygon, values, tolerance, self.count)
            results.extend(parts or (polygon,))
        self.count += 1
        self.require(len(results))
        return results


def _switch_pattern(polygon: Polygon, pattern: tuple[bool, ...], units: DenseLayer) -> PlaneRegion:
    # The mean of the vertices is inside, where no unit that is not zero everywhere vanishes.
    centre = numpy.mean(polygon.vertices, axis=0)
    is_on = units.weight @ centre + units.bias > 0
    output = DenseLayer(units.weight * is_on[:, None], units.bias * is_on)
    return PlaneRegion(polygon, (*pattern, *is_on.tolist()), output)


def _neighbours(regions: list[PlaneRegion]) -> list[Neighbours]:
    """Pairs that share a piece of a cut; both sides of a cut are swept along it."""
    edges: dict[int, list[tuple[Point, Point, int]]] = defaultdict(list)
    for number, region in enumerate(regions):
        vertices = region.polygon.vertices
        for place, cut in enumerate(region.polygon.cuts):
            if cut >= 0:
                edges[cut].append((vertices[place], vertices[(place + 1) % len(vertices)], number))
    return [pair for same in edges.values() for pair in _overlaps(same)]


def _overlaps(edges: list[tuple[Point, Point, int]]) -> list[Neighbours]:
    """Overlapping segments of opposite directions on one line.

    Vertices run around polygons, so that the two sides of a cut run along it in opposite ways.
    """
    start, end, _ = max(edges, key=lambda edge: _length(edge[0], edge[1]))
    length = _length(start, end)
    along = ((end[0] - start[0]) / length, (end[1] - start[1]) / length)
    sides: tuple[list[tuple[float, float, int]], list[tuple[float, float, int]]] = ([], [])
    for first, last, number in edges:
        low, high = (p[0] * along[0] + p[1] * along[1] for p in (first, last))
        sides[low > high].append((min(low, high), max(low, high), number))
    offset = start[0] * along[0] + start[1] * along[1]
    results = []
    places = [0, 0]
    for side in sides:
        side.sort()
    while places[0] < len(sides[0]) and places[1] < len(sides[1]):
        left, right = sides[0][places[0]], sides[1][places[1]]
        low, high = max(left[0], right[0]), min(left[1], right[1])
        # A common vertex is not a common edge.
        if high - low > 1e-9 * min(left[1] - left[0], right[1] - right[0]):
            ends = [
                (start[0] + (t - offset) * along[0], start[1] + (t - offset) * along[1])
                for t in (low, high)
            ]
            results.append(Neighbours(left[2], right[2], (ends[0], ends[1])))
        places[0 if left[1] < right[1] else 1] += 1
    return results


def _length(first: Point, second: Point) -> float:
    return float(numpy.hypot(second[0] - first[0], second[1] - first[1]))


def _pieces(regions: list[PlaneRegion], neighbours: list[Neighbours]) -> tuple[int, ...]:
    """Join neighbours whose gradients are equal; being continuous, they are then one piece."""
    gradients = numpy.stack([region.output.weight for region in regions])
    threshold = SAME_GRADIENT * float(numpy.abs(gradients).max())
    graph = networkx.empty_graph(len(regions))
    for pair in neighbours:
        if numpy.abs(gradients[pair.first] - gradients[pair.second]).max() <= threshold:
            graph.add_edge(pair.first, pair.second)
    pieces = [0] * len(regions)
    for number, members in enumerate(networkx.connected_components(graph)):
        for member in members:
            pieces[member] = number
    return tuple(pieces)
