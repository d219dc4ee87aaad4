import pytest

from rankscope.diagrams import Diagram, Function, Index, Node, Region, from_einsum
from rankscope.diagrams.families import pure_tensor
from rankscope.drawing import lay_out, lint
from rankscope.drawing.layout import connected_parts, place


def parts(diagram: Diagram) -> list[list[str]]:
    return [[node.name for node in part.nodes] for part in connected_parts(diagram)]


def test_connected_parts_come_in_order_and_small_lone_tensors_together() -> None:
    assert parts(from_einsum("a,bc,x,cd,->abdx")) == [["A", "C", "E"], ["B", "D"]]


def test_a_lone_tensor_with_many_legs_is_a_part_of_its_own() -> None:
    assert parts(from_einsum("abcd,x,y->abcdxy")) == [["A"], ["B", "C"]]


def test_a_region_holds_its_members_together() -> None:
    diagram = Diagram(
        "apart",
        (Index("i"), Index("j")),
        (Node("A", ("i",)), Node("B", ("j",))),
        ("i", "j"),
        regions=(Region("R", ("A", "B"), Function("relu")),),
    )
    assert parts(diagram) == [["A", "B"]]
    assert lint(lay_out(diagram)) == ()


def test_parts_stand_side_by_side_without_touching() -> None:
    diagram = from_einsum("ab,bc,ca,de,ef,fd,xy,y->x")
    placement = place(diagram)
    groups = [[placement.nodes[name][0] for name in names] for names in ("ABC", "DEF", "GH")]
    assert max(groups[0]) < min(groups[1])
    assert max(groups[1]) < min(groups[2])
    assert lint(lay_out(diagram)) == ()


@pytest.mark.parametrize("order", [1, 2, 3, 6])
def test_a_pure_tensor_is_a_row_of_vectors(order: int) -> None:
    diagram = pure_tensor(order=order)
    placement = place(diagram)
    assert len({y for _, y in placement.nodes.values()}) == 1
    assert lint(lay_out(diagram)) == ()


def test_straight_wires_and_rows_live_side_by_side() -> None:
    placement = place(from_einsum("ab,bc,ca,xr,yr,zr->xyz"))
    assert set(placement.straight) == {"a", "b", "c"}
