"""Scenes as SVG: valid XML, no fonts needed, readable by a screen reader and by CSS.

Every tensor, wire and mark is one element with an `aria-label`, a `data-name` and two classes:
what it is ("tensor", "wire", "mark", "frame", "label") and its style. Colours are presentation
attributes, so that a style sheet may override them.
"""

import re
from dataclasses import dataclass
from functools import lru_cache
from xml.sax.saxutils import escape, quoteattr

from rankscope.drawing.polygons import (
    BOX_KINDS,
    ROUND_KINDS,
    corner_radius,
    shape_path,
    view_box,
    wire_path,
)
from rankscope.drawing.scene import Command, Label, Scene, Shape, Wire, decimal
from rankscope.drawing.themes import LIGHT, Paint, Theme
from rankscope.drawing.typesetting import Run, outline, plain_text, text_runs
from rankscope.errors import RequestError

# XML 1.0 has no way to write these characters, not even escaped.
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_IDENTIFIER = re.compile(r"[A-Za-z0-9_.:-]*")
SCRIPT_SCALE = 0.7


@dataclass(frozen=True)
class Outlined:
    """Labels as outlines: the same picture in every viewer, no font needed."""


@dataclass(frozen=True)
class Selectable:
    """Labels as text that can be selected and searched, in the first font that is installed."""

    font_family: str = "'STIX Two Math', STIXGeneral, 'Cambria Math', 'Times New Roman', serif"


Lettering = Outlined | Selectable
OUTLINED = Outlined()


def to_svg(
    scene: Scene, theme: Theme = LIGHT, *, lettering: Lettering = OUTLINED, prefix: str = ""
) -> str:
    """Write a scene as one SVG element; `prefix` keeps its ids apart from others in a page.

    Raises:
        DiagramError: if a label cannot be read.
        LayoutError: if the theme does not know a style.
        RequestError: if `prefix` cannot be part of an id.
    """
    if not _IDENTIFIER.fullmatch(prefix):
        raise RequestError(
            f"A prefix of SVG ids may hold letters, digits and _ . : - only, got {prefix!r}."
        )
    left, top, right, bottom = view_box(scene)
    width, height = right - left, bottom - top
    title, description = f"{prefix}title", f"{prefix}description"
    size = f'width="{_tenth(width)}" height="{_tenth(height)}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="rankscope {theme.name}" {size}',
        f'  viewBox="{_tenth(left)} {_tenth(top)} {_tenth(width)} {_tenth(height)}"',
        f'  role="img" aria-labelledby="{title} {description}">',
        f'<title id="{title}">{_text(scene.title or scene.name)}</title>',
        f'<desc id="{description}">{_text(scene.description)}</desc>',
        f'<rect class="background" x="{_tenth(left)}" y="{_tenth(top)}" {size}',
        f'  fill="{theme.background}"/>',
    ]
    lines += [_shape(shape, "frame", theme) for shape in scene.frames]
    lines += [_wire(wire, theme) for wire in scene.wires]
    lines += [_shape(shape, "tensor", theme) for shape in scene.shapes]
    lines += [_shape(shape, "mark", theme) for shape in scene.marks]
    lines += [_label(label, theme, lettering) for label in scene.labels]
    return "\n".join((*lines, "</svg>", ""))


def _shape(shape: Shape, what: str, theme: Theme) -> str:
    names = _names(what, shape.style, shape.name, shape.description)
    return f"<{_geometry(shape)} {names} {_paint(theme.shape(shape.style))}/>"


def _geometry(shape: Shape) -> str:
    if shape.kind in ROUND_KINDS:
        place = f'cx="{_tenth(shape.x)}" cy="{_tenth(shape.y)}"'
        return f'circle {place} r="{_tenth(shape.width / 2)}"'
    if shape.kind in BOX_KINDS:
        left, top, _, _ = shape.box
        return (
            f'rect x="{_tenth(left)}" y="{_tenth(top)}" width="{_tenth(shape.width)}" '
            f'height="{_tenth(shape.height)}" rx="{_tenth(corner_radius(shape))}"'
        )
    return f'path d="{_path(shape_path(shape))}" stroke-linejoin="round"'


