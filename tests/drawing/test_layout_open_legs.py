from dataclasses import replace

import pytest

from rankscope.diagrams import Function, Region, from_einsum
from rankscope.diagrams.families import cp, tensor_train
from rankscope.drawing import Point, lay_out
from rankscope.drawing.layout import Placement, place


def directions(placement: Placement, owners: dict[str, str]) -> dict[str, Point]:
    """Where each leg points from its tensor: -1, 0 or 1 along x and y."""
    found = {}
    for index, name in owners.items():
        (x, y), (tip_x, tip_y) = placement.nodes[name], placement.tips[index]
        found[index] = (
            float((tip_x > x + 0.5) - (tip_x < x - 0.5)),
            float((tip_y > y + 0.5) - (tip_y < y - 0.5)),
        )
    return found


@pytest.mark.parametrize(
    ("legs", "expected"),
    [
        ("a", [(1, 0)]),
        ("ab", [(-1, 0), (1, 0)]),
        ("abc", [(-1, 0), (1, 0), (0, 1)]),
        ("abcd", [(-1, 0), (1, 0), (0, 1), (0, -1)]),
    ],
)
def test_legs_of_one_tensor_go_right_or_left_and_right_then_down_and_up(
    legs: str, expected: list[Point]
) -> None:
    placement = place(from_einsum(f"{legs}->{legs}"))
    assert list(directions(placement, dict.fromkeys(legs, "A")).values()) == expected


def test_the_ends_of_a_short_row_point_outward() -> None:
    placement = place(from_einsum("ij,jk->ik"))
    assert directions(placement, {"i": "A", "k": "B"}) == {"i": (-1, 0), "k": (1, 0)}


def test_where_most_tensors_have_a_leg_all_hang_down() -> None:
    placement = place(tensor_train(order=3))
    owners = {f"i{place}": f"G{place}" for place in (1, 2, 3)}
    assert set(directions(placement, owners).values()) == {(0, 1)}


def test_a_summed_leg_ends_in_a_dot_where_an_open_one_would_have_its_tip() -> None:
    placement = place(from_einsum("ij->i"))
    assert placement.tips["i"][0] < placement.nodes["A"][0] < placement.dots[("j", None)][0]


def test_the_leg_of_a_diagonal_goes_on_straight_from_its_dot() -> None:
    placement = place(from_einsum("ii->i"))
    (x, y), (dot_x, dot_y) = placement.nodes["A"], placement.dots[("i", None)]
    tip_x, tip_y = placement.tips["i"]
    assert y == dot_y == tip_y
    assert x < dot_x < tip_x


def test_the_leg_of_a_batch_product_leaves_its_dot_across_the_row() -> None:
    placement = place(from_einsum("ir,rj->irj"))
    (x, y), (tip_x, tip_y) = placement.dots[("r", None)], placement.tips["r"]
    assert x == tip_x
    assert tip_y > y


def test_a_leg_avoids_what_stands_in_its_way() -> None:
    placement = place(from_einsum("ij,ij->ij"))
    (_, row), (_, below) = placement.dots[("i", None)], placement.dots[("j", None)]
    assert placement.tips["i"][1] < row < below < placement.tips["j"][1]


def test_several_legs_on_one_side_are_spread_and_end_on_one_line() -> None:
    placement = place(from_einsum("abcdk,kefgh->abcdefgh"))
    below = [placement.tips[index] for index in "bd"]
    assert below[0][1] == below[1][1] > placement.nodes["A"][1]
    assert abs(below[0][0] - below[1][0]) == pytest.approx(0.36)


def test_legs_of_one_row_end_on_one_line_beyond_the_barriers_they_leave() -> None:
    diagram = replace(
        from_einsum("ia,axb,byc,cz->ixyz"), regions=(Region("R", ("A", "B"), Function("relu")),)
    )
    placement = place(diagram)
    assert len({y for _, y in placement.tips.values()}) == 1
    frame = lay_out(diagram).frames[0]
    assert placement.tips["i"][1] * 96 - frame.box[3] > 30


def test_legs_of_branches_continue_outward() -> None:
    placement = place(cp(order=3))
    assert placement.tips["i3"][0] == placement.nodes["A3"][0]
    assert placement.tips["i3"][1] > placement.nodes["A3"][1]
