"""The rows of a layout: the order and the column of every tensor.

A row is one stage: what a region contracts once its inner regions are finished. Stages come
from top to bottom in the order of evaluation; inner regions that do not depend on each other
stand side by side. A chain with barriers in it may also stand on a single row.
"""

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, product

from rankscope.diagrams.diagram import Diagram
from rankscope.diagrams.parts import IndexKind
from rankscope.drawing.layout.placement import Dot, NodeEnd, Side, Tip, Wiring

# --- Columns: whole numbers first, so that rows line up, then widths that fit every row -----------


# What it costs to leave a column empty, and to stand outside the columns of other rows.
STRETCH, OUTSIDE = 0.25, 0.2
CLOSEST = 0.6  # neighbouring columns that no row shares are at least this far apart

Want = tuple[int, float]  # a column, and how much it matters


def align(
    wants: Sequence[Sequence[Want]], taken: tuple[int, int] | None
) -> tuple[float, tuple[int, ...]]:
    """Increasing columns for a row, as near as can be to what each place wants; and the cost.

    Example:
        >>> align([[], [], [(3, 1.0)]], (0, 3))[1]
        (1, 2, 3)
    """
    count = len(wants)
    if taken is None or count == 0:
        return 0.0, tuple(range(count))
    low, high = taken[0] - count, taken[1] + count
    columns = range(low, high + 1)
    # cost[c]: cheapest way to put the places so far, the last of them on column c.
    cost = [0.0] * len(columns)
    choices: list[list[int]] = []
    for place, wanted in enumerate(wants):
        before, chosen = _cheapest_before(cost, is_first=place == 0)
        choices.append(chosen)
        cost = [
            arrived + _distance_penalty(column, wanted, taken)
            for arrived, column in zip(before, columns, strict=True)
        ]
    last = min(range(len(columns)), key=lambda place: cost[place])
    places = [last]
    for chosen in reversed(choices[1:]):
        places.append(chosen[places[-1]])
    return cost[last], tuple(columns[place] for place in reversed(places))


def _cheapest_before(cost: list[float], *, is_first: bool) -> tuple[list[float], list[int]]:
    """The best column to the left of every column, and the cost of it."""
    if is_first:
        return cost, [-1] * len(cost)
    arrived, chosen = [math.inf], [-1]
    for place in range(1, len(cost)):
        stay, step = arrived[-1] + STRETCH, cost[place - 1]
        arrived.append(min(stay, step))
        chosen.append(place - 1 if step <= stay else chosen[-1])
    return arrived, chosen


def _distance_penalty(column: int, wanted: Sequence[Want], taken: tuple[int, int]) -> float:
    outside = max(taken[0] - column, column - taken[1], 0)
    return OUTSIDE * outside + sum(weight * abs(column - want) for want, weight in wanted)


def solve(rows: Sequence[tuple[Sequence[int], Sequence[float]]]) -> dict[int, float]:
    """Positions of columns such that neighbours in every row are as far apart as they need.

    Args:
        rows: for each row its columns, and the distance wanted between each and the next.

    Example:
        >>> solve([((0, 1, 2), (1.0, 1.0)), ((0, 2), (3.0,))])
        {0: 0.0, 1: 1.0, 2: 3.0}
    """
    needs: dict[int, list[tuple[int, float]]] = {}
    for columns, distances in rows:
        for column in columns:
            needs.setdefault(column, [])
        for before, column, distance in zip(columns, columns[1:], distances, strict=False):
            needs[column].append((before, distance))
    at: dict[int, float] = {}
    for column in sorted(needs):
        nearest = [max(at.values()) + CLOSEST] if at else [0.0]
        at[column] = max([*nearest, *(at[before] + need for before, need in needs[column])])
    return at


# --- The spine of a stage: its longest chain of tensors, which becomes a straight row -------------


HYPEREDGE_WEIGHT = 0.9  # a chain through plain contractions is worth more
EXHAUSTIVE_LIMIT = 12
MAX_STEPS = 20_000


@dataclass(frozen=True)
class Link:
    """Two tensors that may be neighbours on a spine, and the index between them."""

    index: str
    weight: float


