import pytest

from rankscope.diagrams.families import cp, matrix_product, multi_head, tensor_train
from rankscope.drawing import Hints, Scene, Side, lay_out, lint
from rankscope.drawing.layout import place


def box_of(scene: Scene, owner: str) -> tuple[float, float, float, float]:
    return next(label.box for label in scene.labels if label.owner == owner)


def test_pinned_tensors_stand_exactly_where_they_were_put() -> None:
    positions = {"A": (3.0, -2.0), "B": (5.5, 1.0)}
    assert dict(place(matrix_product(), Hints(positions=positions)).nodes) == positions


def test_the_rest_follows_what_was_pinned() -> None:
    free = place(tensor_train(order=5))
    pinned = place(tensor_train(order=5), Hints(positions={"G1": (10.0, 7.0)}))
    for name, (x, y) in free.nodes.items():
        dx, dy = 10.0 - free.nodes["G1"][0], 7.0 - free.nodes["G1"][1]
        assert pinned.nodes[name] == pytest.approx((x + dx, y + dy))
    for index, (x, y) in free.tips.items():
        assert pinned.tips[index] == pytest.approx((x + dx, y + dy))


def test_dots_move_with_the_mean_of_what_they_join() -> None:
    free = place(cp(order=3))
    (x, y), (dot_x, dot_y) = free.nodes["A1"], free.dots[("r", None)]
    pinned = place(cp(order=3), Hints(positions={**free.nodes, "A1": (x - 3.0, y)}))
    assert pinned.dots[("r", None)] == pytest.approx((dot_x - 1.0, dot_y))


def test_tips_on_one_side_still_share_one_line_after_a_pin() -> None:
    free = place(multi_head())
    x, y = free.nodes["Xq"]
    pinned = place(multi_head(), Hints(positions={**free.nodes, "Xq": (x - 1.0, y)}))
    assert pinned.tips["n"][0] == pinned.tips["o"][0] == pytest.approx(free.tips["n"][0] - 1.0)


def test_legs_point_where_they_are_asked_to() -> None:
    scene = lay_out(matrix_product(), Hints(legs={"i": Side.UP}))
    placement = place(matrix_product(), Hints(legs={"i": Side.UP}))
    (x, y), (tip_x, tip_y) = placement.nodes["A"], placement.tips["i"]
    assert tip_x == x
    assert tip_y < y
    assert lint(scene) == ()


def test_labels_stand_on_the_side_they_are_asked_to() -> None:
    above = lay_out(matrix_product())
    below = lay_out(matrix_product(), Hints(label_sides={"j": Side.DOWN}))
    row = above.shapes[0].y
    assert box_of(above, "j")[3] < row < box_of(below, "j")[1]
