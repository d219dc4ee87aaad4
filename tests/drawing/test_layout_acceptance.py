"""The acceptance cases of the specification (section 10) that are about geometry."""

import math
from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.diagrams import Diagram, from_einsum
from rankscope.diagrams.families import (
    ConvolutionSizes,
    cp,
    cp_attention,
    grouped_query,
    hierarchical_tucker,
    matrix_product,
    multi_head,
    multilayer_perceptron,
    single_head,
    tensor_ring,
    tensor_train,
    tensor_train_matrix,
    tucker,
    tucker2_convolution,
    tunable_attention,
    with_batch,
)
from rankscope.drawing import (
    Label,
    Point,
    Scene,
    Shape,
    ShapeKind,
    View,
    Wire,
    crossings,
    lay_out,
    lint,
)


def shape(scene: Scene, name: str) -> Shape:
    return next(shape for shape in scene.shapes if shape.name == name)


def label(scene: Scene, owner: str) -> Label:
    found = [label for label in scene.labels if label.owner == owner]
    assert len(found) == 1, owner
    return found[0]


def wires(scene: Scene, index: str) -> list[Wire]:
    return [wire for wire in scene.wires if wire.name == index]


def tip(scene: Scene, index: str) -> Point:
    """The end of an open leg: the one end that no shape or mark covers."""
    solids = (*scene.shapes, *scene.marks)
    ends = [point for wire in wires(scene, index) for point in (wire.points[0], wire.points[-1])]
    free = [point for point in ends if not any(solid.covers(point) for solid in solids)]
    assert len(free) == 1, index
    return free[0]


def assert_clean(scene: Scene) -> None:
    assert lint(scene) == ()


def test_a_matrix_product_is_one_row_with_the_bond_written_above() -> None:
    scene = lay_out(matrix_product())
    first, second = shape(scene, "A"), shape(scene, "B")
    assert first.y == second.y
    assert first.x < second.x
    assert tip(scene, "i")[0] < first.x
    assert tip(scene, "k")[0] > second.x
    bond = label(scene, "j").box
    assert bond[3] < first.y
    assert first.x < (bond[0] + bond[2]) / 2 < second.x
    assert_clean(scene)


@pytest.mark.parametrize("order", [5, 12])
def test_a_tensor_train_is_a_line_of_equal_circles_over_one_baseline(order: int) -> None:
    scene = lay_out(tensor_train(order=order))
    assert len(scene.shapes) == order
    assert {shape.kind for shape in scene.shapes} == {ShapeKind.CIRCLE}
    assert len({(shape.y, shape.width) for shape in scene.shapes}) == 1
    steps = {round(after.x - before.x, 6) for before, after in pairwise(scene.shapes)}
    assert len(steps) == 1
    tips = [tip(scene, f"i{place}") for place in range(1, order + 1)]
    assert len({y for _, y in tips}) == 1
    assert all(y > scene.shapes[0].y for _, y in tips)
    assert [x for x, _ in tips] == [shape.x for shape in scene.shapes]
    bonds = [wire for place in range(1, order) for wire in wires(scene, f"r{place}")]
    assert {wire.style for wire in bonds} == {"wire-rank"}
    assert_clean(scene)


def test_a_tensor_train_matrix_has_legs_up_and_down_with_the_same_spacing() -> None:
    scene = lay_out(tensor_train_matrix(order=4))
    y = scene.shapes[0].y
    for place in range(1, 5):
        assert tip(scene, f"i{place}")[1] - y == pytest.approx(y - tip(scene, f"j{place}")[1])
    assert_clean(scene)


def test_a_tensor_ring_is_a_regular_polygon_with_labels_outside() -> None:
    scene = lay_out(tensor_ring(order=5))
    x = sum(shape.x for shape in scene.shapes) / 5
    y = sum(shape.y for shape in scene.shapes) / 5
    radii = [math.dist((x, y), (shape.x, shape.y)) for shape in scene.shapes]
    # Positions are rounded to a thousandth of a unit.
    assert max(radii) - min(radii) < 0.2
    assert min(scene.shapes, key=lambda shape: shape.y).name == scene.shapes[0].name
    apothem = radii[0] * math.cos(math.pi / 5)
    for place in range(1, 6):
        left, top, right, bottom = label(scene, f"r{place}").box
        assert math.dist((x, y), ((left + right) / 2, (top + bottom) / 2)) > apothem
    assert_clean(scene)