Links = dict[str, dict[str, Link]]


def links_among(wiring: Wiring, names: Sequence[str]) -> Links:
    """The tensors that each tensor shares an index with, in the order of `names`."""
    diagram = wiring.diagram
    rank = {name: place for place, name in enumerate(names)}
    links: Links = {name: {} for name in names}
    for index, owners in _shared_indices(diagram, rank):
        here = [name for name in dict.fromkeys(owners) if name in rank]
        is_plain = len(owners) == 2 and index not in diagram.output
        link = Link(index, 1.0 if is_plain else HYPEREDGE_WEIGHT)
        for first in here:
            for second in here:
                if first != second:
                    known = links[first].get(second)
                    if known is None or known.weight < link.weight:
                        links[first][second] = link
    return {
        name: dict(sorted(others.items(), key=lambda item: rank[item[0]]))
        for name, others in links.items()
    }


def _shared_indices(
    diagram: Diagram, names: Mapping[str, int]
) -> list[tuple[str, tuple[str, ...]]]:
    """Indices on at least two of the tensors; an open batch index only if there is no other.

    A batch index is on all data: a chain that runs through it would tear the rest apart.
    """
    shared = [
        (index, owners)
        for index, owners in diagram.structure.owners.items()
        if len({name for name in owners if name in names}) > 1
    ]
    others = [
        (index, owners)
        for index, owners in shared
        if diagram.index_by_name[index].kind is not IndexKind.BATCH or index not in diagram.output
    ]
    return others or shared


def components(links: Links) -> list[list[str]]:
    """Groups of tensors that hang together, each in order of declaration."""
    seen: dict[str, int] = {}
    for start in links:
        if start in seen:
            continue
        group, waiting = len(seen), deque([start])
        seen[start] = group
        while waiting:
            for name in links[waiting.popleft()]:
                if name not in seen:
                    seen[name] = group
                    waiting.append(name)
    groups: dict[int, list[str]] = {}
    for name in links:
        groups.setdefault(seen[name], []).append(name)
    return list(groups.values())


def longest_path(wiring: Wiring, names: Sequence[str], links: Links) -> list[str]:
    """The heaviest simple path that uses no index twice.

    Between equals: ends with open legs, then the path that was declared first. Up to 12
    tensors the search is exhaustive (with a limit on steps); beyond, the two farthest tensors
    are joined, which is exact on trees.
    """
    if not names:
        return []
    if len(names) > EXHAUSTIVE_LIMIT:
        return _farthest(names, links)
    return _Search(wiring, names, links).run()


class _Search:
    """Depth first in order of declaration, so that the first of equals is found first."""

    def __init__(self, wiring: Wiring, names: Sequence[str], links: Links) -> None:
        diagram = wiring.diagram
        self.names, self.links = names, links
        self.is_open = {
            name: any(
                index in diagram.output
                for index in getattr(diagram.node_by_name.get(name), "indices", ())
            )
            for name in names
        }
        self.best: list[str] = []
        self.value = (-1.0, -1)
        self.steps = 0

    def run(self) -> list[str]:
        for start in self.names:
            self._extend([start], (), 0.0)
        return self.best

    def _extend(self, path: list[str], used: tuple[str, ...], weight: float) -> None:
        self.steps += 1
        num_open_ends = int(self.is_open[path[0]]) + int(self.is_open[path[-1]])
        value = (round(weight, 3), num_open_ends)
        if value > self.value:
            self.best, self.value = list(path), value
        most = round(weight + len(self.names) - len(path), 3)
        if (most, 2) <= self.value or self.steps > MAX_STEPS:
            return
        for name, link in self.links[path[-1]].items():
            if name not in path and link.index not in used:
                self._extend([*path, name], (*used, link.index), weight + link.weight)


def _farthest(names: Sequence[str], links: Links) -> list[str]:
    end = _path_to_farthest(names[0], links)[-1]
    path = _path_to_farthest(end, links)
    return path if names.index(path[0]) < names.index(path[-1]) else path[::-1]


