import re
import sys
import zlib
from dataclasses import replace
from io import BytesIO

import matplotlib as mpl
import numpy as np
import pytest
from PIL import Image

from rankscope.drawing import (
    DARK,
    LIGHT,
    THEMES,
    Scene,
    Shape,
    ShapeKind,
    Theme,
    Wire,
    channels,
    to_pdf,
    to_png,
)
from rankscope.errors import MissingExtraError, RequestError

SQUARE = Scene(
    "square", shapes=(Shape("A", ShapeKind.SQUARE, 0.0, 0.0, 60.0, 40.0, "data"),), margin=10.0
)


def pixels(png: bytes) -> np.ndarray:
    with Image.open(BytesIO(png)) as picture:
        assert picture.format == "PNG"
        return np.asarray(picture.convert("RGB"))


def rgb(color: str) -> tuple[int, ...]:
    return tuple(round(255 * channel) for channel in channels(color))


def streams(pdf: bytes) -> bytes:
    """All streams of a PDF, decompressed."""
    found = re.findall(rb"stream\r?\n(.*?)\r?\nendstream", pdf, re.DOTALL)
    return b"\n".join(zlib.decompress(part) for part in found)


@pytest.mark.parametrize("scale", [1.0, 2.0, 3.5])
def test_a_png_has_scale_dots_for_every_pixel(scale: float) -> None:
    height, width, _ = pixels(to_png(SQUARE, scale=scale)).shape
    assert (width, height) == (80 * scale, 60 * scale)


@pytest.mark.parametrize("theme", THEMES.values(), ids=list(THEMES))
def test_a_png_has_the_colours_of_the_theme_where_the_scene_says(theme: Theme) -> None:
    found = pixels(to_png(SQUARE, theme, scale=2.0))
    paint = theme.shape("data")
    assert paint.fill is not None
    assert tuple(found[0, 0]) == rgb(theme.background)
    assert tuple(found[60, 80]) == rgb(paint.fill)
    # The outline runs along x = -30, ten pixels from the left edge.
    assert tuple(found[60, 20]) == rgb(paint.stroke)


def test_y_points_down() -> None:
    below = Shape("B", ShapeKind.DOT, 0.0, 100.0, 40.0, 40.0, "junction-rank")
    found = pixels(to_png(replace(SQUARE, marks=(below,)), scale=1.0))
    assert tuple(found[110 + 20, 40]) == rgb(LIGHT.wire("wire-rank").color)


def test_dots_of_a_batch_wire_leave_gaps() -> None:
    wire = Wire("b", ((0.0, 0.0), (200.0, 0.0)), "wire-batch", width=4.0)
    row = pixels(to_png(Scene("s", wires=(wire,)), scale=2.0))[36]
    is_blank = (row == 255).all(axis=1)
    changes = int((is_blank[1:] != is_blank[:-1]).sum())
    assert changes > 30
    solid = replace(wire, style="wire-rank")
    row = pixels(to_png(Scene("s", wires=(solid,)), scale=2.0))[36]
    is_blank = (row == 255).all(axis=1)
    assert int((is_blank[1:] != is_blank[:-1]).sum()) == 2


@pytest.mark.parametrize("scale", [0.0, -1.0, float("nan"), float("inf")])
def test_a_scale_that_is_not_positive_is_refused(scale: float) -> None:
    with pytest.raises(RequestError, match=rf"must be a positive number, got {scale}"):
        to_png(SQUARE, scale=scale)


def test_a_picture_beyond_the_largest_side_is_refused_with_its_size() -> None:
    with pytest.raises(RequestError, match=r"80,000 x 60,000 dots are more than 65,535 on a side"):
        to_png(SQUARE, scale=1000.0)


def test_a_picture_of_too_many_dots_is_refused() -> None:
    with pytest.raises(RequestError, match=r"24,000 x 18,000 dots .* 268,435,456 in all"):
        to_png(SQUARE, scale=300.0)


@pytest.mark.parametrize("theme", THEMES.values(), ids=list(THEMES))
def test_a_pdf_is_one_page_of_vectors_without_bitmap_font_or_date(
    gallery: Scene, theme: Theme
) -> None:
    pdf = to_pdf(gallery, theme)
    content = pdf + streams(pdf)
    assert pdf.startswith(b"%PDF")
    assert content.count(b"/Type /Page ") == 1
    for word in (b"/Subtype /Image", b"/Type /Font", b"/FontFile", b"CreationDate", b"Producer"):
        assert word not in content
    # Text would be between BT and ET.
    assert not re.search(rb"\bBT\b", streams(pdf))
    assert b"Every style" in content


def test_a_pdf_page_is_three_quarters_of_a_point_for_every_pixel() -> None:
    content = to_pdf(SQUARE) + streams(to_pdf(SQUARE))
    box = re.search(rb"/MediaBox \[ 0 0 ([\d.]+) ([\d.]+) \]", content)
    assert box is not None
    assert (float(box[1]), float(box[2])) == (80 * 0.75, 60 * 0.75)


def test_drawing_leaves_the_settings_of_matplotlib_alone(gallery: Scene) -> None:
    before = dict(mpl.rcParams)
    to_png(gallery)
    to_pdf(gallery, DARK)
    assert dict(mpl.rcParams) == before


@pytest.mark.parametrize(
    ("engine", "what"), [("backend_agg", "PNG"), ("backend_pdf", "PDF")], ids=["png", "pdf"]
)
def test_without_matplotlib_the_extra_is_named(
    monkeypatch: pytest.MonkeyPatch, engine: str, what: str
) -> None:
    monkeypatch.setitem(sys.modules, f"matplotlib.backends.{engine}", None)
    with pytest.raises(MissingExtraError, match=rf"Drawing {what} needs matplotlib.*\[draw\]"):
        to_png(SQUARE) if what == "PNG" else to_pdf(SQUARE)
