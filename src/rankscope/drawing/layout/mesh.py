"""Layouts without barriers: trees, rings, stars, stress, and plates around them."""

import cmath
import math
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

import networkx
import numpy

from rankscope.diagrams.diagram import Diagram
from rankscope.diagrams.parts import IndexKind, Role
from rankscope.drawing.layout.placement import (
    PLAIN_VIEW,
    Dot,
    End,
    NodeEnd,
    Placement,
    Segment,
    Side,
    Tip,
    View,
    Wiring,
)
from rankscope.drawing.layout.tensors import DIAMETER, UNIT, WIRE_FONT, diameter, index_text
from rankscope.drawing.scene import Label, Point, Scene, Shape, ShapeKind
from rankscope.drawing.typesetting import place_label, text_width

# --- The bare graph of a diagram without barriers: what is joined to what, and what is loose ------


LEG = 0.72
USUAL_LABEL = 28.0
ALIGN = 0.7  # tips nearer than this look as if they should share a line
FAN = math.radians(34)
# Directions for loose ends: the four sides are best, then the diagonals.
CHOICES = tuple(turn * math.pi / 8 for turn in range(16))


class Mesh:
    """Tensors and dots as vertices; private dots and tips are loose ends of their owner."""

    def __init__(self, wiring: Wiring, view: View = PLAIN_VIEW) -> None:
        self.wiring = wiring
        self._view = view
        # How much larger than usual tensors are, in grid units.
        self.excess = diameter(wiring.diagram) / UNIT - DIAMETER / UNIT

    @cached_property
    def label_excess(self) -> float:
        """How much wider than usual the widest label of a bond is, in grid units."""
        indices = self.wiring.diagram.index_by_name
        bonds = [s.index for s in self.wiring.segments if not isinstance(s.second, Tip)]
        widths = [text_width(index_text(indices[name], self._view), WIRE_FONT) for name in bonds]
        return max(0.0, max(widths, default=0.0) - USUAL_LABEL) / UNIT

    @cached_property
    def vertices(self) -> tuple[End, ...]:
        """Tensors in order of declaration, then dots."""
        tensors: list[End] = [NodeEnd(part.name) for part in self.wiring.diagram.holders]
        return (*tensors, *(dot for dot in self.wiring.dots if not self.is_private(dot)))

    def is_private(self, dot: Dot) -> bool:
        """Whether a dot only ends a summed leg or a diagonal of one tensor."""
        owners = dict.fromkeys(a for a in self.wiring.dots[dot] if not isinstance(a, Tip))
        return len(owners) == 1

    @cached_property
    def neighbours(self) -> dict[End, tuple[End, ...]]:
        """Vertices joined to each vertex, each once, in the order of its own indices."""
        return {
            end: tuple(
                dict.fromkeys(
                    segment.other(end)
                    for segment in self._in_own_order(end)
                    if segment.other(end) in self._is_vertex and segment.other(end) != end
                )
            )
            for end in self.vertices
        }

    @cached_property
    def _is_vertex(self) -> dict[End, None]:
        return dict.fromkeys(self.vertices)

    def _in_own_order(self, end: End) -> Sequence[Segment]:
        segments = self.wiring.at.get(end, ())
        node = self.wiring.diagram.node_by_name.get(end.name) if isinstance(end, NodeEnd) else None
        if node is None:
            return segments
        return sorted(segments, key=lambda segment: node.indices.index(segment.index))

    @cached_property
    def loose(self) -> dict[End, tuple[End, ...]]:
        """Tips and private dots of each vertex."""
        return {
            end: tuple(
                segment.other(end)
                for segment in dict.fromkeys(self._in_own_order(end))
                if segment.other(end) not in self._is_vertex
            )
            for end in self.vertices
        }

    @cached_property
    def has_only_single_bonds(self) -> bool:
        """Whether no two vertices are joined twice, and none to itself."""
        return all(
            segment.ordinal == 0 and segment.first != segment.second
            for segment in self.wiring.segments
            if segment.first in self._is_vertex and segment.second in self._is_vertex
        )

    @cached_property
    def num_edges(self) -> int:
        """Joined pairs of vertices."""
        return sum(len(others) for others in self.neighbours.values()) // 2

    def distances(self, start: End) -> dict[End, int]:
        """Steps from a vertex to all it can reach, nearest first."""
        steps, waiting = {start: 0}, deque([start])
        while waiting:
            end = waiting.popleft()
            for other in self.neighbours[end]:
                if other not in steps:
                    steps[other] = steps[end] + 1
                    waiting.append(other)
        return steps

    @property
    def is_connected(self) -> bool:
        """Whether all vertices hang together."""
        return len(self.distances(self.vertices[0])) == len(self.vertices)

    @property
    def is_tree(self) -> bool:
        """Whether there is exactly one way between any two vertices."""
        return self.is_connected and self.num_edges == len(self.vertices) - 1


