"""The choice of a layout: rules for known shapes first, the best of several otherwise.

A candidate whose wires all run the simplest way is taken at once. Otherwise all are drawn and
checked, and the one with the fewest faults, crossings and detours wins; of equals, the first.
"""

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache

from rankscope.diagrams.diagram import Diagram
from rankscope.diagrams.parts import Convolution, IndexKind, Node
from rankscope.drawing.checks import crossings, lint
from rankscope.drawing.layout.mesh import (
    Mesh,
    free_placement,
    is_hierarchical,
    place_by_stress,
    place_ring,
    place_star,
    place_tree,
    plate_indices,
    without_indices,
)
from rankscope.drawing.layout.placement import (
    NO_HINTS,
    PLAIN_VIEW,
    Dot,
    End,
    Hints,
    Placement,
    Side,
    View,
    Wiring,
    pinned,
)
from rankscope.drawing.layout.render import place_wiring, render
from rankscope.drawing.layout.routing import LATER, Router, is_crowded
from rankscope.drawing.layout.rows import Row, folded_rows, inline_row, row_between_lanes
from rankscope.drawing.layout.sketch import GAP
from rankscope.drawing.layout.staged import place_rows
from rankscope.drawing.layout.tensors import UNIT, node_text
from rankscope.drawing.scene import Scene

# --- Diagrams that fall apart: each part is placed on its own, then they stand side by side -------


MAX_LEGS_ON_ROW = 2
BETWEEN = 44.0


def connected_parts(diagram: Diagram) -> list[Diagram]:
    """The connected parts, in order of declaration; small lone tensors share one part."""
    group = _groups(diagram)
    parts: dict[str, list[str]] = {}
    for holder in diagram.holders:
        parts.setdefault(group[holder.name], []).append(holder.name)
    lone = [names for names in parts.values() if _is_lone(diagram, names)]
    others = [names for names in parts.values() if not _is_lone(diagram, names)]
    merged = [*others, *([[name for names in lone for name in names]] if lone else [])]
    order = {holder.name: place for place, holder in enumerate(diagram.holders)}
    merged.sort(key=lambda names: order[names[0]])
    return [_restrict(diagram, names) for names in merged]


def _groups(diagram: Diagram) -> dict[str, str]:
    """Map every node and convolution to a representative of its connected part."""
    leader = {part.name: part.name for part in diagram.holders}

    def find(name: str) -> str:
        while leader[name] != name:
            name = leader[name]
        return name

    def join(names: tuple[str, ...]) -> None:
        for name in names[1:]:
            leader[find(name)] = find(names[0])

    for owners in diagram.structure.owners.values():
        join(owners)
    for region in diagram.region_by_name:
        structure = diagram.structure
        join((*structure.nodes_inside[region], *structure.convolutions_inside[region]))
    return {name: find(name) for name in leader}


def _is_lone(diagram: Diagram, names: list[str]) -> bool:
    node = diagram.node_by_name.get(names[0])
    if len(names) > 1 or node is None or diagram.structure.parent[names[0]] is not None:
        return False
    return len(node.indices) <= MAX_LEGS_ON_ROW


def _restrict(diagram: Diagram, names: list[str]) -> Diagram:
    nodes = tuple(node for node in diagram.nodes if node.name in names)
    convolutions = tuple(part for part in diagram.convolutions if part.name in names)
    parts: tuple[Node | Convolution, ...] = (*nodes, *convolutions)
    held = {index for part in parts for index in part.indices}
    structure = diagram.structure
    return replace(
        diagram,
        nodes=nodes,
        convolutions=convolutions,
        regions=tuple(
            region
            for region in diagram.regions
            if any(
                name in names
                for name in (
                    *structure.nodes_inside[region.name],
                    *structure.convolutions_inside[region.name],
                )
            )
        ),
        output=tuple(index for index in diagram.output if index in held),
    )


def side_by_side(parts: list[tuple[Diagram, Placement]], view: View) -> Placement:
    """All parts on one line, with space between their pictures."""
    if len(parts) == 1:
        return parts[0][1]
    moved: list[Placement] = []
    right = 0.0
    for diagram, placement in parts:
        left_edge, _, right_edge, _ = render(diagram, placement, replace(view, cut=())).box
        shift = right - left_edge if moved else 0.0
        moved.append(placement.shifted(shift / UNIT, 0.0))
        right = right_edge + shift + BETWEEN
    return Placement(
        {name: point for one in moved for name, point in one.nodes.items()},
        {key: point for one in moved for key, point in one.dots.items()},
        {name: point for one in moved for name, point in one.tips.items()},
        straight=tuple(index for one in moved for index in one.straight),
    )


# --- Rectangular grids (projected entangled pairs, ladders, sandwiches of trains) -----------------


DIAGONAL = 3 * math.pi / 4  # down and left, where no wire of a grid runs


