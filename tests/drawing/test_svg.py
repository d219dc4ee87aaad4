import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.drawing import (
    DARK,
    LIGHT,
    THEMES,
    Scene,
    Selectable,
    Shape,
    ShapeKind,
    Theme,
    Wire,
    outline,
    place_label,
    to_svg,
)
from rankscope.errors import DiagramError, RequestError

NAMESPACE = "{http://www.w3.org/2000/svg}"


def elements(text: str, kind: str) -> list[ElementTree.Element]:
    """Elements whose first class is `kind`."""
    found = [part for part in ElementTree.fromstring(text).iter() if part.get("class")]
    return [part for part in found if str(part.get("class")).split()[0] == kind]


def test_everything_is_drawn_once_and_can_be_read_aloud(gallery: Scene) -> None:
    text = to_svg(gallery)
    styles = {
        "frame": [frame.style for frame in gallery.frames],
        "wire": [wire.style for wire in gallery.wires],
        "tensor": [shape.style for shape in gallery.shapes],
        "mark": [mark.style for mark in gallery.marks],
        "label": [label.style for label in gallery.labels],
    }
    for kind, expected in styles.items():
        found = elements(text, kind)
        assert [str(part.get("class")).split()[1] for part in found] == expected
        assert all(part.get("aria-label") for part in found)
    described = elements(text, "tensor")[0]
    assert described.get("aria-label") == "tensor T0"
    assert described.get("data-name") == "T0"


def test_layers_are_painted_in_their_order(gallery: Scene) -> None:
    order = [
        str(part.get("class")).split()[0]
        for part in ElementTree.fromstring(to_svg(gallery))
        if part.get("class")
    ]
    assert list(dict.fromkeys(order)) == ["background", "frame", "wire", "tensor", "mark", "label"]
    assert order == sorted(order, key=list(dict.fromkeys(order)).index)


def test_the_picture_has_a_role_a_title_and_a_description(gallery: Scene) -> None:
    root = ElementTree.fromstring(to_svg(gallery, prefix="step-3-"))
    title, description = root.find(f"{NAMESPACE}title"), root.find(f"{NAMESPACE}desc")
    assert title is not None
    assert description is not None
    assert root.get("role") == "img"
    assert root.get("aria-labelledby") == "step-3-title step-3-description"
    assert (title.get("id"), title.text) == ("step-3-title", "Every style")
    assert (description.get("id"), description.text) == ("step-3-description", "A gallery.")


def test_ids_are_unique_and_prefixes_keep_two_pictures_apart(gallery: Scene) -> None:
    page = to_svg(gallery, prefix="a-") + to_svg(gallery, prefix="b-")
    identities = re.findall(r' id="([^"]*)"', page)
    assert len(identities) == len(set(identities)) == 4


def test_a_prefix_that_would_break_an_id_is_refused(gallery: Scene) -> None:
    with pytest.raises(RequestError, match=r"letters, digits and _ \. : - only, got 'a b'"):
        to_svg(gallery, prefix="a b")


def test_no_font_is_needed(gallery: Scene) -> None:
    text = to_svg(gallery)
    assert "<text" not in text
    assert "font" not in text


@pytest.mark.parametrize("theme", THEMES.values(), ids=list(THEMES))
def test_colours_are_those_of_the_theme(gallery: Scene, theme: Theme) -> None:
    text = to_svg(gallery, theme)
    for shape, part in zip(gallery.shapes, elements(text, "tensor"), strict=True):
        paint = theme.shape(shape.style)
        assert (part.get("fill"), part.get("stroke")) == (paint.fill, paint.stroke)
    for wire, part in zip(gallery.wires, elements(text, "wire"), strict=True):
        assert part.get("stroke") == theme.wire(wire.style).color
    for label, part in zip(gallery.labels, elements(text, "label"), strict=True):
        assert part.get("fill") == theme.label(label.style)
    assert elements(text, "background")[0].get("fill") == theme.background


def test_wires_have_round_caps_and_batch_wires_are_dotted(gallery: Scene) -> None:
    for part in elements(to_svg(gallery), "wire"):
        assert part.get("stroke-linecap") == "round"
        assert part.get("fill") == "none"
        style = str(part.get("class")).split()[1]
        assert (part.get("stroke-dasharray") is not None) == (style in ("wire-batch", "cut"))


@pytest.mark.parametrize("width", [1.2, 2.4, 6.0])
def test_dots_are_as_far_apart_as_their_wire_is_wide(width: float) -> None:
    wire = Wire("b", ((0.0, 0.0), (99.0, 0.0)), "wire-batch", width=width)
    part = elements(to_svg(Scene("s", wires=(wire,))), "wire")[0]
    lengths = [float(length) for length in str(part.get("stroke-dasharray")).split()]
    expected = [width * length for length in LIGHT.wire("wire-batch").dash]
    assert lengths == pytest.approx(expected, abs=0.005)


def test_frames_are_dashed_and_dotted(gallery: Scene) -> None:
    barrier, plate, block = elements(to_svg(gallery), "frame")
    assert barrier.get("stroke-dasharray") == "7 5"
    assert plate.get("stroke-linecap") == "round"
    assert plate.get("fill") == "none"
    assert block.get("stroke-dasharray") is None


