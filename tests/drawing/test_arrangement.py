import pytest

from rankscope.drawing import Label, Scene, Shape, ShapeKind, Wire, below, beside, columns
from rankscope.drawing.page import COLUMN_GAP, LINE_GAP, SHORTEST_BREAK, SIGN_GAP, axis, named, sign


def box(name: str, width: int, height: int, *, x: float = 0.0, y: float = 0.0) -> Scene:
    shape = Shape(name, ShapeKind.SQUARE, x, y, float(width), float(height), "data")
    return Scene(name, shapes=(shape,))


def test_the_axis_is_midway_between_the_highest_and_the_lowest_tensor() -> None:
    scene = box("A", 10, 10, y=3.0).joined([box("B", 10, 90, y=7.0)])
    assert axis(scene) == 5.0
    assert axis(sign("=")) == 0.0


@pytest.mark.parametrize("text", ["=", "+", "-", "-0.5"])
def test_signs_are_centred_on_the_axis(text: str) -> None:
    _, top, _, bottom = sign(text).box
    assert top < 0 < bottom


def test_pictures_beside_each_other_share_their_axis_and_keep_a_gap() -> None:
    scene = beside((box("A", 10, 20, y=50.0), box("B", 30, 40, x=-9.0, y=-5.0)))
    first, second = scene.shapes
    assert (first.y, second.y) == (0.0, 0.0)
    assert first.box[0] == 0.0
    assert second.box[0] - first.box[2] == SIGN_GAP


def test_pictures_below_each_other_keep_their_left_and_right() -> None:
    scene = below((box("A", 10, 20, x=5.0, y=50.0), box("B", 30, 40, x=-9.0)))
    first, second = scene.shapes
    assert (first.x, second.x) == (5.0, -9.0)
    assert first.box[1] == 0.0
    assert second.box[1] - first.box[3] == LINE_GAP


def test_a_page_of_good_proportions_has_one_column() -> None:
    lines = [box(str(number), 400, 100) for number in range(6)]
    assert columns(lines) == below(lines)


def test_a_tall_page_is_broken_into_columns_read_from_top_to_bottom() -> None:
    lines = [box(str(number), 200, 100) for number in range(14)]
    page = columns(lines)
    left, top, right, bottom = page.box
    assert bottom - top <= max(SHORTEST_BREAK, 2 * (right - left))
    assert [shape.name for shape in page.shapes] == [str(number) for number in range(14)]
    starts = sorted({shape.box[0] for shape in page.shapes})
    assert len(starts) == 2
    assert starts[1] - (starts[0] + 200) == 2 * COLUMN_GAP
    (rule,) = page.wires
    assert rule.points[0][0] == starts[0] + 200 + COLUMN_GAP
    # Columns are equally full: half of the lines in each.
    assert sum(shape.box[0] == starts[0] for shape in page.shapes) == 7


def test_a_column_takes_a_line_if_more_than_half_of_it_fits() -> None:
    page = columns([box("A", 50, 600), box("B", 50, 400), box("C", 50, 400)])
    _, top, _, bottom = page.box
    assert bottom - top == 400 + LINE_GAP + 400


def test_one_line_cannot_be_broken() -> None:
    line = box("A", 10, 5000)
    assert columns([line]) == below([line])


def test_names_are_made_different_everywhere() -> None:
    scene = Scene(
        "s",
        frames=(Shape("F", ShapeKind.FRAME, 0.0, 0.0, 9.0, 9.0, "barrier"),),
        wires=(Wire("i", ((0.0, 0.0), (9.0, 0.0)), "wire-generic", ends=("A", "B")),),
        shapes=(Shape("A", ShapeKind.CIRCLE, 0.0, 0.0, 9.0, 9.0, "data"),),
        marks=(Shape("m", ShapeKind.DOT, 0.0, 0.0, 9.0, 9.0, "passing"),),
        labels=(
            Label("$A$", 0.0, 0.0, 9.0, "on-data", (0.0, 0.0, 1.0, 1.0), "A"),
            Label("$=$", 0.0, 0.0, 9.0, "caption", (0.0, 0.0, 1.0, 1.0)),
        ),
    )
    found = named(scene, "left")
    assert found.frames[0].name == "left:F"
    assert found.wires[0].name == "left:i"
    assert found.wires[0].ends == ("left:A", "left:B")
    assert found.shapes[0].name == "left:A"
    assert found.marks[0].name == "left:m"
    assert [label.owner for label in found.labels] == ["left:A", ""]