@pytest.mark.parametrize("order", [3, 4, 6])
def test_a_cp_decomposition_has_one_dot_and_its_rank_is_written_once(order: int) -> None:
    scene = lay_out(cp(order=order))
    assert [mark.style for mark in scene.marks] == ["junction-rank"]
    assert label(scene, "r").style == "wire-rank"
    assert len(wires(scene, "r")) == order
    assert_clean(scene)


def test_a_tucker_convolution_is_symmetric_about_its_row() -> None:
    scene = lay_out(tucker2_convolution(ConvolutionSizes()))
    row = shape(scene, "X").y
    stars = [shape for shape in scene.shapes if shape.style == "convolution"]
    assert len(stars) == 2
    assert row - stars[0].y == pytest.approx(stars[1].y - row)
    assert stars[0].x == stars[1].x == shape(scene, "G").x
    ends = [tip(scene, index)[0] for index in ("t", "y", "x")]
    assert len(set(ends)) == 1
    assert_clean(scene)


def test_the_diamond_is_on_the_normalized_leg_only() -> None:
    scene = lay_out(single_head())
    assert [mark.name for mark in scene.marks if mark.kind is ShapeKind.DIAMOND] == ["A:m"]
    assert [mark.name for mark in scene.marks if mark.style == "passing"] == ["A:n"]
    assert_clean(scene)


def test_the_head_index_has_two_dots_and_crosses_its_barrier_once() -> None:
    scene = lay_out(multi_head())
    dots = [mark for mark in scene.marks if mark.style == "junction-head"]
    frame = scene.frames[0]
    assert [frame.covers((dot.x, dot.y)) for dot in dots] == [True, False]
    assert len({dot.x for dot in dots}) == 1
    crossing = [
        wire
        for wire in wires(scene, "h")
        if frame.covers(wire.points[0]) != frame.covers(wire.points[-1])
    ]
    assert len(crossing) == 1
    assert [mark.name for mark in scene.marks if mark.name == "A:h"] == ["A:h"]
    assert_clean(scene)


def test_values_stand_straight_under_keys() -> None:
    scene = lay_out(multi_head())
    assert shape(scene, "Xk").x == shape(scene, "Xv").x
    assert shape(scene, "WQ").x == shape(scene, "WO").x
    assert tip(scene, "n")[0] == tip(scene, "o")[0]


def test_two_head_wires_leave_the_query_weight_without_touching() -> None:
    scene = lay_out(grouped_query())
    query = shape(scene, "WQ")
    starts = [
        point[0]
        for index in ("k", "q")
        for wire in wires(scene, index)
        for point in (wire.points[0], wire.points[-1])
        if query.covers(point)
    ]
    assert len(starts) == 2
    assert abs(starts[0] - starts[1]) == pytest.approx(18.0)
    assert_clean(scene)


def test_a_batch_index_is_a_plate_by_default() -> None:
    scene = lay_out(with_batch(multi_head()))
    assert [frame.style for frame in scene.frames] == ["plate", "barrier"]
    assert wires(scene, "b") == []
    assert label(scene, "b").text == r"$\times\,B$"
    assert_clean(scene)


@pytest.mark.parametrize(
    "diagram", [multi_head(), grouped_query(), cp_attention(), tunable_attention(), single_head()]
)
def test_a_batch_index_drawn_as_a_wire_has_no_faults(diagram: Diagram) -> None:
    scene = lay_out(with_batch(diagram), view=View(plate=False))
    assert [frame.style for frame in scene.frames] == ["barrier"]
    assert len(wires(scene, "b")) >= 4
    assert_clean(scene)


def test_a_batch_index_on_one_tensor_is_an_open_leg() -> None:
    scene = lay_out(multilayer_perceptron(widths=(7, 5, 3)))
    assert [wire.style for wire in wires(scene, "b")] == ["wire-batch"]


