"""Rings and stars: shapes that a row would hide."""

import math
from collections.abc import Mapping

from rankscope.diagrams.layout.mesh import Mesh, free_placement
from rankscope.diagrams.layout.placement import Placement, Side
from rankscope.diagrams.layout.wires import Dot, End

SIDE = 1.61
FEWEST_ARMS, FEWEST_TENSORS = 5, 3
ARM, ARM_FROM_DOT, LEAST_APART = 1.3, 1.15, 1.05
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
    length = (ARM_FROM_DOT if isinstance(centre, Dot) else ARM) + mesh.excess + mesh.label_excess
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
