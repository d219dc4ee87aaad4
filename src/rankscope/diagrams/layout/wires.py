"""The wires of a diagram, derived from its indices: which end is joined to which.

Inside one region an index may have any number of ends: axes of tensors, inner regions it comes
out of, and the way out. Two ends are a plain wire; three or more meet in a dot; a single one
that goes nowhere is a sum, closed by a dot. So a hyperedge that lives on both sides of a
barrier gets one dot on each side, and crosses the barrier exactly once.
"""

from dataclasses import dataclass
from functools import cached_property

from rankscope.diagrams.diagram import Diagram


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
        found = []
        for index, first, second in pieces:
            pair = (second, first) if (second, first) in seen else (first, second)
            ordinal = seen[pair] = seen.get(pair, -1) + 1
            found.append(Segment(index, first, second, ordinal))
        return tuple(found)

    @cached_property
    def dots(self) -> dict[Dot, tuple[End, ...]]:
        """Each dot, and the other ends of its arms; a dot with one arm closes a summed leg."""
        found: dict[Dot, list[End]] = {}
        for segment in self.segments:
            for end in segment.ends:
                if isinstance(end, Dot):
                    found.setdefault(end, []).append(segment.other(end))
        return {dot: tuple(arms) for dot, arms in found.items()}

    @cached_property
    def at(self) -> dict[End, tuple[Segment, ...]]:
        """The segments at each end; a loop is listed once."""
        found: dict[End, list[Segment]] = {}
        for segment in self.segments:
            for end in dict.fromkeys(segment.ends):
                found.setdefault(end, []).append(segment)
        return {end: tuple(segments) for end, segments in found.items()}

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
        found: list[str | None] = [self.region_of(end)]
        while found[-1] is not None:
            found.append(self._parent[found[-1]])
        return tuple(found)

    def common_region(self, segment: Segment) -> str | None:
        """The innermost region that holds both ends."""
        around = self.regions_around(segment.second)
        return next(region for region in self.regions_around(segment.first) if region in around)

    def is_crossing(self, segment: Segment, region: str) -> bool:
        """Whether exactly one end is inside a region."""
        inside = [region in self.regions_around(end) for end in segment.ends]
        return inside[0] != inside[1]

    @cached_property
    def _held(self) -> dict[tuple[str, str | None], list[End]]:
        """Axes by index and the region that directly holds their tensor."""
        found: dict[tuple[str, str | None], list[End]] = {}
        for part in self.diagram.holders:
            for index in part.indices:
                found.setdefault((index, self._parent[part.name]), []).append(NodeEnd(part.name))
        return found

    @cached_property
    def _regions_with(self) -> dict[str, tuple[str, ...]]:
        """The regions (at any depth) that hold each index, in order of declaration."""
        holding: dict[tuple[str, str], None] = {}
        for index, region in self._held:
            around = region
            while around is not None:
                holding[(index, around)] = None
                around = self._parent[around]
        found: dict[str, list[str]] = {}
        for region in self.diagram.region_by_name:
            for index in self.diagram.index_by_name:
                if (index, region) in holding:
                    found.setdefault(index, []).append(region)
        return {index: tuple(regions) for index, regions in found.items()}

    def _pieces(self, index: str) -> list[tuple[str, End, End]]:
        pieces: list[tuple[str, End, End]] = []
        used = len(self.diagram.structure.owners.get(index, ())) + (index in self.diagram.output)

        def gather(region: str | None) -> tuple[list[End], int]:
            """Ends inside a region, and how many axes they stand for."""
            ends = list(self._held.get((index, region), []))
            axes = len(ends)
            for inner in self._regions_with.get(index, ()):
                if self._parent[inner] == region:
                    inner_ends, inner_axes = gather(inner)
                    axes += inner_axes
                    ends += close(inner, inner_ends, is_leaving=inner_axes < used)
            return ends, axes

        def close(region: str | None, ends: list[End], *, is_leaving: bool) -> list[End]:
            """Join ends; returns the one that goes on outside, if the index does."""
            if len(ends) + is_leaving == 2:
                if is_leaving:
                    return ends
                pieces.append((index, ends[0], ends[1]))
            elif ends:
                dot = Dot(index, region)
                pieces.extend((index, end, dot) for end in ends)
                return [dot] if is_leaving else []
            return []

        ends, _ = gather(None)
        is_open = index in self.diagram.output
        going_on = close(None, ends, is_leaving=is_open)
        pieces.extend((index, end, Tip(index)) for end in going_on)
        return pieces