def test_a_perceptron_stands_on_one_row_with_its_barrier_inline() -> None:
    scene = lay_out(multilayer_perceptron(widths=(784, 256, 10)))
    assert len({shape.y for shape in scene.shapes}) == 1
    assert [frame.style for frame in scene.frames] == ["barrier"]
    assert_clean(scene)


@pytest.mark.parametrize("depth", [3, 4, 7, 11])
def test_barriers_of_deep_perceptrons_nest(depth: int) -> None:
    scene = lay_out(multilayer_perceptron(widths=tuple(range(depth + 2, 1, -1))))
    boxes = [frame.box for frame in scene.frames]
    assert len(boxes) == depth - 1
    for outer, inner in pairwise(boxes):
        assert all(outer[side] < inner[side] for side in (0, 1))
        assert all(outer[side] > inner[side] for side in (2, 3))
    assert_clean(scene)


@pytest.mark.parametrize(
    ("equation", "num_wires", "num_dots"),
    [
        ("ii->", 1, 0),
        ("ii->i", 3, 1),
        ("ij->i", 2, 1),
        ("ij->", 2, 2),
        ("i,j->ij", 2, 0),
        (",->", 0, 0),
        ("->", 0, 0),
        ("ij,ij->", 2, 0),
        ("i,i->i", 3, 1),
        ("ij,ij->ij", 6, 2),
        ("ij,ij,ij->ij", 8, 2),
        ("bij,bjk->bik", 6, 1),
        ("iij,jk->k", 3, 0),
        ("abcdefg->abcdefg", 7, 0),
        ("ab,bc,ca,xy,y->x", 5, 0),
    ],
)
def test_degenerate_networks_have_valid_pictures(
    equation: str, num_wires: int, num_dots: int
) -> None:
    scene = lay_out(from_einsum(equation))
    assert len(scene.wires) == num_wires
    assert len([mark for mark in scene.marks if mark.kind is ShapeKind.DOT]) == num_dots
    assert_clean(scene)
    assert crossings(scene) == 0


@pytest.mark.parametrize("order", [4, 5, 8])
def test_a_hierarchical_tucker_decomposition_is_a_tree_over_one_baseline(order: int) -> None:
    scene = lay_out(hierarchical_tucker(order=order))
    root = min(scene.shapes, key=lambda shape: shape.y)
    assert root.style == "core"
    assert len(root.description.split(",")) == 3, "the root has two bonds and no leg"
    tips = [tip(scene, f"i{place}") for place in range(1, order + 1)]
    assert len({y for _, y in tips}) == 1
    assert [x for x, _ in tips] == sorted(x for x, _ in tips)
    leaves = [shape for shape in scene.shapes if shape.style == "parameter"]
    assert len({leaf.y for leaf in leaves}) == 1
    assert crossings(scene) == 0
    assert_clean(scene)


def test_an_irregular_network_is_drawn_with_straight_wires_that_do_not_cross() -> None:
    scene = lay_out(from_einsum("abc,cde,bfg,gdh,eij,hik,fkl->ajl"))
    assert all(len(wire.points) == 2 for wire in scene.wires)
    assert crossings(scene) == 0
    assert_clean(scene)


@settings(deadline=None, max_examples=12)
@given(
    family=st.sampled_from((cp, tucker, tensor_train, tensor_train_matrix, tensor_ring)),
    order=st.integers(3, 10),
)
def test_decompositions_of_any_order_are_drawn_without_faults(
    family: Callable[..., Diagram], order: int
) -> None:
    scene = lay_out(family(order=order))
    assert_clean(scene)
    assert crossings(scene) == 0


@settings(deadline=None, max_examples=5)
@given(order=st.integers(2, 10))
def test_hierarchical_tucker_of_any_order_is_drawn_without_faults(order: int) -> None:
    scene = lay_out(hierarchical_tucker(order=order))
    assert_clean(scene)
    assert crossings(scene) == 0


@pytest.mark.slow
def test_a_tensor_train_of_two_hundred_cores_is_one_line() -> None:
    scene = lay_out(tensor_train(order=200))
    assert len({shape.y for shape in scene.shapes}) == 1
    assert [shape.x for shape in scene.shapes] == sorted(shape.x for shape in scene.shapes)
    assert all(len(wire.points) == 2 for wire in scene.wires)
