"""Scenes as PNG and PDF, through matplotlib's drawing engines and nothing of its global state.

No pyplot, no change of settings, no fonts: text is drawn as the outlines that SVG has too. A PDF
holds vectors only. Neither file holds a date, so that the same scene gives the same bytes.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from io import BytesIO
from pathlib import Path
from types import ModuleType
from typing import Any

from rankscope.drawing.polygons import shape_path, view_box, wire_path
from rankscope.drawing.scene import Command, Point, Scene
from rankscope.drawing.themes import LIGHT, Theme, channels
from rankscope.drawing.typesetting import outline
from rankscope.errors import MissingExtraError, OutputError, RequestError
from rankscope.files import write_atomically

PIXELS_PER_INCH = 96
POINTS_PER_PIXEL = 72 / PIXELS_PER_INCH
# Agg counts pixels of a side in 16 bits, and takes four bytes for each.
LONGEST_SIDE = 2**16 - 1
MOST_PIXELS = 2**28


@dataclass(frozen=True)
class _Ink:
    """One path with its paint, in pixels of the scene."""

    commands: tuple[Command, ...]
    fill: str | None = None
    stroke: str | None = None
    width: float = 0.0
    dash: tuple[float, ...] = ()
    is_round: bool = False
    origin: Point = (0.0, 0.0)


@dataclass(frozen=True)
class _Page:
    """Units of the engine for every pixel of the scene, and how many units the page is high."""

    scale: float
    height: float


def to_png(scene: Scene, theme: Theme = LIGHT, *, scale: float = 2.0) -> bytes:
    """Draw a scene as PNG, `scale` dots for every pixel of the scene.

    Raises:
        MissingExtraError: if matplotlib is not installed.
        RequestError: if `scale` is not positive, or makes the picture too large.
    """
    left, top, right, bottom = view_box(scene)
    width, height = _dots(right - left, scale), _dots(bottom - top, scale)
    if max(width, height) > LONGEST_SIDE or width * height > MOST_PIXELS:
        raise RequestError(
            f"PNG of {scene.name!r}: {width:,} x {height:,} dots are more than {LONGEST_SIDE:,} on "
            f"a side or {MOST_PIXELS:,} in all. Lower scale={scale}, or write SVG or PDF."
        )
    dots_per_inch = PIXELS_PER_INCH * scale
    renderer = _engine("backend_agg", "PNG").RendererAgg(width, height, dots_per_inch)
    _draw(renderer, scene, theme, _Page(scale, float(height)))
    # Pillow comes with matplotlib, which needs it.
    from PIL import Image

    buffer = BytesIO()
    picture = Image.frombuffer("RGBA", (width, height), bytes(renderer.buffer_rgba()))
    # The background is opaque, so the alpha channel says nothing.
    picture.convert("RGB").save(buffer, "PNG", dpi=(dots_per_inch, dots_per_inch))
    return buffer.getvalue()


def to_pdf(scene: Scene, theme: Theme = LIGHT) -> bytes:
    """Draw a scene as PDF of one page, 0.75 pt for every pixel of the scene.

    Raises:
        MissingExtraError: if matplotlib is not installed.
    """
    engine = _engine("backend_pdf", "PDF")
    left, top, right, bottom = view_box(scene)
    width, height = (right - left) / PIXELS_PER_INCH, (bottom - top) / PIXELS_PER_INCH
    buffer = BytesIO()
    # None takes an entry out: no date and no version may change the bytes.
    facts = {"CreationDate": None, "Creator": None, "Producer": None}
    file = engine.PdfFile(buffer, metadata=facts | {"Title": scene.title or scene.name})
    try:
        file.newPage(width, height)
        renderer = engine.RendererPdf(file, 72, height, width)
        _draw(renderer, scene, theme, _Page(POINTS_PER_PIXEL, 72 * height))
        renderer.finalize()
        file.finalize()
    finally:
        file.close()
    return buffer.getvalue()


def _dots(length: float, scale: float) -> int:
    if not (math.isfinite(scale) and scale > 0):
        raise RequestError(f"The scale of a PNG must be a positive number, got {scale}.")
    return max(1, math.ceil(round(length * scale, 6)))


def _inks(scene: Scene, theme: Theme) -> Iterator[_Ink]:
    left, top, right, bottom = view_box(scene)
    page: tuple[Command, ...] = (
        ("M", (left, top)),
        ("L", (right, top)),
        ("L", (right, bottom)),
        ("L", (left, bottom)),
        ("Z", ()),
    )
    yield _Ink(page, theme.background)
    yield from _shape_inks(scene, theme, "frames")
    for wire in scene.wires:
        stroke = theme.wire(wire.style)
        dash = tuple(length * wire.width for length in stroke.dash)
        yield _Ink(wire_path(wire), None, stroke.color, wire.width, dash, is_round=True)
    yield from _shape_inks(scene, theme, "shapes")
    yield from _shape_inks(scene, theme, "marks")
    for label in scene.labels:
        commands = outline(label.text, label.size).commands
        yield _Ink(commands, theme.label(label.style), origin=(label.x, label.y))


def _shape_inks(scene: Scene, theme: Theme, layer: str) -> Iterator[_Ink]:
    for shape in getattr(scene, layer):
        paint = theme.shape(shape.style)
        is_round = bool(paint.dash) and paint.dash[0] < 1
        yield _Ink(
            shape_path(shape), paint.fill, paint.stroke, paint.width, paint.dash, is_round=is_round
        )


def _engine(name: str, what: str) -> ModuleType:
    try:
        return import_module(f"matplotlib.backends.{name}")
    except ImportError as error:
        raise MissingExtraError(
            what=f"Drawing {what}", package="matplotlib", extra="draw"
        ) from error


# The engines, and the paths they read, have no useful types; hence Any.
def _draw(renderer: Any, scene: Scene, theme: Theme, page: _Page) -> None:
    from matplotlib.transforms import Affine2D

    left, top, _, _ = view_box(scene)
    # Matplotlib's y points up from the bottom edge.
    to_page = Affine2D().translate(-left, -top).scale(page.scale, -page.scale)
    to_page = to_page.translate(0, page.height)
    for ink in _inks(scene, theme):
        if not ink.commands:
            continue
        context = renderer.new_gc()
        context.set_antialiased(True)
        context.set_snap(False)
        context.set_linewidth(ink.width * POINTS_PER_PIXEL if ink.stroke else 0.0)
        context.set_foreground(channels(ink.stroke or theme.background))
        context.set_capstyle("round" if ink.is_round else "butt")
        context.set_joinstyle("round")
        if ink.dash:
            context.set_dashes(0.0, [length * POINTS_PER_PIXEL for length in ink.dash])
        face = channels(ink.fill) if ink.fill else None
        transform = Affine2D().translate(*ink.origin) + to_page
        renderer.draw_path(context, _path(ink.commands), transform, face)
        context.restore()


def _path(commands: tuple[Command, ...]) -> Any:
    from matplotlib.path import Path

    kinds = {"M": Path.MOVETO, "L": Path.LINETO, "Q": Path.CURVE3, "C": Path.CURVE4}
    vertices: list[Point] = []
    codes: list[int] = []
    for letter, values in commands:
        points = list(zip(values[::2], values[1::2], strict=True)) or [(0.0, 0.0)]
        vertices += points
        codes += [int(kinds.get(letter, Path.CLOSEPOLY))] * len(points)
    path = Path(vertices, codes)
    path.should_simplify = False
    return path


# --- Matplotlib figures as files: one look, the same bytes each time, nothing global changed ------


# No date and no version may change the bytes.
_FACTS: dict[str, dict[str, None]] = {
    ".svg": {"Date": None, "Creator": None},
    ".pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    ".png": {"Software": None},
}
_SETTINGS = {
    "svg.hashsalt": "rankscope",
    "svg.fonttype": "path",
    "font.family": "DejaVu Sans",
    "font.size": 9.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
}
_DOTS_PER_INCH = 200


# Matplotlib's classes can only be named where it is imported; hence Any.
def write_figure(path: Path | str, make: Callable[[], Any], *, what: str = "a figure") -> Path:
    """Write what `make` gives, a matplotlib `Figure`, to a .svg, .pdf or .png file.

    Args:
        path: of the file; its ending chooses the format.
        make: called with the settings of this package.
        what: is drawn, for messages: "a plan".

    Raises:
        OutputError: if the ending is none of these, or the file cannot be written.
        MissingExtraError: if matplotlib is not installed.
    """
    target = Path(path)
    if target.suffix not in _FACTS:
        raise OutputError(
            f"Drawing {what} writes {', '.join(_FACTS)}, got {target.name!r}; choose one of these "
            "endings."
        )
    try:
        matplotlib = import_module("matplotlib")
    except ImportError as error:
        raise MissingExtraError(
            what=f"Drawing {what}", package="matplotlib", extra="draw"
        ) from error
    buffer = BytesIO()
    with matplotlib.rc_context(_SETTINGS):
        make().savefig(
            buffer, format=target.suffix[1:], dpi=_DOTS_PER_INCH, metadata=_FACTS[target.suffix]
        )
    write_atomically(target, buffer.getvalue())
    return target