def _paint(paint: Paint) -> str:
    written = f'fill="{paint.fill or "none"}" stroke="{paint.stroke}" stroke-width="{paint.width}"'
    return written + _dash(paint.dash)


def _dash(lengths: tuple[float, ...]) -> str:
    if not lengths:
        return ""
    # Dots are dashes of no length that only a round cap makes visible.
    cap = ' stroke-linecap="round"' if lengths[0] < 1 else ""
    return f' stroke-dasharray="{" ".join(decimal(length) for length in lengths)}"{cap}'


def _wire(wire: Wire, theme: Theme) -> str:
    stroke = theme.wire(wire.style)
    dash = ""
    if stroke.dash:
        lengths = " ".join(decimal(length * wire.width) for length in stroke.dash)
        dash = f' stroke-dasharray="{lengths}"'
    return (
        f'<path d="{_path(wire_path(wire))}" '
        f"{_names('wire', wire.style, wire.name, wire.description)} "
        f'fill="none" stroke="{stroke.color}" stroke-width="{decimal(wire.width)}" '
        f'stroke-linecap="round" stroke-linejoin="round"{dash}/>'
    )


def _label(label: Label, theme: Theme, lettering: Lettering) -> str:
    color = theme.label(label.style)
    names = _names("label", label.style, label.owner, plain_text(label.text))
    match lettering:
        case Outlined():
            path = _label_path(label.text, label.size)
            place = f"translate({decimal(label.x)} {decimal(label.y)}) scale(0.01)"
            return f'<path d="{path}" transform="{place}" {names} fill="{color}"/>'
        case Selectable(font_family):
            middle = (label.box[0] + label.box[2]) / 2
            spans = "".join(_span(run, label) for run in text_runs(label.text))
            return (
                f'<text x="{decimal(middle)}" y="{decimal(label.y)}" text-anchor="middle" '
                f'font-family={quoteattr(font_family)} font-size="{decimal(label.size)}" '
                f'{names} fill="{color}">{spans}</text>'
            )


def _span(run: Run, label: Label) -> str:
    size = label.size * SCRIPT_SCALE**run.level
    # An absolute y: `dy` would have to be undone by the next span, and baseline-shift is not
    # everywhere.
    y = label.y - run.shift * label.size
    style = {"italic": ' font-style="italic"', "bold": ' font-weight="bold"'}.get(run.font, "")
    place = f'y="{decimal(y)}" font-size="{decimal(size)}"'
    return f"<tspan {place}{style}>{_text(run.text)}</tspan>"


def _names(what: str, style: str, name: str, description: str) -> str:
    named = f" data-name={_attribute(name)}" if name else ""
    return f'class="{what} {style}"{named} aria-label={_attribute(description or name or what)}'


@lru_cache(maxsize=4096)
def _label_path(text: str, size: float) -> str:
    """The outline in whole hundredths of a pixel, relative to each last point: short to write."""
    written: list[str] = []
    x = y = 0
    for letter, values in outline(text, size).commands:
        places = [round(100 * value) for value in values]
        if letter == "M":
            written.append(f"M{places[0]} {places[1]}")
        else:
            moves = [str(value - (y if place % 2 else x)) for place, value in enumerate(places)]
            written.append(letter.lower() + " ".join(moves))
        if places:
            x, y = places[-2:]
    return "".join(written)


def _path(commands: tuple[Command, ...]) -> str:
    return "".join(
        letter + " ".join([_tenth(value) for value in values]) for letter, values in commands
    )


def _tenth(value: float) -> str:
    return decimal(value, 1)


def _text(text: str) -> str:
    return escape(_FORBIDDEN.sub("\ufffd", text))


def _attribute(text: str) -> str:
    return quoteattr(_FORBIDDEN.sub("\ufffd", text))
