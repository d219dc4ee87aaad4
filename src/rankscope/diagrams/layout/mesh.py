"""The bare graph of a diagram without barriers: what is joined to what, and what is loose."""

import math
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

from rankscope.diagrams.layout.placement import PLAIN_VIEW, Placement, Side, View
from rankscope.diagrams.layout.tensors import DIAMETER, UNIT, WIRE_FONT, diameter
from rankscope.diagrams.layout.wires import Dot, End, NodeEnd, Segment, Tip, Wiring
from rankscope.diagrams.layout.wording import index_text
from rankscope.diagrams.pictures.mathtext import text_width
from rankscope.diagrams.pictures.scene import Point

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
        found, waiting = {start: 0}, deque([start])
        while waiting:
            end = waiting.popleft()
            for other in self.neighbours[end]:
                if other not in found:
                    found[other] = found[end] + 1
                    waiting.append(other)
        return found

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

    Loose ends of the others go where most room is, away from the middle.
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
    tips = _aligned(tips, {index: at[end] for end in mesh.vertices for index in _tips(mesh, end)})
    return Placement(nodes, dots, tips, straight=tuple(mesh.wiring.diagram.structure.owners))


def _tips(mesh: Mesh, end: End) -> Iterator[str]:
    for other in mesh.loose[end]:
        if isinstance(other, Tip | Dot) and other.index in mesh.wiring.diagram.output:
            yield other.index


def _aligned(tips: Mapping[str, Point], owners: Mapping[str, Point]) -> dict[str, Point]:
    """Level legs to one side that nearly share an x share it: the outermost."""
    found = dict(tips)
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
            found[index] = (edge, y)
    return found


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
    found: list[float] = []
    for _ in range(count):
        best = max(CHOICES, key=lambda angle: _room(angle, [*taken, *found], outward))
        found.append(best)
    return found


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
