from rankscope.drawing import (
    Picture,
    Scene,
    Shape,
    ShapeKind,
    Wire,
    check_shapes,
    check_view,
    place_label,
)


def circle(name: str, x: float, y: float) -> Shape:
    return Shape(name, ShapeKind.CIRCLE, x, y, 54.0, 54.0, "parameter")


def test_tensors_over_each_other_are_reported_once() -> None:
    scene = Scene("s", shapes=(circle("A", 0.0, 0.0), circle("B", 50.0, 0.0)))
    assert list(check_shapes(Picture(scene))) == ["Tensor 'A' lies over tensor 'B'."]


def test_circles_whose_boxes_meet_may_still_be_apart() -> None:
    scene = Scene("s", shapes=(circle("A", 0.0, 0.0), circle("B", 40.0, 40.0)))
    assert list(check_shapes(Picture(scene))) == []


def test_a_mark_over_a_tensor_is_reported() -> None:
    dot = Shape("dot", ShapeKind.DOT, 27.0, 0.0, 11.0, 11.0, "junction-rank")
    scene = Scene("s", shapes=(circle("A", 0.0, 0.0),), marks=(dot,))
    assert list(check_shapes(Picture(scene))) == ["Tensor 'A' lies over mark 'dot'."]


def test_a_tensor_on_the_border_of_a_frame_is_reported_and_one_inside_is_not() -> None:
    frame = Shape("A", ShapeKind.FRAME, 0.0, 0.0, 200.0, 200.0, "barrier")
    scene = Scene("s", frames=(frame,), shapes=(circle("in", 0.0, 0.0), circle("on", 95.0, 0.0)))
    assert list(check_shapes(Picture(scene))) == [
        "Tensor 'on' lies over the border of barrier 'A'."
    ]


def test_a_margin_of_nothing_cuts_off_half_of_the_strokes() -> None:
    wire = Wire("i", ((0.0, 0.0), (200.0, 0.0)), "wire-rank", width=6.0)
    label = place_label("$R$", (100.0, -30.0), size=20.0, style="wire-rank")
    scene = Scene(
        "s", shapes=(circle("A", 100.0, 60.0),), wires=(wire,), labels=(label,), margin=0.0
    )
    assert list(check_view(Picture(scene))) == [
        "Tensor 'A' reaches 1.1 px out of the view box.",
        "Wire 'i' reaches 3.0 px out of the view box.",
    ]


def test_the_tip_of_a_triangle_may_reach_out_of_the_view_box() -> None:
    """A triangle is drawn 12 % larger than its width says: 0.56 x 100 is 6 beyond a half."""
    tensor = Shape("Q", ShapeKind.TRIANGLE, 0.0, 0.0, 100.0, 100.0, "parameter")
    found = list(check_view(Picture(Scene("s", shapes=(tensor,), margin=2.0))))
    assert found == ["Tensor 'Q' reaches 5.1 px out of the view box."]