def _path_to_farthest(start: str, links: Links) -> list[str]:
    previous: dict[str, str | None] = {start: None}
    waiting = deque([start])
    while waiting:
        name = waiting.popleft()
        for other in links[name]:
            if other not in previous:
                previous[other] = name
                waiting.append(other)
    # Breadth first, so the name found last is farthest.
    path: list[str] = []
    step: str | None = next(reversed(previous))
    while step is not None:
        path.append(step)
        step = previous[step]
    return path[::-1]


HYPEREDGE_PULL = 0.3
MAX_TURNED = 4  # with more chains on a row, not every combination of directions is tried


@dataclass(frozen=True)
class Row:
    """Tensors from left to right.

    Args:
        band: rows of one band have the same height; 0 is on top.
        nodes: what stands on the row.
        links: the index that joins each tensor to the next, or None.
        columns: one whole number each, increasing.
        members: everything that belongs to the row, also what hangs off it.
    """

    band: int
    nodes: tuple[str, ...]
    links: tuple[str | None, ...]
    columns: tuple[int, ...]
    members: tuple[str, ...]


def folded_rows(wiring: Wiring) -> list[Row]:
    """One row per stage."""
    blocks: dict[str | None, list[Row]] = {}
    for region in wiring.diagram.structure.evaluation_order:
        blocks[region] = _block(wiring, region, blocks)
    return blocks[None]


def inline_row(wiring: Wiring) -> list[Row] | None:
    """Everything on one row, if barriers then cut the chain into contiguous pieces."""
    members = [part.name for part in wiring.diagram.nodes]
    links = links_among(wiring, members)
    if len(components(links)) != 1:
        return None
    path = _orient(wiring, longest_path(wiring, members, links))
    if not _is_cut_by_barriers(wiring, path):
        return None
    joined = tuple(links[a][b].index for a, b in pairwise(path))
    everything = tuple(part.name for part in wiring.diagram.holders)
    return [Row(0, tuple(path), joined, tuple(range(len(path))), everything)]


def row_between_lanes(wiring: Wiring) -> tuple[list[Row], dict[Dot, Side]] | None:
    """All tensors on one row, hyperedges in lanes above and below it by turns.

    For products where every shared index is a hyperedge, and there are several of them.
    """
    owners = wiring.diagram.structure.owners.values()
    names = tuple(part.name for part in wiring.diagram.nodes)
    shared = [dot for dot, arms in wiring.dots.items() if len({*arms} - {Tip(dot.index)}) > 1]
    num_plain = sum(1 for segment in wiring.segments if isinstance(segment.second, NodeEnd))
    if len(names) < 3 or len(shared) < 2 or num_plain or len(names) > max(map(len, owners)):
        return None
    row = Row(0, names, (None,) * (len(names) - 1), tuple(range(len(names))), names)
    sides = (Side.UP, Side.DOWN)
    return [row], {dot: sides[place % 2] for place, dot in enumerate(shared)}


def _is_cut_by_barriers(wiring: Wiring, path: list[str]) -> bool:
    place = {name: position for position, name in enumerate(path)}
    for convolution in wiring.diagram.convolutions:
        # It stands over the owner of its kernel, so its wires to the next one run along a lane.
        owners = wiring.diagram.structure.owners[convolution.kernel]
        owner = next(name for name in owners if name != convolution.name)
        if owner in place:
            place[convolution.name] = place[owner]
    structure = wiring.diagram.structure
    for region in wiring.diagram.region_by_name:
        inside = [place[name] for name in structure.nodes_inside[region] if name in place]
        if not inside or max(inside) - min(inside) != len(inside) - 1:
            return False
        for segment in wiring.segments:
            if wiring.is_crossing(segment, region) and not _follows(segment.ends, place):
                return False
    return True


def _follows(ends: tuple[object, object], place: dict[str, int]) -> bool:
    """Whether a wire is open, or joins neighbours on the row."""
    first, second = ends
    if isinstance(first, Tip) or isinstance(second, Tip):
        return True
    match first, second:
        case NodeEnd(name=a), NodeEnd(name=b) if a in place and b in place:
            return abs(place[a] - place[b]) == 1
        case _:
            return False