def free_placement(
    mesh: Mesh, at: Mapping[End, Point], angles: Mapping[End, float], legs: Mapping[str, Side]
) -> Placement:
    """A placement with straight wires; `angles` points loose ends, or all those of a vertex.

    Loose ends of the others go where most space is, away from the middle.
    """
    middle = (
        sum(x for x, _ in at.values()) / len(at),
        sum(y for _, y in at.values()) / len(at),
    )
    dots = {(end.index, end.region): p for end, p in at.items() if isinstance(end, Dot)}
    tips: dict[str, Point] = {}
    for end in mesh.vertices:
        loose = mesh.loose[end]
        for other, angle in zip(loose, _turns(mesh, end, at, angles, middle), strict=True):
            index = other.index if isinstance(other, Tip | Dot) else ""
            direction = (math.cos(angle), math.sin(angle))
            if index in legs:
                direction = legs[index].vector
            length = LEG + mesh.excess / 2
            x, y = at[end]
            if isinstance(other, Dot):
                dots[(other.index, other.region)] = _step((x, y), direction, length)
                length += LEG * 0.8
            if index in mesh.wiring.diagram.output:
                tips[index] = _step((x, y), direction, length)
    nodes = {end.name: p for end, p in at.items() if isinstance(end, NodeEnd)}
    tips = _align_tips(
        tips, {index: at[end] for end in mesh.vertices for index in _tips(mesh, end)}
    )
    return Placement(nodes, dots, tips, straight=tuple(mesh.wiring.diagram.structure.owners))


def _tips(mesh: Mesh, end: End) -> Iterator[str]:
    for other in mesh.loose[end]:
        if isinstance(other, Tip | Dot) and other.index in mesh.wiring.diagram.output:
            yield other.index


def _align_tips(tips: Mapping[str, Point], owners: Mapping[str, Point]) -> dict[str, Point]:
    """Level legs to one side that nearly share an x share it: the outermost."""
    aligned = dict(tips)
    for sign in (-1.0, 1.0):
        level = [
            index
            for index, (x, y) in tips.items()
            if abs(y - owners[index][1]) < 1e-6 and (x - owners[index][0]) * sign > 0
        ]
        level.sort(key=lambda index: -sign * tips[index][0])
        edge: float | None = None
        for index in level:
            x, y = tips[index]
            if edge is None or abs(edge - x) > ALIGN:
                edge = x
            aligned[index] = (edge, y)
    return aligned


def _step(point: Point, direction: Point, length: float) -> Point:
    return (point[0] + length * direction[0], point[1] + length * direction[1])


def _turns(
    mesh: Mesh,
    end: End,
    at: Mapping[End, Point],
    angles: Mapping[End, float],
    middle: Point,
) -> list[float]:
    count = len(mesh.loose[end])
    if mesh.loose[end] and mesh.loose[end][0] in angles:
        return [angles[other] for other in mesh.loose[end]]
    if end in angles:
        return [angles[end] + FAN * (place - (count - 1) / 2) for place in range(count)]
    x, y = at[end]
    taken = [math.atan2(at[o][1] - y, at[o][0] - x) for o in mesh.neighbours[end]]
    outward = math.atan2(y - middle[1], x - middle[0])
    turns: list[float] = []
    for _ in range(count):
        best = max(CHOICES, key=lambda angle: _room(angle, [*taken, *turns], outward))
        turns.append(best)
    return turns


