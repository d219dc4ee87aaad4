"""Affine regions of a ReLU network with two inputs, as polygons."""

from collections import defaultdict
from dataclasses import dataclass

import networkx
import numpy
from torch import nn

from rankscope.constructions.box import Box
from rankscope.constructions.dense import DenseLayer, Reals, dense_layers, relu_network
from rankscope.constructions.polygons import Point, Polygon, split
from rankscope.errors import ConstructionError, TooLargeError

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
        >>> from rankscope.constructions.montufar import montufar_network
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


def on_plane(network: nn.Module, origin: Reals, directions: Reals) -> nn.Sequential:
    """A network with more inputs, restricted to a plane: (s, t) -> origin + s u + t v.

    Args:
        network: any number of inputs.
        origin: the point at (0, 0).
        directions: u and v, one in each row.

    Raises:
        ConstructionError: if the vectors do not fit the network.
    """
    layers = dense_layers(network)
    inputs = layers[0].weight.shape[1]
    if origin.shape != (inputs,) or directions.shape != (2, inputs):
        raise ConstructionError(
            f"on_plane: a network with {inputs} inputs needs an origin of shape ({inputs},) and "
            f"directions of shape (2, {inputs}), got {origin.shape} and {directions.shape}."
        )
    return relu_network([layers[0].after(DenseLayer(directions.T, origin)), *layers[1:]])


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
        return [_switched(polygon, region.pattern, units) for polygon in polygons]

    def _cut(
        self, polygons: list[Polygon], line: tuple[float, float, float], tolerance: float
    ) -> list[Polygon]:
        a, b, c = line
        found: list[Polygon] = []
        for polygon in polygons:
            values = [a * x + b * y + c for x, y in polygon.vertices]
            parts = split(polygon, values, tolerance, self.count)
            found.extend(parts or (polygon,))
        self.count += 1
        self.require(len(found))
        return found


def _switched(polygon: Polygon, pattern: tuple[bool, ...], units: DenseLayer) -> PlaneRegion:
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
    found = []
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
            found.append(Neighbours(left[2], right[2], (ends[0], ends[1])))
        places[0 if left[1] < right[1] else 1] += 1
    return found


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
