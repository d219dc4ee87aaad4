from itertools import pairwise

import pytest

from rankscope.diagrams import Diagram, from_einsum
from rankscope.diagrams.families import hierarchical_tucker, tensor_ring, tensor_train, tucker
from rankscope.drawing.layout import Mesh, Wiring, is_hierarchical, place_tree


def mesh(diagram: Diagram) -> Mesh:
    return Mesh(Wiring(diagram))


@pytest.mark.parametrize("order", [4, 5, 6, 7, 8, 9, 16])
def test_hierarchical_tucker_is_recognised(order: int) -> None:
    assert is_hierarchical(mesh(hierarchical_tucker(order=order)))


@pytest.mark.parametrize(
    "diagram",
    [
        tucker(order=3),
        tensor_train(order=6),
        tensor_ring(order=4),
        # A train whose every core has a factor looks better as a row.
        from_einsum("ai,abj,bck,cl,iw,jx,ky,lz->wxyz"),
        # Legs on inner tensors.
        from_einsum("abx,bcd,bef,ce,dy,fz->xyz"),
    ],
)
def test_rows_rings_and_combs_are_not_hierarchical(diagram: Diagram) -> None:
    assert not is_hierarchical(mesh(diagram))


def test_parents_stand_midway_above_their_children() -> None:
    placement = place_tree(mesh(hierarchical_tucker(order=8)), {})
    assert placement is not None
    levels: dict[float, list[float]] = {}
    for x, y in placement.nodes.values():
        levels.setdefault(y, []).append(x)
    counts = [len(levels[y]) for y in sorted(levels)]
    assert counts == [1, 2, 4, 8]
    for upper, lower in pairwise(sorted(levels)):
        children = sorted(levels[lower])
        middles = [(a + b) / 2 for a, b in zip(children[::2], children[1::2], strict=True)]
        assert sorted(levels[upper]) == pytest.approx(middles)


def test_networks_with_cycles_or_of_two_tensors_are_no_trees() -> None:
    assert place_tree(mesh(tensor_ring(order=4)), {}) is None
    assert place_tree(mesh(from_einsum("ij,jk->ik")), {}) is None
