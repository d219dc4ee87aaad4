"""Rectangular grids (projected entangled pairs, ladders, sandwiches of trains)."""

import math
from collections.abc import Mapping

from rankscope.diagrams.layout.mesh import Mesh, free_placement
from rankscope.diagrams.layout.placement import Placement, Side
from rankscope.diagrams.layout.sketch import GAP
from rankscope.diagrams.layout.wires import Dot, End

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
        found = _numbered(mesh, away, mesh.distances(other), away[other])
        if found is not None:
            return found
    return None


def _numbered(
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
