from collections.abc import Iterator

import pytest

from rankscope.diagrams import Diagram, Index, Network, Node, Role, Step, Sum, Term
from rankscope.drawing import Label, Scene, compose, lint


def layer(number: int, *, name: str = "x", read: str | None = None) -> Step:
    nodes = (
        Node("X", ("i",), Role.DATA, array=read or f"{name}{number}", label=r"\mathbf{X}_{0}"),
        Node("W", ("i", "j"), array=f"{name}{number}.weight"),
    )
    body = Diagram("layer", (Index("i", 4), Index("j", 4)), nodes, ("j",))
    return Step(f"{name}{number + 1}", body, rf"\mathbf{{X}}_{{{number + 1}}}")


def labels(scene: Scene, text: str) -> list[Label]:
    return [label for label in scene.labels if label.text == text]


def middle(label: Label) -> float:
    return (label.box[1] + label.box[3]) / 2


def test_every_step_is_a_line_with_its_name_an_equals_sign_and_a_picture() -> None:
    other = Step("long_name", layer(0, name="y").body)
    scene = compose(Network("net", (layer(0), other)))
    equals = labels(scene, "$=$")
    assert len(equals) == 2
    assert equals[0].box[2] == pytest.approx(equals[1].box[2])
    names = [labels(scene, text)[0] for text in (r"$\mathbf{X}_{1}$", r"$\mathbf{long\_name}$")]
    assert names[0].box[2] == pytest.approx(names[1].box[2])
    for name, sign in zip(names, equals, strict=True):
        assert name.box[2] < sign.box[0]
    for line, sign in zip(("x1", "long_name"), equals, strict=True):
        shapes = [shape for shape in scene.shapes if shape.name.startswith(f"{line}:")]
        assert len(shapes) == 2
        assert all(shape.box[0] > sign.box[2] for shape in shapes)
        assert abs(middle(sign) - shapes[0].y) < 1e-6
    assert lint(scene) == ()


def test_a_step_with_a_symbol_also_shows_its_name() -> None:
    scene = compose(Network("net", (layer(0, name="layers.0.x$"),)))
    (note,) = labels(scene, r"layers.0.x\$1")
    assert note.style == "muted"


def test_equal_blocks_are_drawn_once_in_a_frame_with_their_count() -> None:
    scene = compose(Network("net", tuple(map(layer, range(12)))))
    assert len(labels(scene, "$=$")) == 1
    (frame,) = [shape for shape in scene.frames if shape.style == "block"]
    (count,) = labels(scene, r"$\times\,12$")
    (note,) = labels(scene, r"next round: $\mathbf{X}_{1}\,\to\,\mathbf{X}_{0}$")
    for label in (count, note):
        assert frame.box[0] < label.box[0] < label.box[2] < frame.box[2]
        assert frame.box[1] < label.box[1] < label.box[3] < frame.box[3]
    assert all(frame.covers((shape.x, shape.y)) for shape in scene.shapes)
    assert "repeated 12 times" in frame.description
    assert lint(scene) == ()


def test_lines_before_and_after_a_block_are_outside_its_frame_in_order() -> None:
    start = layer(-1, name="start", read="tokens")
    start = Step("x0", start.body, r"\mathbf{E}")
    end = Step("head", layer(3).body, r"\mathbf{Y}")
    scene = compose(Network("net", (start, *map(layer, range(3)), end)))
    (frame,) = [shape for shape in scene.frames if shape.style == "block"]
    heights = [middle(label) for label in labels(scene, "$=$")]
    assert heights == sorted(heights)
    assert heights[0] < frame.box[1]
    assert frame.box[1] < heights[1] < frame.box[3]
    assert frame.box[3] < heights[2]
    # The head reads the last block, whose picture is that of the first.
    (read,) = [label for label in scene.labels if label.owner == "head:X"]
    assert read.text == r"$\mathbf{X}_{1}$"
    assert lint(scene) == ()


def test_blocks_without_a_carried_value_have_no_note() -> None:
    steps = (layer(0, read="tokens"), layer(1, read="tokens"))
    scene = compose(Network("net", steps))
    assert labels(scene, r"$\times\,2$")
    assert not [label for label in scene.labels if label.text.startswith("next round")]


def test_a_sum_of_several_lines_has_its_name_on_the_first() -> None:
    def terms() -> Iterator[Term]:
        for number in range(8):
            body = layer(number, name="t").body
            assert isinstance(body, Diagram)
            yield Term(body)

    scene = compose(Network("net", (Step("y", Sum("sum", tuple(terms()))),)))
    (equals,) = labels(scene, "$=$")
    rows = sorted({round(shape.y, 6) for shape in scene.shapes})
    assert len(rows) > 1
    assert abs(middle(equals) - rows[0]) < 1e-6


def test_a_long_network_is_set_in_columns() -> None:
    letters = "abcdefghijklmnopqrstuvwxyz"
    steps = tuple(layer(0, name=letter, read="tokens") for letter in letters)
    scene = compose(Network("net", steps))
    left, top, right, bottom = scene.box
    assert bottom - top < 2 * (right - left)
    assert [wire for wire in scene.wires if wire.style == "rule"]
    assert lint(scene) == ()
