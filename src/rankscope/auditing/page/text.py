"""Words, colours and templates of the audit page."""

import json
import math
import re
from collections.abc import Iterable, Mapping
from html import escape
from importlib.resources import files
from pathlib import PurePath

from rankscope.auditing.auditor import Audit
from rankscope.auditing.configuration import Configuration
from rankscope.drawing.themes import DARK, LIGHT, Paint, Theme

# --- Numbers and sentences that a stranger understands --------------------------------------------


PART_NAMES = {
    "embedding": "Embedding",
    "attention": "Attention",
    "feed_forward": "Feed-forward",
    "normalization": "Normalization",
    "head": "Head",
    "other": "Other",
}
SCALES = ((10**12, "trillion"), (10**9, "billion"), (10**6, "million"))


def readable(value: float | int) -> str:
    """A number with at most four digits that count, or all of them for an integer.

    Example:
        >>> readable(16384), readable(16384.0), readable(0.400612), readable(float("inf"))
        ('16,384', '16,384', '0.4006', 'not finite')
    """
    if not math.isfinite(value):
        return "not finite"
    is_written_out = value == round(value) or abs(value) >= 1000
    return f"{value:,.0f}" if is_written_out and abs(value) < 1e15 else f"{value:.4g}"


def percent(share: float) -> str:
    """A share as a percentage.

    Example:
        >>> percent(0.4006), percent(0.00004)
        ('40.1 %', '0.004 %')
    """
    return f"{100 * share:.1f} %" if share == 0 or share >= 0.001 else f"{100 * share:.1g} %"


def count_in_words(count: int) -> str:
    """A count as one would say it.

    Example:
        >>> count_in_words(11_307_321_344), count_in_words(260_032)
        ('11.31 billion', '260,032')
    """
    for scale, name in SCALES:
        if count >= scale:
            return f"{count / scale:.4g} {name}"
    return f"{count:,}"


def shape_text(shape: tuple[int, ...]) -> str:
    """A shape as it is written on paper.

    Example:
        >>> shape_text((768, 3072)), shape_text(())
        ('768 × 3,072', 'a number')
    """
    return " × ".join(f"{size:,}" for size in shape) or "a number"


def breakable(name: str) -> str:
    """A name as HTML that may break where a reader would.

    Example:
        >>> breakable("a.b_c<d")
        'a.<wbr>b_<wbr>c&lt;d'
    """
    return escape(name).replace(".", ".<wbr>").replace("_", "_<wbr>")


def model_name(audit: Audit) -> str:
    """The last part of where it was read from."""
    return PurePath(audit.source).name or audit.source


def model_sentence(audit: Audit) -> str:
    """What kind of model this is, in one or two sentences."""
    if audit.configuration is None:
        shape = f"{_tensors(len(audit.tensors))}; nothing says how they are connected."
    else:
        shape = _shape_sentence(audit.configuration)
        if audit.tensors:
            shape += f" The weights hold {_tensors(len(audit.tensors))}."
    return f"{shape[0].upper()}{shape[1:]}"


def _tensors(count: int) -> str:
    return f"{count:,} tensor{'' if count == 1 else 's'}"


def _shape_sentence(shape: Configuration) -> str:
    if shape.encoder_depth is not None and shape.decoder_depth is not None:
        blocks = f"{shape.encoder_depth} blocks that read and {shape.decoder_depth} that write"
    else:
        blocks = f"{shape.depth} block{'' if shape.depth == 1 else 's'}"
    heads = f"{shape.heads} attention heads of size {shape.head_size}"
    if shape.key_value_heads < shape.heads:
        heads += f" that share keys and values in {shape.key_value_heads} groups"
    inner = f"a feed-forward part of inner size {shape.feed_forward:,}"
    if shape.num_experts > 1:
        inner = f"{shape.num_experts} feed-forward experts of inner size {shape.feed_forward:,}"
    if shape.vocabulary is None:
        words = "It reads images."
    else:
        words = f"It knows {shape.vocabulary:,} tokens."
    return (
        f"a transformer of the {shape.family} family: {blocks} on vectors of width "
        f"{shape.width:,}, each with {heads} and {inner}. {words}"
    )