def _room(angle: float, taken: list[float], outward: float) -> float:
    """How good a direction is: wide gap first, then outward, then along the axes."""
    gap = min((abs(_turn(angle - other)) for other in taken), default=math.pi)
    on_axis = abs(math.sin(2 * angle)) < 1e-6
    on_diagonal = abs(math.cos(2 * angle)) < 1e-6
    wide = 2 * min(gap, 1.2) - (6 * (0.7 - gap) if gap < 0.7 else 0.0)
    return round(
        wide + 0.8 * math.cos(angle - outward) + (0.3 if on_axis else 0.12 if on_diagonal else 0.0),
        6,
    )


def _turn(angle: float) -> float:
    return (angle + math.pi) % (2 * math.pi) - math.pi


# --- Plates: an index that merely repeats the whole picture is a dotted frame, not a wire ---------


PADDING, FOOT = 20.0, 16.0


def plate_indices(diagram: Diagram) -> tuple[str, ...]:
    """Indices that every data tensor (at least two), the open legs, and nothing else carry.

    Where all tensors are data, as in a plain einsum, only batch indices count: there an index
    on every operand is an elementwise product, which deserves its dot.
    """
    data = [node.name for node in diagram.nodes if node.role is Role.DATA]
    is_all_data = len(data) == len(diagram.nodes)
    used = [index for region in diagram.regions for index in (*region.over, *(region.causal or ()))]
    plates = []
    for index in diagram.output:
        owners = diagram.structure.owners[index]
        is_batch = diagram.index_by_name[index].kind is IndexKind.BATCH
        if (
            len(owners) >= 2
            and sorted(owners) == sorted(data)
            and index not in used
            and (is_batch or not is_all_data)
        ):
            plates.append(index)
    return tuple(plates)


def without_indices(diagram: Diagram, indices: tuple[str, ...]) -> Diagram:
    """The diagram without some indices: what is inside the plates."""
    if not indices:
        return diagram
    return replace(
        diagram,
        indices=tuple(index for index in diagram.indices if index.name not in indices),
        nodes=tuple(
            replace(node, indices=tuple(index for index in node.indices if index not in indices))
            for node in diagram.nodes
        ),
        output=tuple(index for index in diagram.output if index not in indices),
    )


def with_plate(scene: Scene, diagram: Diagram, index_name: str, view: View) -> Scene:
    """A picture inside a dotted frame that says how often it is repeated."""
    index = diagram.index_by_name[index_name]
    left, top, right, bottom = scene.box
    left, top, right, bottom = left - PADDING, top - PADDING, right + PADDING, bottom + PADDING
    bottom += FOOT
    frame = Shape(
        index_name,
        ShapeKind.FRAME,
        (left + right) / 2,
        (top + bottom) / 2,
        right - left,
        bottom - top,
        "plate",
        f"repeated for every {index_name}",
    )
    text = rf"$\times\,{index_text(index, view)[1:]}"
    label = place_label(
        text, (right - FOOT, bottom - 12.0), size=WIRE_FONT, style="on-plate", anchor="rb"
    )
    owned = Label(label.text, label.x, label.y, label.size, label.style, label.box, index_name)
    return replace(scene, frames=(frame, *scene.frames), labels=(*scene.labels, owned))


# --- Trees: the root on top, leaves on one line with their legs hanging down ----------------------


APART, LEVEL = 1.15, 1.3
FEWEST_LEAVES = 4
DOWN = math.pi / 2


