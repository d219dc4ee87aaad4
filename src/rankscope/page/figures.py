"""Figures of the model view for papers and slides: a heat map of ranks, a spectrum with its cut.

They are scenes like the diagrams, so that the same writers give SVG, PDF and TikZ.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rankscope.drawing.raster import to_pdf
from rankscope.drawing.scene import Label, Scene, Shape, ShapeKind, Wire
from rankscope.drawing.svg import to_svg
from rankscope.drawing.themes import LIGHT, Paint, Theme
from rankscope.drawing.tikz import to_tikz
from rankscope.drawing.typesetting import place_label
from rankscope.errors import printable

TEXT, SMALL = 13.0, 11.0
STEPS = 20  # shades of the heat map


def write_figure(scene: Scene, ending: str) -> bytes:
    """A figure as a file: .svg, .pdf or .tikz."""
    theme = _theme()
    if ending == ".pdf":
        return to_pdf(scene, theme)
    return (to_svg(scene, theme) if ending == ".svg" else to_tikz(scene, theme)).encode()


def _theme() -> Theme:
    """That of the diagrams, and the shades of the page's heat map."""
    strong, weak = LIGHT.wire("wire-rank").color, str(LIGHT.shape("block").fill)
    shades = {
        f"heat-{step}": Paint(mixed(weak, strong, 0.55 * (1 - step / STEPS)), "#ffffff", 0.5)
        for step in range(STEPS + 1)
    }
    shades["heat-none"] = Paint("#ffffff", LIGHT.wire("rule").color, 0.75)
    shades["lost"] = Paint(weak, weak, 0.0)
    return replace(LIGHT, shapes={**LIGHT.shapes, **shades})


def mixed(first: str, second: str, share: float) -> str:
    """A colour between two, both as "#rrggbb".

    Example:
        >>> mixed("#000000", "#ff8000", 0.5)
        '#804000'
    """
    pairs = zip(_channels(first), _channels(second), strict=True)
    return "#" + "".join(f"{round(low + share * (high - low)):02x}" for low, high in pairs)


def _channels(color: str) -> list[int]:
    return [int(color[place : place + 2], 16) for place in (1, 3, 5)]


def _plain(text: str) -> str:
    """A name from a file as a label that is no mathematics."""
    return printable(text).replace("$", r"\$")


def _label(
    text: str,
    x: float,
    y: float,
    *,
    size: float = SMALL,
    anchor: str = "lm",
    style: str = "caption",
) -> Label:
    return place_label(_plain(text), (x, y), size=size, style=style, anchor=anchor)


# --- Heat map: kinds of matrices against blocks ---------------------------------------------------


@dataclass(frozen=True)
class HeatRow:
    """One row of the map: a share of the largest rank for each column, None where there is none."""

    name: str
    shares: tuple[float | None, ...]


CELL, ROW, NAMES_GAP = 26.0, 22.0, 10.0


def heat_scene(title: str, columns: Sequence[str], rows: Sequence[HeatRow]) -> Scene:
    """Rows of cells with percents; the stronger the colour, the lower the rank."""
    labels: list[Label] = []
    shapes: list[Shape] = []
    names = [_label(row.name, 0.0, 0.0, anchor="rm") for row in rows]
    left = max((label.box[2] - label.box[0] for label in names), default=0.0) + NAMES_GAP
    for place, column in enumerate(columns):
        labels.append(_label(column, left + CELL * (place + 0.5), -ROW, anchor="mm"))
    for place, row in enumerate(rows):
        middle = ROW * place
        labels.append(_label(row.name, left - NAMES_GAP, middle, anchor="rm"))
        for number, share in enumerate(row.shares):
            if share is None:
                continue
            x = left + CELL * (number + 0.5)
            step = round(STEPS * min(1.0, max(0.0, share)))
            percent = f"{100 * share:.0f}"
            name = f"{row.name} {columns[number] if number < len(columns) else ''}".strip()
            shapes.append(
                Shape(
                    name, ShapeKind.SQUARE, x, middle, CELL - 2, ROW - 2, f"heat-{step}",
                    f"{printable(name)}: {percent} %",
                )
            )  # fmt: skip
            labels.append(_label(percent, x, middle, anchor="mm"))
    labels.append(_label(title, 0.0, -2.2 * ROW, size=TEXT))
    note = "Percent of the largest possible rank; the stronger the colour, the lower."
    labels.append(_label(note, 0.0, ROW * (len(rows) + 0.2)))
    return Scene("heat", title=printable(title), shapes=tuple(shapes), labels=tuple(labels))


# --- Spectrum: singular values, the random edge, and where a plan cuts ----------------------------


WIDTH, HEIGHT = 560.0, 290.0
SMALLEST_SHARE = 1e-8  # what float32 rounding leaves says nothing


