"""The depth-width plane: regimes, the law with its uncertainty, the budget, and models as points.

The same plan gives the same bytes.
"""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rankscope.auditing.plan import Plan
from rankscope.auditing.plan_labels import draw_labels
from rankscope.diagrams.pictures.figure_file import write_figure
from rankscope.diagrams.pictures.themes import LIGHT

INK, MUTED = LIGHT.label("caption"), LIGHT.label("muted")
ACCENT = LIGHT.wire("cut").color
LAW, LAW_BAND = LIGHT.shape("parameter").stroke, LIGHT.shape("parameter").fill
BUDGET = LIGHT.shape("core").stroke
THEOREM, THEOREM_TINT = LIGHT.shape("convolution").stroke, LIGHT.shape("barrier").fill
# Beyond this a linear axis would press everything against its left edge.
DEEPEST_LINEAR = 256
NUM_STEPS = 400


@dataclass(frozen=True)
class _Window:
    """The part of the plane that is shown."""

    deepest: float
    narrowest: float
    widest: float

    @classmethod
    def of(cls, plan: Plan) -> "_Window":
        shapes = [plan.shape, *(model.shape for model in plan.compared)]
        deepest = max(*(float(shape.depth) for shape in shapes), plan.law_depth.high)
        shown = [a.shape for a in plan.alternatives if a.shape.depth <= 1.15 * deepest]
        widths = [shape.width for shape in (*shapes, *shown)]
        return cls(1.15 * deepest, min(widths) / 2, 2.0 * max(widths))

    @property
    def depths(self) -> list[float]:
        """Depths at which curves are drawn, as dense on a logarithmic axis as on a linear one."""
        return [self.deepest ** (step / NUM_STEPS) for step in range(NUM_STEPS + 1)]


def draw_plan(plan: Plan, path: Path | str) -> Path:
    """Draw the depth-width plane of a plan to a .svg, .pdf or .png file.

    Raises:
        OutputError: if the ending is none of these, or the file cannot be written.
        MissingExtraError: if matplotlib is not installed.
    """
    return write_figure(path, lambda: _figure(plan), what="a plan")


# Matplotlib's classes can only be named where it is imported; hence Any.
def _figure(plan: Plan) -> Any:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.6, 6.0), layout="constrained", facecolor=LIGHT.background)
    canvas: Any = FigureCanvasAgg(figure)
    axes, window = figure.add_subplot(), _Window.of(plan)
    _draw_frame(axes, window)
    _draw_theorem(axes, window)
    _draw_law(axes, plan, window)
    _draw_budget(axes, plan, window)
    _draw_points(axes, plan)
    axes.set_title(_title(plan), loc="left", color=INK, fontsize=10.5)
    figure.legend(loc="outside lower left", ncols=2, frameon=False, labelcolor=INK, fontsize=8)
    # The layout must be final before labels are measured in pixels.
    figure.draw_without_rendering()
    draw_labels(canvas.get_renderer(), axes, plan)
    return figure


def _title(plan: Plan) -> str:
    what = "parameters in all" if plan.budget.is_total else "parameters without embeddings"
    return (
        f"{plan.depth:,} blocks of width {plan.width:,} for {_short(plan.budget.parameters)} {what}"
    )


def _short(number: float) -> str:
    """A number as people say it.

    Example:
        >>> _short(1.739e11), _short(49_152.0)
        ('173.9e9', '49.15e3')
    """
    power = max(0, math.floor(math.log10(number) / 3) * 3)
    return f"{number / 10**power:.4g}" + (f"e{power}" if power else "")


def _draw_frame(axes: Any, window: _Window) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator

    axes.set_yscale("log", base=2)
    axes.set_ylim(window.narrowest, window.widest)
    if window.deepest > DEEPEST_LINEAR:
        axes.set_xscale("log")
        axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlim(1 if window.deepest > DEEPEST_LINEAR else 0, window.deepest)
    whole = FuncFormatter(lambda value, _: f"{value:,.0f}")
    axes.xaxis.set_major_formatter(whole)
    halves = (1.0, 1.5) if window.widest < 32 * window.narrowest else (1.0,)
    axes.yaxis.set_major_locator(LogLocator(base=2, subs=halves))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(whole)
    axes.set_xlabel("depth: number of blocks", color=INK)
    axes.set_ylabel("width: size of a token vector", color=INK)
    axes.tick_params(colors=MUTED)
    axes.grid(color=MUTED, alpha=0.15, linewidth=0.6)
    axes.set_axisbelow(True)
    for name, spine in axes.spines.items():
        spine.set_visible(name in ("left", "bottom"))
        spine.set_color(MUTED)


def _draw_theorem(axes: Any, window: _Window) -> None:
    """The line depth = log3(width); left of it depth pays double-exponentially."""
    ratio = window.widest / window.narrowest
    widths = [window.narrowest * ratio ** (step / NUM_STEPS) for step in range(NUM_STEPS + 1)]
    depths = [math.log(width) / math.log(3) for width in widths]
    axes.fill_betweenx(widths, 0.0, depths, color=THEOREM_TINT, linewidth=0)
    axes.plot(
        depths,
        widths,
        color=THEOREM,
        linewidth=1.2,
        linestyle=(0, (1, 1.5)),
        label="depth = log3(width): left of it, in theory, depth pays most",
    )


def _draw_law(axes: Any, plan: Plan, window: _Window) -> None:
    law, depths = plan.law, window.depths
    low, high = law.shifted(-1.0), law.shifted(1.0)
    axes.fill_between(
        depths,
        [low.width(depth) for depth in depths],
        [high.width(depth) for depth in depths],
        color=LAW_BAND,
        linewidth=0,
        label="both parameters of the fit ± one standard error",
    )
    first, last = law.depths
    parts = (
        ([d for d in depths if first <= d <= last], "-", f"fitted law, depths {first} to {last}"),
        ([d for d in depths if d > last], "--", "fitted law, extrapolated"),
        ([d for d in depths if d < first], "--", None),
    )
    for part, style, label in parts:
        if part:
            widths = [law.width(depth) for depth in part]
            axes.plot(part, widths, color=LAW, linewidth=1.8, linestyle=style, label=label)


def _draw_budget(axes: Any, plan: Plan, window: _Window) -> None:
    axes.plot(
        window.depths,
        [plan.budget.width(depth) for depth in window.depths],
        color=BUDGET,
        linewidth=1.2,
        label=f"budget of {_short(plan.budget.parameters)} parameters, and the alternatives",
    )
    others = [row.shape for row in plan.alternatives if not row.is_planned]
    axes.plot(
        [shape.depth for shape in others],
        [shape.width for shape in others],
        "o",
        color=BUDGET,
        markersize=3,
    )
    limit = plan.budget.embedding.limit
    if limit is not None and window.narrowest < limit < window.widest:
        label = f"embedding rank {limit:,}: bounds ignore width above it"
        axes.axhline(limit, color=MUTED, linewidth=1.2, linestyle="-.", label=label)


def _draw_points(axes: Any, plan: Plan) -> None:
    for model in plan.compared:
        axes.plot(
            model.shape.depth,
            model.shape.width,
            "o",
            color=INK,
            markeredgecolor=LIGHT.background,
            markersize=6,
        )
    axes.plot(
        plan.depth,
        plan.width,
        "*",
        color=ACCENT,
        markeredgecolor=LIGHT.background,
        markersize=15,
        label="planned",
        linestyle="none",
    )