def place_tree(mesh: Mesh, legs: Mapping[str, Side]) -> Placement | None:
    """Any network without cycles."""
    if len(mesh.vertices) < 3 or not mesh.is_tree or not mesh.has_only_single_bonds:
        return None
    root = _root(mesh)
    depth = mesh.distances(root)
    children = {
        end: [other for other in mesh.neighbours[end] if depth[other] > depth[end]]
        for end in mesh.vertices
    }
    lowest = max(depth.values())
    x: dict[End, float] = {}
    for end in _inorder(root, children):
        x[end] = (APART + mesh.excess + mesh.label_excess) * sum(
            1 for other in x if not children[other]
        )
        if children[end]:
            x[end] = (x[children[end][0]] + x[children[end][-1]]) / 2
    pitch = _pitch(x, children, depth) + mesh.excess
    at: dict[End, Point] = {
        end: (x[end], pitch * (depth[end] if children[end] else lowest)) for end in mesh.vertices
    }
    angles = {end: DOWN for end in mesh.vertices if not children[end]}
    return free_placement(mesh, at, angles, legs)


def is_hierarchical(mesh: Mesh) -> bool:
    """Whether a network is a shallow tree with its open legs on the leaves only.

    A row with one branch at every place (a Tucker core, a train of factors) looks better as
    a row, so that does not count.
    """
    if not mesh.is_tree or not mesh.has_only_single_bonds:
        return False
    leaves = [end for end in mesh.vertices if len(mesh.neighbours[end]) == 1]
    inner = [end for end in mesh.vertices if len(mesh.neighbours[end]) > 1]
    if len(leaves) < FEWEST_LEAVES or any(mesh.loose[end] for end in inner):
        return False
    depth = max(mesh.distances(_root(mesh)).values())
    num_bare = sum(1 for end in inner if not any(leaf in mesh.neighbours[end] for leaf in leaves))
    return num_bare > 0 and depth <= math.ceil(math.log2(len(leaves))) + 1


def _root(mesh: Mesh) -> End:
    """The inner vertex nearest to all; between equals, with fewest wires, declared first."""
    inner = [end for end in mesh.vertices if len(mesh.neighbours[end]) > 1]
    return min(
        inner,
        key=lambda end: (
            max(mesh.distances(end).values()),
            len(mesh.neighbours[end]) + len(mesh.loose[end]),
        ),
    )


def _inorder(end: End, children: Mapping[End, list[End]]) -> list[End]:
    """Children from left to right before their parent."""
    visited, waiting = [], [end]
    while waiting:
        visited.append(waiting.pop())
        waiting += children[visited[-1]]
    return visited[::-1]


def _pitch(
    x: Mapping[End, float], children: Mapping[End, list[End]], depth: Mapping[End, int]
) -> float:
    """Levels far enough apart that the widest fork is not too flat."""
    widest = max(
        (abs(x[child] - x[end]) for end, below in children.items() for child in below),
        default=0.0,
    )
    return max(LEVEL, min(2.2, 0.55 * widest)) if max(depth.values()) > 0 else LEVEL


# --- Stress layout, for networks that no rule fits: distances on paper follow distances in the grap


Array = numpy.ndarray[tuple[int, ...], numpy.dtype[numpy.float64]]

BOND, STRESS_ARM = 1.35, 0.9
ITERATIONS = 300
CLOSEST, CLOSEST_ON_GRID = 0.85, 0.8


def place_by_stress(mesh: Mesh, legs: Mapping[str, Side]) -> Iterator[Placement]:
    """Candidates, one or two for every start."""
    lengths = _lengths(mesh)
    for start in _starts(mesh):
        points = _rotate(mesh, _minimize_stress(start, lengths))
        points = _scale(mesh, points)
        snapped = numpy.round(points * 4) / 4
        if _closest(snapped) > CLOSEST_ON_GRID + mesh.excess:
            yield _placement(mesh, snapped, legs)
        yield _placement(mesh, points, legs)