def _block(wiring: Wiring, region: str | None, blocks: Mapping[str | None, list[Row]]) -> list[Row]:
    """The rows of a region, given those of its inner regions."""
    diagram = wiring.diagram
    rows: list[Row] = []
    members = diagram.structure.members[region]
    for inner in (blocks[member] for member in members if member in diagram.region_by_name):
        if rows and inner:
            start = max(row.columns[-1] for row in rows) + 1
            inner = _shift_rows(inner, start - min(row.columns[0] for row in inner))
        rows += inner
    body = [name for name in members if name in diagram.node_by_name]
    convolutions = [name for name in members if name in diagram.convolution_by_name]
    if body or convolutions:
        rows.append(_row(wiring, body or convolutions, (*body, *convolutions), rows))
    return rows


def _shift_rows(rows: list[Row], distance: int) -> list[Row]:
    return [replace(row, columns=tuple(c + distance for c in row.columns)) for row in rows]


def _row(wiring: Wiring, body: Sequence[str], members: tuple[str, ...], above: list[Row]) -> Row:
    """A stage under the rows it depends on, lined up with them."""
    links = links_among(wiring, body)
    column_of = {
        name: column for row in above for name, column in zip(row.nodes, row.columns, strict=True)
    }
    paths = [_orient(wiring, longest_path(wiring, group, links)) for group in components(links)]
    wants = {name: _wants(wiring, name, column_of) for path in paths for name in path}
    paths.sort(key=lambda path: _mean_want([want for name in path for want in wants[name]]))
    taken = (min(column_of.values()), max(column_of.values())) if column_of else None
    best: tuple[float, tuple[int, ...], list[str]] | None = None
    for turned in _turnings(paths):
        order = [name for path in turned for name in path]
        cost, columns = align([wants[name] for name in order], taken)
        if best is None or cost < best[0] - 1e-9:
            best = (cost, columns, order)
    assert best is not None
    order = best[2]
    joined = tuple(links[a][b].index if b in links[a] else None for a, b in pairwise(order))
    band = max((row.band for row in above), default=-1) + 1
    return Row(band, tuple(order), joined, best[1], members)


def _turnings(paths: list[list[str]]) -> list[list[list[str]]]:
    """The chains as they are, then with some of them turned around."""
    if len(paths) > MAX_TURNED:
        return [paths]
    ways = product(*([path, path[::-1]] if len(path) > 1 else [path] for path in paths))
    return [list(way) for way in ways]


def _wants(wiring: Wiring, name: str, column_of: dict[str, int]) -> list[Want]:
    """Columns a tensor should stand in: straight below what it is wired to."""
    wants: list[Want] = []
    for segment in wiring.at.get(NodeEnd(name), ()):
        other = segment.other(NodeEnd(name))
        if isinstance(other, NodeEnd) and other.name in column_of:
            wants.append((column_of[other.name], 1.0))
        elif isinstance(other, Dot):
            owners = dict.fromkeys(wiring.diagram.structure.owners[segment.index])
            columns = [column_of[owner] for owner in owners if owner in column_of]
            wants += [(column, HYPEREDGE_PULL / len(columns)) for column in columns]
    return wants


def _mean_want(wants: list[Want]) -> float:
    total = sum(weight for _, weight in wants)
    return sum(column * weight for column, weight in wants) / total if total else 0.0


def _orient(wiring: Wiring, path: list[str]) -> list[str]:
    """The owner of an open leg goes left; if both ends own one, the one declared first."""
    diagram = wiring.diagram
    names = [part.name for part in diagram.holders]
    open_ends = [
        any(
            isinstance(end, Tip)
            for segment in wiring.at.get(NodeEnd(name), ())
            for end in segment.ends
        )
        for name in (path[0], path[-1])
    ]
    is_late = names.index(path[0]) > names.index(path[-1])
    if (open_ends[1] and not open_ends[0]) or (open_ends[0] == open_ends[1] and is_late):
        return path[::-1]
    return path