def test_coordinates_have_one_digit_and_no_negative_zero(gallery: Scene) -> None:
    text = to_svg(gallery.shifted(1 / 3, -1 / 3))
    for part in (*elements(text, "tensor"), *elements(text, "wire"), *elements(text, "mark")):
        geometry = " ".join(
            part.get(key, "") for key in ("d", "x", "y", "cx", "cy", "r", "rx", "width", "height")
        )
        assert not re.search(r"\.\d\d", geometry), geometry
    tiny = Shape("A", ShapeKind.CIRCLE, -0.01, -0.04, 54.0, 54.0, "data")
    circle = elements(to_svg(Scene("s", shapes=(tiny,))), "tensor")[0]
    assert (circle.get("cx"), circle.get("cy")) == ("0", "0")


def test_an_outline_is_written_to_a_hundredth_of_a_pixel() -> None:
    label = place_label(r"$\mathcal{G}_{17}$", (50.0, 60.0), size=25.0, style="on-core")
    part = elements(to_svg(Scene("s", labels=(label,))), "label")[0]
    assert part.get("transform") == f"translate({label.x:.2f} {label.y:.2f}) scale(0.01)"
    written = follow(str(part.get("d")))
    wanted = [values[-2:] for _, values in outline(label.text, label.size).commands if values]
    assert len(written) == len(wanted)
    for (x, y), (expected_x, expected_y) in zip(written, wanted, strict=True):
        assert abs(x / 100 - expected_x) <= 0.005 + 1e-9
        assert abs(y / 100 - expected_y) <= 0.005 + 1e-9


def follow(path: str) -> list[tuple[int, int]]:
    """The points that a path of absolute moves and relative lines and curves ends its pieces in."""
    x = y = 0
    points: list[tuple[int, int]] = []
    for letter, values in re.findall(r"([MlqcZz])([^MlqcZz]*)", path):
        numbers = [int(number) for number in values.split()]
        if letter == "M":
            x, y = numbers
        elif numbers:
            x, y = x + numbers[-2], y + numbers[-1]
        if numbers:
            points.append((x, y))
    return points


@settings(deadline=None, max_examples=60)
@given(text=st.text(max_size=20))
def test_any_name_gives_valid_xml(text: str) -> None:
    shape = Shape(text, ShapeKind.DIAMOND, 0.0, 0.0, 9.0, 9.0, "normalized", text)
    wire = Wire(text, ((0.0, 0.0), (9.0, 9.0)), "wire-rank", description=text)
    scene = Scene(text, text, text, shapes=(shape,), wires=(wire,), marks=(shape,))
    root = ElementTree.fromstring(to_svg(scene).encode("utf-8"))
    assert root.tag == f"{NAMESPACE}svg"


def test_what_xml_cannot_say_becomes_a_replacement_character() -> None:
    shape = Shape("a\x00\ud800b", ShapeKind.CIRCLE, 0.0, 0.0, 9.0, 9.0, "data")
    assert elements(to_svg(Scene("s", shapes=(shape,))), "tensor")[0].get("data-name") == "a��b"


def test_labels_can_be_selectable_text(gallery: Scene) -> None:
    labels = tuple(label for label in gallery.labels if "sqrt[" not in label.text)
    text = to_svg(replace(gallery, labels=labels), lettering=Selectable("serif"))
    found = [part for part in elements(text, "label") if part.tag == f"{NAMESPACE}text"]
    assert len(found) == len(labels)
    assert {part.get("font-family") for part in found} == {"serif"}
    assert "".join(found[0].itertext()) == "T0"
    bold, script = found[0]
    assert (bold.get("font-weight"), script.get("font-weight")) == ("bold", None)
    assert float(str(script.get("y"))) > float(str(bold.get("y")))
    assert float(str(script.get("font-size"))) < float(str(bold.get("font-size")))


def test_selectable_text_refuses_what_has_no_character() -> None:
    label = place_label(r"$\bigstar$", (0.0, 0.0), size=20.0, style="muted")
    with pytest.raises(DiagramError, match=r"\\bigstar, which has no character"):
        to_svg(Scene("s", labels=(label,)), lettering=Selectable())


def test_the_view_box_holds_the_margin(gallery: Scene) -> None:
    root = ElementTree.fromstring(to_svg(replace(gallery, margin=7.0), DARK))
    left, top, width, height = (float(edge) for edge in str(root.get("viewBox")).split())
    box = gallery.box
    assert left == pytest.approx(box[0] - 7, abs=0.05)
    assert top == pytest.approx(box[1] - 7, abs=0.05)
    assert (width, height) == pytest.approx((box[2] - box[0] + 14, box[3] - box[1] + 14), abs=0.1)
    assert root.get("width") == f"{width:g}"
    assert str(root.get("class")) == "rankscope dark"


def test_the_default_theme_is_light(gallery: Scene) -> None:
    assert to_svg(gallery) == to_svg(gallery, LIGHT)
