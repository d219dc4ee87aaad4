"""Colours and strokes: what turns the style names of a scene into ink.

Role is always shape and colour together, so that a picture survives greyscale. Text keeps a
contrast of at least 4.5:1 and strokes 3:1 against everything they may lie on (WCAG 2.2, success
criteria 1.4.3 and 1.4.11); the tests compute it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from rankscope.diagrams.parts import IndexKind
from rankscope.errors import LayoutError

ROLE_STYLES = (
    "data",
    "parameter",
    "core",
    "buffer",
    "constant",
    "result",
    "operation",
    "opaque",
    "module",
    "convolution",
)


@dataclass(frozen=True)
class Paint:
    """How a closed shape is drawn; `fill` None leaves it open, `dash` is in pixels."""

    fill: str | None
    stroke: str
    width: float = 2.2
    dash: tuple[float, ...] = ()


@dataclass(frozen=True)
class Stroke:
    """How a wire is drawn; `dash` is in widths of the wire, so that thick ones stay dotted."""

    color: str
    dash: tuple[float, ...] = ()


@dataclass(frozen=True)
class Theme:
    """Paint for shapes, strokes for wires and colours for labels, by style name."""

    name: str
    background: str
    shapes: Mapping[str, Paint]
    wires: Mapping[str, Stroke]
    labels: Mapping[str, str]

    def shape(self, style: str) -> Paint:
        """Paint of a shape, frame or mark.

        Raises:
            LayoutError: if the theme does not know the style.
        """
        if style not in self.shapes:
            raise self._unknown("shapes", style, self.shapes)
        return self.shapes[style]

    def wire(self, style: str) -> Stroke:
        """Stroke of a wire.

        Raises:
            LayoutError: if the theme does not know the style.
        """
        if style not in self.wires:
            raise self._unknown("wires", style, self.wires)
        return self.wires[style]

    def label(self, style: str) -> str:
        """Colour of a label.

        Raises:
            LayoutError: if the theme does not know the style.
        """
        if style not in self.labels:
            raise self._unknown("labels", style, self.labels)
        return self.labels[style]

    def _unknown(self, what: str, style: str, known: Mapping[str, object]) -> LayoutError:
        return LayoutError(
            f"Theme {self.name!r} has no style {style!r} for {what}; it has: {', '.join(known)}."
        )


def channels(color: str) -> tuple[float, float, float]:
    """Red, green and blue of "#RRGGBB", each from 0 to 1.

    Example:
        >>> channels("#FF0000")
        (1.0, 0.0, 0.0)
    """
    red, green, blue = (int(color[start : start + 2], 16) / 255 for start in (1, 3, 5))
    return (red, green, blue)


def contrast(first: str, second: str) -> float:
    r"""Contrast ratio of two colours, from 1 (equal) to 21 (black on white).

    .. math:: \frac{L_1 + 0.05}{L_2 + 0.05}, \qquad L = 0.2126 R + 0.7152 G + 0.0722 B

    with the lighter colour on top and R, G, B linearized.

    Example:
        >>> round(contrast("#000000", "#FFFFFF"))
        21

    Reference:
        W3C, WCAG 2.2 (2023), definition of contrast ratio.
    """
    darker, lighter = sorted((_luminance(first), _luminance(second)))
    return (lighter + 0.05) / (darker + 0.05)


def _luminance(color: str) -> float:
    red, green, blue = (
        value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4
        for value in channels(color)
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@dataclass(frozen=True)
class _Palette:
    """The few colours that a theme is made of; `roles` holds fill, stroke and text."""

    background: str
    tint: str
    panel: str
    accent: str
    accent_text: str
    frame: str
    ink: str
    muted: str
    kinds: Mapping[IndexKind, str]
    roles: Mapping[str, tuple[str, str, str]]


def _theme(name: str, palette: _Palette) -> Theme:
    dotted = (0.05, 2.4)
    accent = palette.accent
    shapes = {role: Paint(fill, stroke) for role, (fill, stroke, _) in palette.roles.items()}
    # What cannot be looked into has a broken outline.
    shapes["opaque"] = replace(shapes["opaque"], width=2.8, dash=(9.0, 4.0))
    shapes |= {
        "barrier": Paint(palette.tint, accent, 1.8, (7.0, 5.0)),
        "plate": Paint(None, palette.frame, 2.0, (0.1, 5.0)),
        "block": Paint(palette.panel, palette.frame, 1.6),
        "normalized": Paint(accent, palette.background, 1.6),
        "passing": Paint(palette.background, accent, 1.8),
        "tag": Paint(palette.background, accent, 1.5),
        "cut": Paint(accent, accent, 1.0),
    }
    shapes |= {f"junction-{kind}": Paint(ink, ink, 0.5) for kind, ink in palette.kinds.items()}
    wires = {
        f"wire-{kind}": Stroke(ink, dotted if kind is IndexKind.BATCH else ())
        for kind, ink in palette.kinds.items()
    }
    wires |= {"cut": Stroke(accent, (2.2, 1.6)), "rule": Stroke(palette.frame)}
    labels = {f"on-{role}": text for role, (_, _, text) in palette.roles.items()}
    labels |= {f"wire-{kind}": ink for kind, ink in palette.kinds.items()}
    labels |= {
        "on-tag": palette.accent_text,
        "on-plate": palette.muted,
        "caption": palette.ink,
        "muted": palette.muted,
    }
    return Theme(name, palette.background, shapes, wires, labels)


def _kinds(structure: str, **special: str) -> dict[IndexKind, str]:
    """Colour only what a user tunes; everything else has the colour of the structure."""
    return {kind: special.get(kind.value, structure) for kind in IndexKind}


LIGHT = _theme(
    "light",
    _Palette(
        background="#FFFFFF",
        tint="#FDF2F8",
        panel="#F8FAFC",
        accent="#A21C5B",
        accent_text="#A21C5B",
        frame="#5B6B82",
        ink="#0F172A",
        muted="#5B6B82",
        kinds=_kinds("#334155", rank="#C2410C", head="#0F766E", space="#7E22CE", batch="#5B6B82"),
        roles={
            "data": ("#F1F5F9", "#334155", "#0F172A"),
            "parameter": ("#DBEAFE", "#1E40AF", "#172554"),
            "core": ("#FEF3C7", "#92400E", "#451A03"),
            "buffer": ("#F0F9FF", "#0369A1", "#0C4A6E"),
            "constant": ("#FFFFFF", "#5B6B82", "#334155"),
            "operation": ("#F0FDF4", "#166534", "#14532D"),
            "opaque": ("#E2E8F0", "#0F172A", "#0F172A"),
            "module": ("#EEF2FF", "#3730A3", "#1E1B4B"),
            "result": ("#FFFFFF", "#0F172A", "#0F172A"),
            "convolution": ("#FFFFFF", "#7E22CE", "#581C87"),
        },
    ),
)

DARK = _theme(
    "dark",
    _Palette(
        background="#0B1220",
        tint="#2A1424",
        panel="#111A2B",
        accent="#F472B6",
        accent_text="#F9A8D4",
        frame="#94A3B8",
        ink="#E5EDF8",
        muted="#94A3B8",
        kinds=_kinds("#CBD5E1", rank="#FDBA74", head="#5EEAD4", space="#D8B4FE", batch="#94A3B8"),
        roles={
            "data": ("#1C2740", "#CBD5E1", "#F1F5F9"),
            "parameter": ("#1E3A5F", "#93C5FD", "#F1F5F9"),
            "core": ("#4A2F0B", "#FCD34D", "#FEF3C7"),
            "buffer": ("#0C2A3F", "#7DD3FC", "#E0F2FE"),
            "constant": ("#0B1220", "#94A3B8", "#CBD5E1"),
            "operation": ("#0F2A1A", "#86EFAC", "#DCFCE7"),
            "opaque": ("#334155", "#F1F5F9", "#F8FAFC"),
            "module": ("#23235A", "#A5B4FC", "#E0E7FF"),
            "result": ("#0B1220", "#F1F5F9", "#F1F5F9"),
            "convolution": ("#0B1220", "#D8B4FE", "#E9D5FF"),
        },
    ),
)

PRINT = _theme(
    "print",
    _Palette(
        background="#FFFFFF",
        tint="#F5F5F5",
        panel="#FFFFFF",
        accent="#000000",
        accent_text="#000000",
        frame="#595959",
        ink="#000000",
        muted="#595959",
        kinds=_kinds("#000000"),
        roles=dict.fromkeys(ROLE_STYLES, ("#FFFFFF", "#000000", "#000000")),
    ),
)

THEMES: dict[str, Theme] = {theme.name: theme for theme in (LIGHT, DARK, PRINT)}
