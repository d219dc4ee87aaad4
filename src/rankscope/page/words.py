"""Words and colours of the page."""

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