def _placement(mesh: Mesh, points: Array, legs: Mapping[str, Side]) -> Placement:
    at = {end: (float(x), float(y)) for end, (x, y) in zip(mesh.vertices, points, strict=True)}
    return free_placement(mesh, at, {}, legs)


def _bond(first: End, second: End) -> float:
    return STRESS_ARM if isinstance(first, Dot) or isinstance(second, Dot) else BOND


def _lengths(mesh: Mesh) -> Array:
    """Shortest ways between all pairs, in grid units."""
    place = {end: k for k, end in enumerate(mesh.vertices)}
    lengths = numpy.full((len(place), len(place)), math.inf)
    numpy.fill_diagonal(lengths, 0.0)
    for end, others in mesh.neighbours.items():
        for other in others:
            lengths[place[end], place[other]] = _bond(end, other) + mesh.excess + mesh.label_excess
    for middle in range(len(place)):
        via = lengths[:, middle, None] + lengths[None, middle, :]
        lengths = numpy.minimum(lengths, via)
    return lengths


def _starts(mesh: Mesh) -> Iterator[Array]:
    """A drawing without crossings if there is one, and a circle."""
    place = {end: k for k, end in enumerate(mesh.vertices)}
    # Whole numbers as names: their order does not depend on the hash seed.
    graph = networkx.Graph()
    graph.add_nodes_from(range(len(place)))
    graph.add_edges_from(
        (place[end], place[other]) for end, others in mesh.neighbours.items() for other in others
    )
    is_planar, embedding = networkx.check_planarity(graph)
    if is_planar and len(place) > 3:
        drawn = networkx.combinatorial_embedding_to_pos(embedding)
        yield numpy.array([drawn[k] for k in range(len(place))], dtype=numpy.float64)
    turns = 2 * math.pi * numpy.arange(len(place)) / len(place)
    yield numpy.stack([numpy.cos(turns), numpy.sin(turns)], axis=1) * len(place) / 4


def _minimize_stress(start: Array, lengths: Array) -> Array:
    """Majorize until it stands still."""
    count = len(start)
    if count < 2:
        return start
    with numpy.errstate(divide="ignore"):
        weights = numpy.where(lengths > 0, lengths**-2.0, 0.0)
    laplacian = numpy.diag(weights.sum(axis=1)) - weights
    inverse = numpy.linalg.pinv(laplacian)
    points: Array = start * (lengths.mean() / max(_pairwise(start).mean(), 1e-9))
    for _ in range(ITERATIONS):
        apart = _pairwise(points)
        with numpy.errstate(divide="ignore", invalid="ignore"):
            pull = numpy.where(apart > 1e-9, weights * lengths / apart, 0.0)
        moved: Array = inverse @ ((numpy.diag(pull.sum(axis=1)) - pull) @ points)
        step = float(numpy.abs(moved - points).max())
        points = moved
        if step < 1e-5:
            break
    return points


def _pairwise(points: Array) -> Array:
    difference = points[:, None, :] - points[None, :, :]
    apart: Array = numpy.sqrt((difference**2).sum(axis=2))
    return apart


def _rotate(mesh: Mesh, points: Array) -> Array:
    """Most wires level or upright, wider than high, the first tensor top left."""
    place = {end: k for k, end in enumerate(mesh.vertices)}
    points = points - points.mean(axis=0)
    total = 0j
    for end, others in mesh.neighbours.items():
        for other in others:
            dx, dy = points[place[other]] - points[place[end]]
            total += cmath.exp(4j * math.atan2(dy, dx))
    turn = -cmath.phase(total) / 4 if abs(total) > 1e-6 else 0.0
    rotation = numpy.array([[math.cos(turn), math.sin(turn)], [-math.sin(turn), math.cos(turn)]])
    points = numpy.matmul(points, rotation)
    width, height = numpy.ptp(points, axis=0)
    if height > 1.05 * width:
        points = points[:, ::-1] * numpy.array([1.0, -1.0])
    for axis in (0, 1):
        if points[0, axis] > points[len(mesh.wiring.diagram.nodes) - 1, axis] + 1e-6:
            points[:, axis] *= -1
    return points


