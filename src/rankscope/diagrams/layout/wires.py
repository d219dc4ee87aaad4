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
        return tuple(self._around[self.region_of(end)])

    @cached_property
    def _around(self) -> dict[str | None, dict[str | None, None]]:
        """For every region itself and those around it, innermost first."""
        found: dict[str | None, dict[str | None, None]] = {None: {None: None}}
        for region in reversed(self.diagram.structure.evaluation_order):
            if region is not None:
                found[region] = {region: None, **found[self._parent[region]]}
        return found

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
        found: dict[tuple[str, str | None], list[End]] = {}
        for part in self.diagram.holders:
            for index in part.indices:
                found.setdefault((index, self._parent[part.name]), []).append(NodeEnd(part.name))
        return found

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
