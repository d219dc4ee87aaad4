"""Colours of the page, taken from the themes of the diagrams; each colour in both schemes."""

from rankscope.diagrams.pictures.themes import DARK, LIGHT, Paint, Theme


def page_colors() -> str:
    """Custom properties: one name for a colour in light and in dark windows."""
    light, dark = _named(LIGHT), _named(DARK)
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


def _named(theme: Theme) -> dict[str, str]:
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