def _scale(mesh: Mesh, points: Array) -> Array:
    """Bonds as long as they should be, and no two vertices too near."""
    place = {end: k for k, end in enumerate(mesh.vertices)}
    stretched = [
        float(numpy.linalg.norm(points[place[end]] - points[place[other]])) / _bond(end, other)
        for end, others in mesh.neighbours.items()
        for other in others
    ]
    if not stretched:
        return points
    factor = max(1 / float(numpy.median(stretched)), CLOSEST / max(_closest(points), 1e-6))
    return points * factor * (1 + (mesh.excess + mesh.label_excess) / BOND)


def _closest(points: Array) -> float:
    apart = _pairwise(points)
    numpy.fill_diagonal(apart, math.inf)
    return float(apart.min()) if len(points) > 1 else math.inf


# --- Rings and stars: shapes that a row would hide ------------------------------------------------


SIDE = 1.61
FEWEST_ARMS, FEWEST_TENSORS = 5, 3
RING_ARM, ARM_FROM_DOT, LEAST_APART = 1.3, 1.15, 1.05
TOP = -math.pi / 2


def place_ring(mesh: Mesh, legs: Mapping[str, Side]) -> Placement | None:
    """A closed chain of plain bonds as a regular polygon, the first tensor on top."""
    order = _around(mesh)
    if order is None:
        return None
    radius = (SIDE + mesh.excess + mesh.label_excess) / 2 / math.sin(math.pi / len(order))
    turns = {end: TOP + 2 * math.pi * k / len(order) for k, end in enumerate(order)}
    at = {end: (radius * math.cos(turn), radius * math.sin(turn)) for end, turn in turns.items()}
    return free_placement(mesh, at, turns, legs)


def _around(mesh: Mesh) -> list[End] | None:
    if (
        len(mesh.vertices) < 3
        or any(isinstance(end, Dot) or len(mesh.neighbours[end]) != 2 for end in mesh.vertices)
        or not mesh.has_only_single_bonds
    ):
        return None
    order = [mesh.vertices[0]]
    # The neighbour declared first comes next, so that names run clockwise.
    steps = [min(mesh.neighbours[order[0]], key=mesh.vertices.index)]
    while steps:
        order.append(steps[0])
        steps = [end for end in mesh.neighbours[order[-1]] if end not in order[-2:-1]]
        steps = [end for end in steps if end != order[0]]
    return order if len(order) == len(mesh.vertices) else None


def place_star(mesh: Mesh, legs: Mapping[str, Side]) -> Placement | None:
    """Five or more arms around one tensor or dot, evenly spread, the first one on top."""
    centre = max(mesh.vertices, key=lambda end: len(mesh.neighbours[end]))
    arms: list[End] = [*mesh.neighbours[centre], *mesh.loose[centre]]
    is_star = all(len(mesh.neighbours[end]) == 1 for end in mesh.vertices if end != centre)
    is_one_tensor = len(mesh.vertices) == 1
    if not is_one_tensor and len(mesh.neighbours[centre]) < FEWEST_TENSORS:
        return None
    if len(arms) < FEWEST_ARMS or not is_star or not mesh.has_only_single_bonds:
        return None
    length = (
        (ARM_FROM_DOT if isinstance(centre, Dot) else RING_ARM) + mesh.excess + mesh.label_excess
    )
    apart = LEAST_APART + mesh.excess
    radius = max(length, apart / 2 / math.sin(math.pi / len(arms)))
    turns = {end: TOP + 2 * math.pi * k / len(arms) for k, end in enumerate(arms)}
    at: dict[End, tuple[float, float]] = {
        end: (radius * math.cos(turn), radius * math.sin(turn))
        for end, turn in turns.items()
        if end in mesh.neighbours
    }
    at[centre] = (0.0, 0.0)
    ordered = {end: at[end] for end in mesh.vertices}
    return free_placement(mesh, ordered, turns, legs)