def spectrum_scene(title: str, matrix: Mapping[str, Any], rank: int | None) -> Scene:
    """Singular values of one matrix on a logarithmic axis; `matrix` as `spectrum_data` has it."""
    values, random, edge = _curves(matrix)
    heights = [value for _, value in (*values, *random)] + ([] if edge is None else [edge])
    low, high = min(heights, default=0.1) / 1.3, max(heights, default=1.0) * 1.4
    axes = _Axes(matrix["num_values"], low, high)
    scene = _frame(title, axes)
    if len(random) > 1:
        scene = _with_curve(scene, axes, random, ("a random matrix of this shape", "wire-space"))
    if edge is not None:
        line = _line("edge", [(0.0, axes.y(edge)), (WIDTH, axes.y(edge))], "cut", 1.2)
        label = _label("random edge", WIDTH, axes.y(edge) - 9, anchor="rm")
        scene = replace(scene, wires=(*scene.wires, line), labels=(*scene.labels, label))
    if len(values) > 1:
        scene = _with_curve(scene, axes, values, ("singular values of this matrix", "wire-rank"))
    return scene if rank is None else _with_cut(scene, axes.x(min(rank, axes.count) + 0.5), rank)


Curve = list[tuple[float, float]]


def _curves(matrix: Mapping[str, Any]) -> tuple[Curve, Curve, float | None]:
    """Places and values of the spectrum, and of a random one; where the random ones end."""
    values, shares, count = matrix["singular_values"], matrix["random"], matrix["num_values"]
    floor, edge = matrix["largest"] * SMALLEST_SHARE, matrix["random_edge"]
    step = (count - 1) / max(len(values) - 1, 1)
    spectrum = [(1 + place * step, value or 0.0) for place, value in enumerate(values)]
    random = [
        (0.5 + count * (place + 0.5) / len(shares), (share or 0.0) * edge)
        for place, share in enumerate(shares)
    ]
    kept = [[one for one in curve if one[1] > floor] for curve in (spectrum, random)]
    return kept[0], kept[1], edge if edge > floor else None


def _frame(title: str, axes: "_Axes") -> Scene:
    grid = [_line("grid", [(0.0, axes.y(v)), (WIDTH, axes.y(v))], "rule", 0.5) for v in axes.ticks]
    axis = _line("axis", [(0.0, 0.0), (0.0, HEIGHT), (WIDTH, HEIGHT)], "rule", 1.2)
    labels = [
        *(_label(f"{value:g}", -8.0, axes.y(value), anchor="rm") for value in axes.ticks),
        *(_label(f"{place:,}", axes.x(place), HEIGHT + 14, anchor="mm") for place in axes.places),
        _label(title, 0.0, -38.0, size=TEXT),
        _label("singular value", 0.0, -14.0),
        _label("number of the singular value", WIDTH / 2, HEIGHT + 34, anchor="mm"),
    ]
    return Scene("spectrum", printable(title), wires=(axis, *grid), labels=tuple(labels))


def _with_curve(scene: Scene, axes: "_Axes", curve: Curve, key: tuple[str, str]) -> Scene:
    text, style = key
    line = _line(text, [axes.point(*one) for one in curve], style, 1.8)
    below = sum(label.style.startswith("wire-") for label in scene.labels)
    label = _label(text, WIDTH, -14.0 - 16 * below, anchor="rm", style=style)
    return replace(scene, wires=(*scene.wires, line), labels=(*scene.labels, label))


def _with_cut(scene: Scene, x: float, rank: int) -> Scene:
    line = _line("cut", [(x, 0.0), (x, HEIGHT)], "wire-head", 1.6)
    is_right = x > WIDTH / 2
    anchor = "rm" if is_right else "lm"
    label = _label(f"rank {rank:,}", x - 6 if is_right else x + 6, 12.0, anchor=anchor)
    frames = (_lost(x),) if x < WIDTH else ()
    wires, labels = (*scene.wires, line), (*scene.labels, label)
    return replace(scene, frames=frames, wires=wires, labels=labels)


@dataclass(frozen=True)
class _Axes:
    count: int
    low: float
    high: float

    def x(self, place: float) -> float:
        return WIDTH * (place - 0.5) / max(self.count, 1)

    def y(self, value: float) -> float:
        return HEIGHT * math.log(self.high / max(value, self.low)) / math.log(self.high / self.low)

    def point(self, place: float, value: float) -> tuple[float, float]:
        return self.x(place), self.y(value)

    @property
    def ticks(self) -> list[float]:
        """Round values between the ends, few enough to be read."""
        decades = math.log10(self.high / self.low)
        steps = (1, 2, 5) if decades < 1.5 else (1,)
        every = max(1, math.ceil(decades / 6))
        powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)), every)
        values = [step * 10.0**power for power in powers for step in steps]
        return [value for value in values if self.low <= value <= self.high]

    @property
    def places(self) -> list[int]:
        shares = (0.0, 0.25, 0.5, 0.75, 1.0) if self.count >= 5 else (0.0, 1.0)
        return sorted({round(1 + share * (self.count - 1)) for share in shares})


def _line(name: str, points: Sequence[tuple[float, float]], style: str, width: float) -> Wire:
    return Wire(name, tuple(points), style, width, corner_radius=0.0)


def _lost(left: float) -> Shape:
    middle, width = (left + WIDTH) / 2, WIDTH - left
    return Shape("lost", ShapeKind.SQUARE, middle, HEIGHT / 2, width, HEIGHT, "lost", "cut off")
