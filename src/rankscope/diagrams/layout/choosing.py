"""Which layout a diagram gets: rules for known shapes first, the best of several otherwise.

A candidate whose wires all run the simplest way is taken at once. Otherwise all are drawn and
checked, and the one with the fewest faults, crossings and detours wins; of equals, the first.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache

from rankscope.diagrams.diagram import Diagram
from rankscope.diagrams.layout.grid import place_grid
from rankscope.diagrams.layout.ground import ground_of
from rankscope.diagrams.layout.mesh import Mesh
from rankscope.diagrams.layout.pinning import pinned
from rankscope.diagrams.layout.placement import (
    NO_HINTS,
    PLAIN_VIEW,
    Hints,
    Placement,
    Side,
    View,
)
from rankscope.diagrams.layout.plates import plate_indices, without_indices
from rankscope.diagrams.layout.render import render
from rankscope.diagrams.layout.ring import place_ring, place_star
from rankscope.diagrams.layout.routing import LATER, Router
from rankscope.diagrams.layout.rows import Row, folded_rows, inline_row, row_between_lanes
from rankscope.diagrams.layout.separating import separated, side_by_side
from rankscope.diagrams.layout.staged import place_rows
from rankscope.diagrams.layout.stress import place_by_stress
from rankscope.diagrams.layout.tree import is_hierarchical, place_tree
from rankscope.diagrams.layout.wires import Dot, Wiring
from rankscope.diagrams.layout.wording import node_text
from rankscope.diagrams.parts import IndexKind
from rankscope.diagrams.pictures.geometry import crossings, lint
from rankscope.diagrams.pictures.scene import Scene

DIGIT = re.compile(r"\d")
FAULT, CROSSED = 1000.0, 40.0
MAX_INLINE, MAX_INLINE_TOWER = 5, 9
MAX_SWEEPS = 2
MAX_MOVES = 48
GOOD_ENOUGH = 2 * LATER  # two wires that take the second best way


def lay_out(diagram: Diagram, hints: Hints = NO_HINTS, view: View = PLAIN_VIEW) -> Scene:
    """Place a diagram and draw it.

    Raises:
        LayoutError: if a hint or `view.cut` names something that is not there.
    """
    if hints is NO_HINTS:
        return render(
            diagram, _placed_alike(_plain_form(diagram, view), replace(view, cut=())), view
        )
    return render(diagram, place(diagram, hints, view), view)


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
    parts = [(part, _place_part(Wiring(part), hints.legs, plain)) for part in separated(inner)]
    placement = pinned(Wiring(inner), side_by_side(parts, plain), hints.positions)
    return replace(placement, plates=plates, label_sides=dict(hints.label_sides)).rounded()


def _place_part(wiring: Wiring, legs: Mapping[str, Side], view: View) -> Placement:
    best: tuple[float, Placement] | None = None
    for candidate in _candidates(wiring, legs, view):
        detours = _detours(wiring, candidate)
        if detours == 0.0:
            return candidate
        scene = render(wiring.diagram, candidate, view)
        badness = detours + FAULT * len(lint(scene)) + CROSSED * crossings(scene)
        if best is None or badness < best[0]:
            best = (badness, candidate)
    assert best is not None
    return best[1]


def _detours(wiring: Wiring, placement: Placement) -> float:
    return Router(ground_of(wiring, placement)).run().cost


def _candidates(wiring: Wiring, legs: Mapping[str, Side], view: View) -> Iterator[Placement]:
    diagram = wiring.diagram
    is_bare = not diagram.regions and not diagram.convolutions
    mesh = Mesh(wiring, view)
    if is_bare and mesh.is_connected:
        found = [place_ring(mesh, legs), place_star(mesh, legs), place_grid(mesh, legs)]
        if is_hierarchical(mesh):
            found.append(place_tree(mesh, legs))
        yield from (one for one in found if one is not None)
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
    wishes: dict[Dot, Side] = {}
    best = place_rows(wiring, rows, view, legs, wishes)
    yield best
    cost = _detours(wiring, best)
    moves = [move for _ in range(MAX_SWEEPS) for move in _moves(wiring)]
    for move in moves[:MAX_MOVES]:
        if cost <= GOOD_ENOUGH:
            break
        wished = {**wishes, **move}
        found = place_rows(wiring, rows, view, legs, wished)
        if found == best:
            continue
        found_cost = _detours(wiring, found)
        if found_cost < cost - 1e-9:
            wishes, best, cost = wished, found, found_cost
    if wishes:
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
