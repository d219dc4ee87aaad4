"""A plan as a picture: its depth-width plane, written by matplotlib.

The same plan gives the same bytes.
"""

import math
from pathlib import Path
from typing import Any

from rankscope.auditing.plane import Dot, Label, Line, Plane, Point
from rankscope.auditing.shape_plan import Plan
from rankscope.drawing.raster import write_figure
from rankscope.drawing.themes import LIGHT

FILE_SIZE, FILE_FONT_SIZE = (560.0, 470.0), 8.0  # points
_INK, _MUTED = LIGHT.label("caption"), LIGHT.label("muted")
_ACCENT, _LAW = LIGHT.wire("cut").color, LIGHT.shape("parameter").stroke
_BUDGET, _THEOREM = LIGHT.shape("core").stroke, LIGHT.shape("convolution").stroke
# How matplotlib draws each role; a page has its style sheet.
_LINES: dict[str, dict[str, Any]] = {
    "axis": {"color": _MUTED, "linewidth": 0.8},
    "grid": {"color": _MUTED, "alpha": 0.15, "linewidth": 0.6},
    "theorem-side": {"color": LIGHT.shape("barrier").fill},
    "theorem": {"color": _THEOREM, "linewidth": 1.2, "linestyle": (0, (1, 1.5))},
    "band": {"color": LIGHT.shape("parameter").fill},
    "law": {"color": _LAW, "linewidth": 1.8},
    "law outside": {"color": _LAW, "linewidth": 1.8, "linestyle": "--"},
    "equal": {"color": _BUDGET, "linewidth": 1.2},
    "limit": {"color": _MUTED, "linewidth": 1.2, "linestyle": "-."},
    "leader": {"color": _MUTED, "linewidth": 0.7},
}
_DOTS: dict[str, dict[str, Any]] = {
    "alternative": {"marker": "o", "color": _BUDGET, "markersize": 3},
    "compared": {"marker": "o", "color": _INK, "markersize": 6, "markeredgecolor": "white"},
    "planned": {"marker": "*", "color": _ACCENT, "markersize": 15, "markeredgecolor": "white"},
}
_FONT_SIZES = {"title": 10.5, "name": 9.0, "tick": 8.5}
_COLORS = {"title": _INK, "name": _INK, "legend": _INK, "regime": _LAW, "mark planned": _ACCENT}
_ALIGNED = {"start": "left", "middle": "center", "end": "right"}


def draw_plan(plan: Plan, path: Path | str) -> Path:
    """Draw the depth-width plane of a plan to a .svg, .pdf or .png file.

    Raises:
        OutputError: if the ending is none of these, or the file cannot be written.
        MissingExtraError: if matplotlib is not installed.
    """
    return write_figure(path, lambda: _figure(plane_of_plan(plan)), what="a plan")


def plane_of_plan(plan: Plan) -> Plane:
    """A plan with its alternatives and the models it is compared with."""
    shapes = [plan.shape, *(model.shape for model in plan.compared)]
    deepest = 1.15 * max(*(float(shape.depth) for shape in shapes), plan.law_depth.high)
    others = [row.shape for row in plan.alternatives if row.shape.depth <= deepest]
    widths = [shape.width for shape in (*shapes, *others)]
    what = "parameters in all" if plan.budget.is_total else "parameters without embeddings"
    size = _short(plan.budget.parameters)
    points = [
        Point("alternative", row.shape.depth, row.shape.width)
        for row in plan.alternatives
        if not row.is_planned
    ]
    points += [
        Point("compared", model.shape.depth, model.shape.width, model.name)
        for model in plan.compared
    ]
    name = f"{plan.depth:,} x {plan.width:,}"
    return Plane(
        (deepest, min(widths) / 2, 2.0 * max(widths)),
        plan.law,
        plan.budget.width,
        (Point("planned", plan.depth, plan.width, name), *points),
        title=f"{plan.depth:,} blocks of width {plan.width:,} for {size} {what}",
        limit=plan.budget.embedding.limit,
        budget=f"budget of {size} parameters",
        has_theorem=True,
    )


# Matplotlib's classes can only be named where it is imported; hence Any.
def _figure(plane: Plane) -> Any:
    """The marks in an area whose units are points, without axes of its own."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    width, height = FILE_SIZE
    figure = Figure(figsize=(width / 72, height / 72), facecolor=LIGHT.background)
    FigureCanvasAgg(figure)
    area = figure.add_axes((0, 0, 1, 1))
    area.set_axis_off()
    area.set_xlim(0, width)
    area.set_ylim(height, 0)
    for order, mark in enumerate(plane.marks(FILE_SIZE, font_size=FILE_FONT_SIZE)):
        match mark:
            case Line(is_closed=True):
                style = {**_LINES[mark.role], "linewidth": 0}
                area.fill(*zip(*mark.places, strict=True), zorder=order, **style)
            case Line():
                area.plot(*zip(*mark.places, strict=True), zorder=order, **_LINES[mark.role])
            case Dot():
                area.plot(*mark.place, zorder=order, linestyle="none", **_DOTS[mark.role])
            case Label():
                area.text(
                    *mark.place,
                    mark.text,
                    color=_COLORS.get(mark.role, _INK if "mark" in mark.role else _MUTED),
                    fontsize=_FONT_SIZES.get(mark.role, FILE_FONT_SIZE),
                    ha=_ALIGNED[mark.anchor],
                    va="center",
                    rotation=90 if mark.is_upright else 0,
                    zorder=order,
                )
    return figure


def _short(number: float) -> str:
    """A number as people say it.

    Example:
        >>> _short(1.739e11), _short(49_152.0)
        ('173.9e9', '49.15e3')
    """
    power = max(0, math.floor(math.log10(number) / 3) * 3)
    return f"{number / 10**power:.4g}" + (f"e{power}" if power else "")
