"""Placements as plain data: the result of layout, and the input of rendering.

Positions are in grid units (96 px), y pointing down. A placement holds no wires: those are
routed from the positions every time, so that a moved tensor takes its wires along.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from typing import Any

from rankscope.diagrams.diagram import Diagram
from rankscope.drawing.scene import Point
from rankscope.errors import LayoutError

VERSION = 1
KEYS = ("version", "nodes", "dots", "tips", "plates", "straight", "label_sides")


class Side(StrEnum):
    """Where a leg points, or on which side of its wire a label stands."""

    LEFT = "left"
    RIGHT = "right"
    UP = "up"
    DOWN = "down"

    @property
    def vector(self) -> Point:
        """Unit step in that direction."""
        return VECTORS[self]

    @property
    def is_vertical(self) -> bool:
        """Whether it points up or down."""
        return self in (Side.UP, Side.DOWN)


VECTORS: dict[Side, Point] = {
    Side.LEFT: (-1.0, 0.0),
    Side.RIGHT: (1.0, 0.0),
    Side.UP: (0.0, -1.0),
    Side.DOWN: (0.0, 1.0),
}


@dataclass(frozen=True)
class Hints:
    """Placements that the layout must honour.

    Args:
        positions: where nodes and convolutions stand, by name; the rest is placed around them.
        legs: which way open legs point, by index name.
        label_sides: on which side of its wire an index is written.
    """

    positions: Mapping[str, Point] = field(default_factory=dict)
    legs: Mapping[str, Side] = field(default_factory=dict)
    label_sides: Mapping[str, Side] = field(default_factory=dict)

    def check(self, diagram: Diagram) -> None:
        """Refuse hints about things that the diagram does not have.

        Raises:
            LayoutError: naming the first of them.
        """
        holders = [part.name for part in diagram.holders]
        for what, hinted, known in (
            ("positions", self.positions, holders),
            ("legs", self.legs, diagram.output),
            ("label_sides", self.label_sides, tuple(diagram.index_by_name)),
        ):
            for name in hinted:
                if name not in known:
                    raise LayoutError(
                        f"Hints.{what} names {name!r}, which diagram {diagram.name!r} does not "
                        f"have; choose from: {', '.join(known) or 'none'}."
                    )
        for name, point in self.positions.items():
            if not all(math.isfinite(value) for value in point):
                raise LayoutError(f"Hints.positions[{name!r}] must be finite, got {point}.")


@dataclass(frozen=True)
class View:
    """What to show of a diagram.

    Args:
        show_sizes: write sizes on the wires ("F=768").
        width_by_size: wires of larger indices are thicker, 1.2 + 0.42 log2(size) px, at most 6.
        plate: a batch index of several tensors becomes a dotted frame instead of a wire.
        cut: names of indices to mark as cut.
    """

    show_sizes: bool = False
    width_by_size: bool = False
    plate: bool = True
    cut: tuple[str, ...] = ()


NO_HINTS = Hints()
PLAIN_VIEW = View()


@dataclass(frozen=True)
class Placement:
    """Positions of nodes and convolutions, of dots by (index, region), and of the tips of legs.

    Args:
        nodes: centres by name.
        dots: centres of junctions and of the ends of summed legs; a dot that is not listed
            stands at the mean of what it joins.
        tips: outer ends of open legs, by index.
        plates: indices drawn as a frame around everything.
        straight: indices whose wires run straight instead of along rows and columns.
        label_sides: sides that were asked for.
    """

    nodes: Mapping[str, Point]
    dots: Mapping[tuple[str, str | None], Point] = field(default_factory=dict)
    tips: Mapping[str, Point] = field(default_factory=dict)
    plates: tuple[str, ...] = ()
    straight: tuple[str, ...] = ()
    label_sides: Mapping[str, Side] = field(default_factory=dict)

    def shifted(self, dx: float, dy: float) -> "Placement":
        """Everything moved."""
        return Placement(
            {name: (x + dx, y + dy) for name, (x, y) in self.nodes.items()},
            {key: (x + dx, y + dy) for key, (x, y) in self.dots.items()},
            {name: (x + dx, y + dy) for name, (x, y) in self.tips.items()},
            self.plates,
            self.straight,
            self.label_sides,
        )

    def rounded(self) -> "Placement":
        """Positions to a thousandth of a unit: a tenth of a pixel, and short in a file."""

        def short(point: Point) -> Point:
            # Adding zero turns -0.0 into 0.0.
            return (round(point[0], 3) + 0.0, round(point[1], 3) + 0.0)

        return Placement(
            {name: short(point) for name, point in self.nodes.items()},
            {key: short(point) for key, point in self.dots.items()},
            {name: short(point) for name, point in self.tips.items()},
            self.plates,
            self.straight,
            self.label_sides,
        )

    def to_dict(self) -> dict[str, Any]:
        """The placement in types that JSON knows."""
        return {
            "version": VERSION,
            "nodes": {name: list(point) for name, point in self.nodes.items()},
            "dots": [
                {"index": index, "region": region, "at": list(point)}
                for (index, region), point in self.dots.items()
            ],
            "tips": {name: list(point) for name, point in self.tips.items()},
            "plates": list(self.plates),
            "straight": list(self.straight),
            "label_sides": {name: side.value for name, side in self.label_sides.items()},
        }

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> "Placement":
        """Read what `to_dict` wrote.

        Raises:
            LayoutError: if it is not that; the message says where.
        """
        if saved.get("version") != VERSION:
            raise LayoutError(
                f"A saved placement must have version {VERSION}, got {saved.get('version')!r}."
            )
        unknown = [key for key in saved if key not in KEYS]
        if unknown:
            raise LayoutError(
                f"A saved placement has the keys {', '.join(KEYS)}; got also {unknown[0]!r}."
            )
        try:
            return cls(
                {name: _point(name, point) for name, point in saved["nodes"].items()},
                {
                    (dot["index"], dot["region"]): _point(dot["index"], dot["at"])
                    for dot in saved["dots"]
                },
                {name: _point(name, point) for name, point in saved["tips"].items()},
                tuple(saved["plates"]),
                tuple(saved["straight"]),
                {name: Side(side) for name, side in saved["label_sides"].items()},
            )
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            if isinstance(error, LayoutError):
                raise
            raise LayoutError(f"A saved placement cannot be read: {error!r}.") from error


def _point(name: str, value: Any) -> Point:
    x, y = value
    if not all(isinstance(v, int | float) and math.isfinite(v) for v in (x, y)):
        raise LayoutError(f"The saved position of {name!r} must be two numbers, got {value!r}.")
    return (float(x), float(y))


# --- The wires of a diagram, derived from its indices: which end is joined to which ---------------


@dataclass(frozen=True)
class NodeEnd:
    """An axis of a node, or a leg of a convolution."""

    name: str


@dataclass(frozen=True)
class Dot:
    """Where ends of one index meet inside one region (None is the outermost)."""

    index: str
    region: str | None


@dataclass(frozen=True)
class Tip:
    """The outer end of an open leg."""

    index: str


End = NodeEnd | Dot | Tip


@dataclass(frozen=True)
class Segment:
    """One drawn piece of wire. `ordinal` tells pieces apart that join the same two ends."""

    index: str
    first: End
    second: End
    ordinal: int = 0

    @property
    def ends(self) -> tuple[End, End]:
        """Both ends."""
        return (self.first, self.second)

    def other(self, end: End) -> End:
        """The end across."""
        return self.second if end == self.first else self.first


class Wiring:
    """All segments of one diagram.

    Example:
        >>> from rankscope.diagrams.parts import Index, Node
        >>> nodes = (Node("A", ("i", "r")), Node("B", ("j", "r")), Node("C", ("k", "r")))
        >>> product = Diagram("cp", tuple(map(Index, "ijkr")), nodes, ("i", "j", "k"))
        >>> [segment.first.name for segment in Wiring(product).segments if segment.index == "r"]
        ['A', 'B', 'C']
        >>> Wiring(product).dots
        {Dot(index='r', region=None): (NodeEnd(name='A'), NodeEnd(name='B'), NodeEnd(name='C'))}
    """

    def __init__(self, diagram: Diagram) -> None:
        self.diagram = diagram
        self._parent = diagram.structure.parent

    @cached_property
    def segments(self) -> tuple[Segment, ...]:
        """Pieces of wire, index by index in order of declaration."""
        pieces: list[tuple[str, End, End]] = []
        for index in self.diagram.index_by_name:
            pieces += self._pieces(index)
        seen: dict[tuple[End, End], int] = {}
        segments = []
        for index, first, second in pieces:
            pair = (second, first) if (second, first) in seen else (first, second)
            ordinal = seen[pair] = seen.get(pair, -1) + 1
            segments.append(Segment(index, first, second, ordinal))
        return tuple(segments)

    @cached_property
    def dots(self) -> dict[Dot, tuple[End, ...]]:
        """Each dot, and the other ends of its arms; a dot with one arm closes a summed leg."""
        arms_of: dict[Dot, list[End]] = {}
        for segment in self.segments:
            for end in segment.ends:
                if isinstance(end, Dot):
                    arms_of.setdefault(end, []).append(segment.other(end))
        return {dot: tuple(arms) for dot, arms in arms_of.items()}

    @cached_property
    def at(self) -> dict[End, tuple[Segment, ...]]:
        """The segments at each end; a loop is listed once."""
        segments_at: dict[End, list[Segment]] = {}
        for segment in self.segments:
            for end in dict.fromkeys(segment.ends):
                segments_at.setdefault(end, []).append(segment)
        return {end: tuple(segments) for end, segments in segments_at.items()}

    def region_of(self, end: End) -> str | None:
        """The innermost region that an end is in."""
        match end:
            case NodeEnd(name=name):
                return self._parent[name]
            case Dot(region=region):
                return region
            case Tip():
                return None

    def regions_around(self, end: End) -> tuple[str | None, ...]:
        """All regions that an end is in, innermost first, ending with None."""
        return tuple(self._around[self.region_of(end)])

    @cached_property
    def _around(self) -> dict[str | None, dict[str | None, None]]:
        """Every region with itself and those around it, innermost first."""
        enclosing: dict[str | None, dict[str | None, None]] = {None: {None: None}}
        for region in reversed(self.diagram.structure.evaluation_order):
            if region is not None:
                enclosing[region] = {region: None, **enclosing[self._parent[region]]}
        return enclosing

    def common_region(self, segment: Segment) -> str | None:
        """The innermost region that holds both ends."""
        around = self._around[self.region_of(segment.second)]
        return next(region for region in self.regions_around(segment.first) if region in around)

    def is_crossing(self, segment: Segment, region: str) -> bool:
        """Whether exactly one end is inside a region."""
        first, second = (self._around[self.region_of(end)] for end in segment.ends)
        return (region in first) != (region in second)

    @cached_property
    def _held(self) -> dict[tuple[str, str | None], list[End]]:
        """Axes by index and the region that directly holds their tensor."""
        held: dict[tuple[str, str | None], list[End]] = {}
        for part in self.diagram.holders:
            for index in part.indices:
                held.setdefault((index, self._parent[part.name]), []).append(NodeEnd(part.name))
        return held

    def _pieces(self, index: str) -> list[tuple[str, End, End]]:
        """Join the ends of an index region by region, inner ones first.

        Written without recursion: regions may nest deeper than Python recurses.
        """
        pieces: list[tuple[str, End, End]] = []
        owners = self.diagram.structure.owners.get(index, ())
        num_uses = len(owners) + (index in self.diagram.output)
        ends: dict[str | None, list[End]] = {}
        num_axes: dict[str | None, int] = {}
        for region in self._regions_with(owners):
            own = [*self._held.get((index, region), ()), *ends.get(region, ())]
            if not own:  # summed further in
                continue
            count = len(self._held.get((index, region), ())) + num_axes.get(region, 0)
            is_leaving = count < num_uses
            if len(own) == 2 and not is_leaving:
                pieces.append((index, own[0], own[1]))
            elif len(own) + is_leaving != 2:
                dot = Dot(index, region)
                pieces += [(index, end, dot) for end in own]
                own = [dot]
            if is_leaving and region is None:
                pieces.append((index, own[0], Tip(index)))
            elif is_leaving:
                outer = self._parent[region] if region is not None else None
                ends.setdefault(outer, []).extend(own)
                num_axes[outer] = num_axes.get(outer, 0) + count
        return pieces

    def _regions_with(self, owners: tuple[str, ...]) -> list[str | None]:
        """The regions (at any depth) that hold some tensors, inner ones first."""
        holding: dict[str | None, None] = {}
        for name in owners:
            holding |= self._around[self._parent[name]]
        if len(holding) == 1:
            return list(holding)
        return [region for region in self.diagram.structure.evaluation_order if region in holding]


# --- Pinned positions: what the user put somewhere stays there, the rest follows ------------------


NEAR = 1e-9


def pinned(wiring: Wiring, placement: Placement, positions: Mapping[str, Point]) -> Placement:
    """Move pinned tensors exactly, everything else by as much as they moved on average.

    Dots move with the mean of what they join, tips with their tensor.
    """
    if not positions:
        return placement
    steps = {
        name: (point[0] - placement.nodes[name][0], point[1] - placement.nodes[name][1])
        for name, point in positions.items()
    }
    usual = mean_point(list(steps.values()))
    moves: dict[End, Point] = {NodeEnd(name): steps.get(name, usual) for name in placement.nodes}
    for dot, arms in wiring.dots.items():
        moves[dot] = mean_point([moves[arm] for arm in arms if arm in moves] or [usual])
    nodes = {name: _move(point, moves[NodeEnd(name)]) for name, point in placement.nodes.items()}
    dots = {key: _move(point, moves[Dot(*key)]) for key, point in placement.dots.items()}
    tips = {}
    for index, point in placement.tips.items():
        owner = wiring.at[Tip(index)][0].other(Tip(index))
        tips[index] = _move(point, moves[owner])
    placed = replace(placement, nodes={**nodes, **positions}, dots=dots, tips=tips)
    return replace(placed, tips=_align_tips(placement, placed))


def _align_tips(before: Placement, after: Placement) -> dict[str, Point]:
    """Tips that shared a line to the left or right share one again: the outermost."""
    tips = dict(after.tips)
    for index, (x, _) in before.tips.items():
        line = [name for name, (other, _) in before.tips.items() if abs(other - x) < NEAR]
        xs = [after.tips[name][0] for name in line]
        middle = sum(point[0] for point in after.nodes.values()) / len(after.nodes)
        edge = min(xs) if x < middle else max(xs)
        owner_x = [point[0] for point in before.nodes.values()]
        if len(line) > 1 and not min(owner_x) < x < max(owner_x):
            tips[index] = (edge, tips[index][1])
    return tips


def mean_point(points: list[Point]) -> Point:
    """The centre of gravity of points."""
    return (
        sum(x for x, _ in points) / len(points),
        sum(y for _, y in points) / len(points),
    )


def _move(point: Point, step: Point) -> Point:
    return (point[0] + step[0], point[1] + step[1])
