import pytest

from rankscope.diagrams import Diagram, Function, Index, Node, Region, Role
from rankscope.diagrams.families import multi_head, multilayer_perceptron
from rankscope.drawing import ShapeKind, lay_out, lint, text_width
from rankscope.drawing.layout.labels import tag
from rankscope.drawing.layout.tensors import PADDING

FRAME = (0.0, 0.0, 400.0, 100.0)


def single(name: str, indices: str, *over: str) -> Diagram:
    return Diagram(
        "single",
        tuple(Index(index) for index in indices),
        (Node("X", tuple(indices), Role.DATA),),
        tuple(indices),
        regions=(Region("R", ("X",), Function(name), over),),
    )


def test_a_frame_keeps_its_distance_from_what_is_inside() -> None:
    scene = lay_out(multilayer_perceptron(widths=(3, 2, 1)))
    left, top, right, bottom = scene.frames[0].box
    inside = [shape.box for shape in scene.shapes if shape.name in ("X", "W1")]
    assert min(box[0] for box in inside) - left == pytest.approx(PADDING[0])
    assert min(box[1] for box in inside) - top == pytest.approx(PADDING[1])
    assert right - max(box[2] for box in inside) == pytest.approx(PADDING[2])
    assert bottom - max(box[3] for box in inside) == pytest.approx(PADDING[3])


def test_a_frame_is_never_narrower_than_its_tag() -> None:
    scene = lay_out(single("log_softmax", "n", "n"))
    frame, pill = scene.frames[0], next(mark for mark in scene.marks if mark.style == "tag")
    assert frame.box[0] < pill.box[0]
    assert pill.box[2] < frame.box[2]
    assert lint(scene) == ()


@pytest.mark.parametrize("legs", ["", "a", "ab", "abc", "abcd", "abcde"])
def test_a_region_of_one_tensor_with_any_number_of_legs_is_drawn_without_faults(
    legs: str,
) -> None:
    scene = lay_out(single("relu", legs))
    rings = [mark for mark in scene.marks if mark.style == "passing"]
    assert len(rings) == len(legs)
    assert lint(scene) == ()


def test_marks_sit_on_the_border_and_say_what_happens() -> None:
    scene = lay_out(single("softmax", "nm", "m"))
    left, top, right, bottom = scene.frames[0].box
    marks = {mark.name: mark for mark in scene.marks if mark.style != "tag"}
    assert marks["R:m"].kind is ShapeKind.DIAMOND
    assert marks["R:m"].description == "softmax normalizes index m"
    assert marks["R:n"].style == "passing"
    assert marks["R:n"].description == "index n leaves softmax"
    for mark in marks.values():
        assert any(
            gap == pytest.approx(0.0, abs=1e-6)
            for gap in (mark.x - left, mark.x - right, mark.y - top, mark.y - bottom)
        )


def test_the_tag_is_top_left_unless_something_is_there() -> None:
    diagram = multi_head()
    region = diagram.regions[0]
    free, label = tag(diagram, region, FRAME, ())
    assert free.y == 0.0
    assert free.box[0] == pytest.approx(24.0)
    assert free.width == pytest.approx(text_width(label.text, label.size) + 24.0)
    moved, _ = tag(diagram, region, FRAME, [free.box])
    assert moved.y == 0.0
    assert moved.box[2] == pytest.approx(376.0)
    below, _ = tag(diagram, region, FRAME, [(0.0, -5.0, 400.0, 5.0)])
    assert below.y == 100.0


def test_wires_may_touch_the_marks_they_pass() -> None:
    scene = lay_out(multi_head())
    wire = next(wire for wire in scene.wires if wire.name == "m")
    assert sorted(wire.ends) == ["A:m", "Xk", "Xv"]
