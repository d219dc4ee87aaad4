"""Placements that stay while a diagram is edited: what is there keeps its place.

Large diagrams take seconds to lay out well, and a picture that jumps at every edit cannot be
edited. New tensors go beside what they are joined to, new legs point where there is room.
"""

import math
from collections.abc import Iterable

from rankscope.diagrams.diagram import Diagram
from rankscope.drawing.layout.mesh import plate_indices, without_indices
from rankscope.drawing.layout.placement import Placement, Side, View, Wiring
from rankscope.drawing.scene import Point

STEP = 1.3  # between tensors, in units of the grid
LEG = 0.9  # from a tensor to the tip of its leg
RINGS = 40  # around a tensor, in which a free place is looked for


def keep_places(diagram: Diagram, before: Placement, view: View) -> Placement:
    """The placement of an edited diagram, by that of the diagram before the edit."""
    plates = plate_indices(diagram) if view.plate else ()
    inner = without_indices(diagram, plates)
    nodes = _nodes(inner, before)
    tips = {
        leg: before.tips[leg] if leg in before.tips else _tip(inner, leg, nodes)
        for leg in inner.output
    }
    dots = {(dot.index, dot.region) for dot in Wiring(inner).dots}
    known = {index for index, _ in before.dots} | before.tips.keys() | set(before.straight)
    moved = [index.name for index in inner.indices if index.name not in known]
    straight = [index for index in before.straight if index in inner.index_by_name]
    return Placement(
        nodes,
        {key: point for key, point in before.dots.items() if key in dots},
        tips,
        plates,
        tuple(dict.fromkeys((*straight, *_new_wires(inner, before, moved)))),
        {name: side for name, side in before.label_sides.items() if name in inner.index_by_name},
    ).rounded()


def _nodes(diagram: Diagram, before: Placement) -> dict[str, Point]:
    nodes = {
        part.name: before.nodes[part.name] for part in diagram.holders if part.name in before.nodes
    }
    owners = diagram.structure.owners
    for part in diagram.holders:
        if part.name in nodes:
            continue
        joined = [name for index in part.indices for name in owners[index] if name in nodes]
        if joined:
            near = [nodes[name] for name in joined]
            middle = (sum(x for x, _ in near) / len(near), sum(y for _, y in near) / len(near))
        else:
            right = max((x for x, _ in nodes.values()), default=-STEP)
            middle = (right + STEP, 0.0)
        nodes[part.name] = _free(middle, nodes.values())
    return nodes


def _free(middle: Point, taken: Iterable[Point]) -> Point:
    """The nearest place on rings around a point that no tensor is near."""
    others = list(taken)
    for ring in range(RINGS):
        for step in range(max(1, 8 * ring)):
            angle = 2 * math.pi * step / max(1, 8 * ring)
            place = (
                middle[0] + 0.5 * STEP * ring * math.cos(angle),
                middle[1] + 0.5 * STEP * ring * math.sin(angle),
            )
            if all(math.dist(place, other) >= 0.9 * STEP for other in others):
                return place
    return (max(x for x, _ in others) + STEP, middle[1])


def _tip(diagram: Diagram, leg: str, nodes: dict[str, Point]) -> Point:
    held = [nodes[name] for name in dict.fromkeys(diagram.structure.owners[leg])]
    x = sum(point[0] for point in held) / len(held)
    y = sum(point[1] for point in held) / len(held)
    ends = [(x + LEG * side.vector[0], y + LEG * side.vector[1]) for side in Side]

    def room(end: Point) -> float:
        return min(
            (math.dist(end, other) for other in nodes.values() if other != (x, y)), default=9.0
        )

    return max(ends, key=lambda end: round(min(room(end), 2 * STEP), 3))


def _new_wires(diagram: Diagram, before: Placement, names: list[str]) -> list[str]:
    """Wires with a tensor that is new: rows and columns need not lead to it."""
    owners = diagram.structure.owners
    return [
        name
        for name in names
        if name in owners and any(owner not in before.nodes for owner in owners[name])
    ]