# --- Files of the page put together: templates, and data that cannot break out of its script ------


PLACE = re.compile(r"@(\w+)@")


def asset(name: str) -> str:
    """The text of a file in `assets/`."""
    return (files("rankscope.auditing.page") / "assets" / name).read_text("utf-8")


def fill(template: str, texts: Mapping[str, str]) -> str:
    """Put a text at every `@place@`, in one pass: a text with such a place in it stays a text.

    Example:
        >>> fill("<p>@one@</p>", {"one": "@two@"})
        '<p>@two@</p>'
    """
    return PLACE.sub(lambda match: texts[match[1]], template)


def embedded_json(value: object) -> str:
    r"""JSON for a script element: the text cannot end it, and numbers that JSON lacks are null.

    Example:
        >>> embedded_json({"name": "</script>", "rank": float("nan")})
        '{"name":"\\u003c/script>","rank":null}'
    """
    written = json.dumps(_finite(value), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    # A lone surrogate has no UTF-8; names come from files that anyone may have written.
    safe = written.encode("utf-8", "surrogatepass").decode("utf-8", "replace")
    return safe.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def shortened(values: Iterable[float]) -> list[float | None]:
    """Four digits that count, enough for a picture; None where JSON has no number.

    Example:
        >>> shortened([1.23456, float("inf")])
        [1.235, None]
    """
    return [float(f"{value:.4g}") if math.isfinite(value) else None for value in values]


def _finite(value: object) -> object:
    match value:
        case float():
            return value if math.isfinite(value) else None
        case Mapping():
            return {key: _finite(entry) for key, entry in value.items()}
        case list() | tuple():
            # Most entries are plain numbers, and there are many.
            return [
                entry if isinstance(entry, float) and math.isfinite(entry) else _finite(entry)
                for entry in value
            ]
        case _:
            return value


# --- Colours of the page, taken from the themes of the diagrams; each colour in both schemes ------


def page_colors() -> str:
    """Custom properties: one name for a colour in light and in dark windows."""
    light, dark = _theme_colors(LIGHT), _theme_colors(DARK)
    return "\n".join(f"  --{name}: light-dark({light[name]}, {dark[name]});" for name in light)


def diagram_colors() -> str:
    """Rules that repaint a light diagram in dark windows; SVG attributes give way to them."""
    rules = [
        f"svg.rankscope .{style} {{ {_paint(paint, DARK.shape(style))} }}"
        for style, paint in LIGHT.shapes.items()
    ]
    rules += [
        f"svg.rankscope .wire.{style} {{ stroke: {_both(stroke.color, DARK.wire(style).color)}; }}"
        for style, stroke in LIGHT.wires.items()
    ]
    rules += [
        f"svg.rankscope .label.{style} {{ fill: {_both(color, DARK.label(style))}; }}"
        for style, color in LIGHT.labels.items()
    ]
    return "\n".join(rules)


def _both(light: str, dark: str) -> str:
    return f"light-dark({light}, {dark})"


def _paint(light: Paint, dark: Paint) -> str:
    written = f"stroke: {_both(light.stroke, dark.stroke)};"
    if light.fill and dark.fill:
        written += f" fill: {_both(light.fill, dark.fill)};"
    return written


def _theme_colors(theme: Theme) -> dict[str, str]:
    return {
        "background": theme.background,
        "panel": str(theme.shape("block").fill),
        "tint": str(theme.shape("barrier").fill),
        "ink": theme.label("caption"),
        "muted": theme.label("muted"),
        "accent": theme.label("on-tag"),
        "frame": theme.wire("rule").color,
        "blue": theme.shape("parameter").stroke,
        "blue-fill": str(theme.shape("parameter").fill),
        "amber": theme.shape("core").stroke,
        "orange": theme.wire("wire-rank").color,
        "teal": theme.wire("wire-head").color,
        "purple": theme.wire("wire-space").color,
    }