def place_grid(mesh: Mesh, legs: Mapping[str, Side]) -> Placement | None:
    """Rows and columns, the first corner that was declared top left."""
    cells = _cells(mesh)
    if cells is None:
        return None
    step = GAP + mesh.excess + mesh.label_excess
    at = {end: (step * cells[end][1], step * cells[end][0]) for end in mesh.vertices}
    inner = [end for end in mesh.vertices if len(mesh.neighbours[end]) == 4 and mesh.loose[end]]
    angles = dict.fromkeys(mesh.vertices, DIAGONAL) if inner else {}
    return free_placement(mesh, at, angles, legs)


def _cells(mesh: Mesh) -> dict[End, tuple[int, int]] | None:
    """Row and column of every tensor, if the network is a grid at least two wide."""
    corners = [end for end in mesh.vertices if len(mesh.neighbours[end]) == 2]
    if (
        len(corners) != 4
        or any(isinstance(end, Dot) for end in mesh.vertices)
        or not mesh.is_connected
        or not mesh.has_only_single_bonds
    ):
        return None
    origin = corners[0]
    away = mesh.distances(origin)
    for other in corners[1:]:
        cells = _grid_cells(mesh, away, mesh.distances(other), away[other])
        if cells is not None:
            return cells
    return None


def _grid_cells(
    mesh: Mesh, away: dict[End, int], back: dict[End, int], width: int
) -> dict[End, tuple[int, int]] | None:
    """Cells from the distances to two corners of one side, checked wire by wire."""
    cells: dict[End, tuple[int, int]] = {}
    for end in mesh.vertices:
        twice_row = away[end] + back[end] - width
        if twice_row % 2:
            return None
        cells[end] = (twice_row // 2, away[end] - twice_row // 2)
    num_rows = max(row for row, _ in cells.values()) + 1
    num_columns = width + 1
    is_full = len({*cells.values()}) == len(cells) == num_rows * num_columns
    num_bonds = num_rows * (num_columns - 1) + num_columns * (num_rows - 1)
    is_local = all(
        abs(cells[end][0] - cells[other][0]) + abs(cells[end][1] - cells[other][1]) == 1
        for end, others in mesh.neighbours.items()
        for other in others
    )
    is_grid = is_full and is_local and mesh.num_edges == num_bonds
    return cells if is_grid and num_columns >= 2 and num_rows >= 2 else None


DIGIT = re.compile(r"\d")
FAULT_PENALTY, CROSSED = 1000.0, 40.0
MAX_INLINE, MAX_INLINE_TOWER = 5, 9
MAX_SWEEPS = 2
MAX_MOVES = 48
# Above so many wires there are fewer moves, by the third power: routing them all again takes long.
USUAL_WIRES = 30
MOST_TANGLED = 24  # ends of hyperedges that cross each other; with more, the first layout is taken
GOOD_ENOUGH = 2 * LATER  # two wires that take the second best way


def lay_out(diagram: Diagram, hints: Hints = NO_HINTS, view: View = PLAIN_VIEW) -> Scene:
    """Place a diagram and draw it.

    Raises:
        LayoutError: if a hint or `view.cut` names something that is not there.
    """
    return render(diagram, placed(diagram, hints, view), view)


def placed(diagram: Diagram, hints: Hints = NO_HINTS, view: View = PLAIN_VIEW) -> Placement:
    """As `place`, but a diagram that looks like an earlier one gets its placement.

    Raises:
        LayoutError: if a hint names something that is not there.
    """
    if hints.legs or hints.label_sides:
        return place(diagram, hints, view)
    hints.check(diagram)
    placement = _placed_alike(_plain_form(diagram, view), replace(view, cut=()))
    if not hints.positions:
        return placement
    inner = without_indices(diagram, placement.plates)
    return pinned(Wiring(inner), placement, hints.positions).rounded()


@lru_cache(maxsize=256)
def _placed_alike(diagram: Diagram, view: View) -> Placement:
    # A deep network has the same layer many times.
    return place(diagram, NO_HINTS, view)


def _plain_form(diagram: Diagram, view: View) -> Diagram:
    """The diagram without what its placement does not depend on: arrays, digits, sizes."""
    nodes = tuple(
        replace(node, array=None, rows=None, label=DIGIT.sub("0", node_text(node)[1:-1]))
        for node in diagram.nodes
    )
    indices = diagram.indices
    if not view.show_sizes:
        indices = tuple(replace(index, size=None) for index in indices)
    return replace(diagram, name="", title=None, nodes=nodes, indices=indices)


def place(diagram: Diagram, hints: Hints = NO_HINTS, view: View = PLAIN_VIEW) -> Placement:
    """Decide where everything stands; the same diagram always gets the same placement.

    Raises:
        LayoutError: if a hint names something that is not there.
    """
    hints.check(diagram)
    plates = plate_indices(diagram) if view.plate else ()
    inner = without_indices(diagram, plates)
    if not inner.nodes:
        return Placement({}, plates=plates)
    plain = replace(view, cut=())
    parts = [
        (part, _place_part(Wiring(part), hints.legs, plain)) for part in connected_parts(inner)
    ]
    placement = pinned(Wiring(inner), side_by_side(parts, plain), hints.positions)
    return replace(placement, plates=plates, label_sides=dict(hints.label_sides)).rounded()


def _place_part(wiring: Wiring, legs: Mapping[str, Side], view: View) -> Placement:
    found: list[tuple[float, Placement]] = []
    for candidate in _candidates(wiring, legs, view):
        if is_crowded(wiring) or _tangle(wiring.diagram) > MOST_TANGLED:
            return candidate  # a plain layout: comparing several would take minutes
        detours = _detours(wiring, candidate)
        if detours == 0.0:
            return candidate
        found.append((detours, candidate))
    return _best(wiring.diagram, found, view)


def _best(diagram: Diagram, found: list[tuple[float, Placement]], view: View) -> Placement:
    """The least penalty, of equals the first; what has more detours than that is not drawn."""
    least, chosen = math.inf, 0
    for place in sorted(range(len(found)), key=lambda place: found[place][0]):
        detours, candidate = found[place]
        if detours > least:
            break
        scene = render(diagram, candidate, view)
        penalty = detours + CROSSED * crossings(scene)
        if penalty <= least:
            penalty += FAULT_PENALTY * len(lint(scene))
        if (penalty, place) < (least, chosen):
            least, chosen = penalty, place
    return found[chosen][1]


def _tangle(diagram: Diagram) -> int:
    """Ends of all hyperedges but the largest: how many wires may cross each other."""
    ends = Counter(index for node in diagram.nodes for index in set(node.indices))
    many = sorted(count for count in ends.values() if count > 2)
    return sum(many[:-1])


def _detours(wiring: Wiring, placement: Placement) -> float:
    return Router(place_wiring(wiring, placement)).run().cost


def _candidates(wiring: Wiring, legs: Mapping[str, Side], view: View) -> Iterator[Placement]:
    diagram = wiring.diagram
    is_bare = not diagram.regions and not diagram.convolutions
    mesh = Mesh(wiring, view)
    if is_bare and mesh.is_connected:
        placements = [place_ring(mesh, legs), place_star(mesh, legs), place_grid(mesh, legs)]
        if is_hierarchical(mesh):
            placements.append(place_tree(mesh, legs))
        yield from (one for one in placements if one is not None)
    lanes = row_between_lanes(wiring) if is_bare else None
    if lanes is not None:
        yield place_rows(wiring, lanes[0], view, legs, lanes[1])
    for rows in _row_choices(wiring):
        yield from _row_candidates(wiring, rows, view, legs)
    if is_bare and mesh.is_connected and len(mesh.vertices) > 2:
        tree = place_tree(mesh, legs)
        yield from (one for one in (tree,) if one is not None)
        yield from place_by_stress(mesh, legs)


def _row_choices(wiring: Wiring) -> Iterator[list[Row]]:
    """One row if that is short, then a row per stage; then one row after all."""
    inline = inline_row(wiring) if wiring.diagram.regions else None
    folded = folded_rows(wiring)
    if inline is None:
        yield folded
        return
    is_tower = all(len(row.members) == 1 for row in folded[1:])
    most = MAX_INLINE_TOWER if is_tower else MAX_INLINE
    is_short = len(inline[0].members) <= most
    yield from (inline, folded) if is_short else (folded, inline)


def _row_candidates(
    wiring: Wiring, rows: list[Row], view: View, legs: Mapping[str, Side]
) -> Iterator[Placement]:
    """The usual places for dots; if wires then go astray, each dot is tried elsewhere."""
    dot_sides: dict[Dot, Side] = {}
    best = place_rows(wiring, rows, view, legs, dot_sides)
    yield best
    crowding = max(1.0, len(wiring.segments) / USUAL_WIRES)
    moves = [move for _ in range(MAX_SWEEPS) for move in _moves(wiring)]
    moves = moves[: int(MAX_MOVES / crowding**3)]
    cost = _detours(wiring, best) if moves else 0.0
    for move in moves:
        if cost <= GOOD_ENOUGH:
            break
        moved = {**dot_sides, **move}
        placement = place_rows(wiring, rows, view, legs, moved)
        if placement == best:
            continue
        found_cost = _detours(wiring, placement)
        if found_cost < cost - 1e-9:
            dot_sides, best, cost = moved, placement, found_cost
    if dot_sides:
        yield best


def _moves(wiring: Wiring) -> Iterator[dict[Dot, Side]]:
    """All dots of an index to one side, then each dot alone; batch indices first.

    A batch index is on all data, so it is what usually stands in the way.
    """
    kinds = wiring.diagram.index_by_name
    by_index: dict[str, list[Dot]] = {}
    for dot in sorted(wiring.dots, key=lambda dot: kinds[dot.index].kind is not IndexKind.BATCH):
        by_index.setdefault(dot.index, []).append(dot)
    for dots in by_index.values():
        for side in (Side.RIGHT, Side.LEFT, Side.UP, Side.DOWN):
            yield dict.fromkeys(dots, side)
    for dots in by_index.values():
        for dot in dots if len(dots) > 1 else ():
            for side in Side:
                yield {dot: side}
