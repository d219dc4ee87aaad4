"""Which tensors stand on which row, in which order and column.

A row is one stage: what a region contracts once its inner regions are finished. Stages come
from top to bottom in the order of evaluation; inner regions that do not depend on each other
stand side by side. A chain with barriers in it may also stand on a single row.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, product

from rankscope.diagrams.layout.columns import Want, align
from rankscope.diagrams.layout.placement import Side
from rankscope.diagrams.layout.spine import components, links_among, longest_path
from rankscope.diagrams.layout.wires import Dot, NodeEnd, Tip, Wiring

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
    path = _oriented(wiring, longest_path(wiring, members, links))
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
            inner = _moved(inner, start - min(row.columns[0] for row in inner))
        rows += inner
    body = [name for name in members if name in diagram.node_by_name]
    convolutions = [name for name in members if name in diagram.convolution_by_name]
    if body or convolutions:
        rows.append(_row(wiring, body or convolutions, (*body, *convolutions), rows))
    return rows


def _moved(rows: list[Row], distance: int) -> list[Row]:
    return [replace(row, columns=tuple(c + distance for c in row.columns)) for row in rows]


def _row(wiring: Wiring, body: Sequence[str], members: tuple[str, ...], above: list[Row]) -> Row:
    """A stage under the rows it depends on, lined up with them."""
    links = links_among(wiring, body)
    column_of = {
        name: column for row in above for name, column in zip(row.nodes, row.columns, strict=True)
    }
    paths = [_oriented(wiring, longest_path(wiring, group, links)) for group in components(links)]
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
    found: list[Want] = []
    for segment in wiring.at.get(NodeEnd(name), ()):
        other = segment.other(NodeEnd(name))
        if isinstance(other, NodeEnd) and other.name in column_of:
            found.append((column_of[other.name], 1.0))
        elif isinstance(other, Dot):
            owners = dict.fromkeys(wiring.diagram.structure.owners[segment.index])
            columns = [column_of[owner] for owner in owners if owner in column_of]
            found += [(column, HYPEREDGE_PULL / len(columns)) for column in columns]
    return found


def _mean_want(wants: list[Want]) -> float:
    total = sum(weight for _, weight in wants)
    return sum(column * weight for column, weight in wants) / total if total else 0.0


def _oriented(wiring: Wiring, path: list[str]) -> list[str]:
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
