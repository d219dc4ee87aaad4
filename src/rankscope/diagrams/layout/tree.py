"""Trees: the root on top, leaves on one line with their legs hanging down."""

import math
from collections.abc import Mapping

from rankscope.diagrams.layout.mesh import Mesh, free_placement
from rankscope.diagrams.layout.placement import Placement, Side
from rankscope.diagrams.layout.wires import End
from rankscope.diagrams.pictures.scene import Point

APART, LEVEL = 1.15, 1.3
FEWEST_LEAVES = 4
DOWN = math.pi / 2


def place_tree(mesh: Mesh, legs: Mapping[str, Side]) -> Placement | None:
    """Any network without cycles."""
    if len(mesh.vertices) < 3 or not mesh.is_tree or not mesh.has_only_single_bonds:
        return None
    root = _root(mesh)
    depth = mesh.distances(root)
    children = {
        end: [other for other in mesh.neighbours[end] if depth[other] > depth[end]]
        for end in mesh.vertices
    }
    lowest = max(depth.values())
    x: dict[End, float] = {}
    for end in _inorder(root, children):
        x[end] = (APART + mesh.excess + mesh.label_excess) * sum(
            1 for other in x if not children[other]
        )
        if children[end]:
            x[end] = (x[children[end][0]] + x[children[end][-1]]) / 2
    pitch = _pitch(x, children, depth) + mesh.excess
    at: dict[End, Point] = {
        end: (x[end], pitch * (depth[end] if children[end] else lowest)) for end in mesh.vertices
    }
    angles = {end: DOWN for end in mesh.vertices if not children[end]}
    return free_placement(mesh, at, angles, legs)


def is_hierarchical(mesh: Mesh) -> bool:
    """Whether a network is a shallow tree with its open legs on the leaves only.

    A row with one branch at every place (a Tucker core, a train of factors) looks better as
    a row, so that does not count.
    """
    if not mesh.is_tree or not mesh.has_only_single_bonds:
        return False
    leaves = [end for end in mesh.vertices if len(mesh.neighbours[end]) == 1]
    inner = [end for end in mesh.vertices if len(mesh.neighbours[end]) > 1]
    if len(leaves) < FEWEST_LEAVES or any(mesh.loose[end] for end in inner):
        return False
    depth = max(mesh.distances(_root(mesh)).values())
    num_bare = sum(1 for end in inner if not any(leaf in mesh.neighbours[end] for leaf in leaves))
    return num_bare > 0 and depth <= math.ceil(math.log2(len(leaves))) + 1


def _root(mesh: Mesh) -> End:
    """The inner vertex nearest to all; between equals, with fewest wires, declared first."""
    inner = [end for end in mesh.vertices if len(mesh.neighbours[end]) > 1]
    return min(
        inner,
        key=lambda end: (
            max(mesh.distances(end).values()),
            len(mesh.neighbours[end]) + len(mesh.loose[end]),
        ),
    )


def _inorder(end: End, children: Mapping[End, list[End]]) -> list[End]:
    """Children from left to right before their parent."""
    found, waiting = [], [end]
    while waiting:
        found.append(waiting.pop())
        waiting += children[found[-1]]
    return found[::-1]


def _pitch(
    x: Mapping[End, float], children: Mapping[End, list[End]], depth: Mapping[End, int]
) -> float:
    """Levels far enough apart that the widest fork is not too flat."""
    widest = max(
        (abs(x[child] - x[end]) for end, below in children.items() for child in below),
        default=0.0,
    )
    return max(LEVEL, min(2.2, 0.55 * widest)) if max(depth.values()) > 0 else LEVEL
