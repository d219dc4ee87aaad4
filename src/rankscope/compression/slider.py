"""The keep slider in a notebook: candidates are listed once, the plan is solved as it moves."""

from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from torch import nn

from rankscope.compression.choosing import check_budget, solve_table
from rankscope.compression.plan import Budget, Plan
from rankscope.compression.planning import DEFAULT_FORMATS, PlanSettings, list_candidates
from rankscope.compression.scores import Weights
from rankscope.errors import CompressionError
from rankscope.extras import package
from rankscope.factorize.formats.catalogue import STORED_FORMATS
from rankscope.factorize.formats.format import Format
from rankscope.progress import ignore

SMALLEST = 0.05  # share at the left end of the slider


def keep_slider(
    model: nn.Module, *, keep: float = 0.8, formats: Sequence[Format] | None = None
) -> Any:
    """A widget for Jupyter: the share to keep under a slider, and the plan for it below.

    `plan` of the widget is the plan that is shown; `apply_plan` makes the model of it.

    Args:
        model: any module; it is only looked at.
        keep: the share to begin with.
        formats: to choose from; svd, tucker and tensor-train if not given.

    Raises:
        CompressionError: if the budget makes no sense.
        MissingExtraError: if the extra `notebook` is not installed.
    """
    anywidget = package("anywidget", what="The keep slider", extra="notebook")
    traitlets = package("traitlets", what="The keep slider", extra="notebook")
    check_budget(Budget(keep), has_example=False)
    chosen = tuple(formats or (STORED_FORMATS[name] for name in DEFAULT_FORMATS))
    table = list_candidates(model, PlanSettings(chosen, Weights(), skips_dear=not formats), ignore)

    class KeepSlider(anywidget.AnyWidget):  # type: ignore[name-defined, misc]
        _esm = (files("rankscope.compression") / "slider.js").read_text("utf-8")
        keep = traitlets.Float(1.0).tag(sync=True)
        smallest = traitlets.Float(SMALLEST).tag(sync=True)
        rows = traitlets.List().tag(sync=True)
        summary = traitlets.Unicode().tag(sync=True)
        plan: Plan | None = None

        def solve(self, change: object = None) -> None:
            try:
                check_budget(Budget(self.keep), has_example=False)
                self.plan = solve_table(table, Budget(self.keep)).plan
            except CompressionError as error:
                self.summary = str(error)
                return
            self.rows = shown_rows(self.plan)
            self.summary = self.plan.summary

    slider = KeepSlider(keep=keep)
    slider.observe(slider.solve, names="keep")
    slider.solve()
    return slider


def shown_rows(plan: Plan) -> list[dict[str, object]]:
    """What the widget shows of each weight."""
    return [
        {
            "name": row.name,
            "format": row.format or "as it is",
            "ranks": ", ".join(map(str, row.ranks)),
            "share": row.kept / max(1, row.dense),
            "error": f"{row.error:.3f}" if row.error else "",
        }
        for row in plan.rows
    ]
