"""How near sums of 1, 2, 3, … outer products come to a tensor, as numbers and as a picture."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rankscope.drawing.raster import write_figure
from rankscope.drawing.themes import LIGHT
from rankscope.factorize.cp_fit import CPFit, Report, fit_cp
from rankscope.factorize.rank_interval import (
    DEFAULT_OPTIONS,
    CPRank,
    CPRankOptions,
    tensor_with_precision,
)
from rankscope.factorize.truncation import RealTensor

_INK, _MUTED = LIGHT.label("caption"), LIGHT.label("muted")
_FOUND, _LOWER = LIGHT.shape("parameter").stroke, LIGHT.wire("cut").color
_LEAST = 1e-16  # a logarithmic axis shows no 0


@dataclass(frozen=True, eq=False)
class ErrorCurve:
    """Relative errors of the best sums found, with the interval of the CP rank.

    Args:
        interval: the CP rank.
        errors: of 1, 2, …, upper components, no one larger than the one before.
        wanted: the relative error that counts as a decomposition.
    """

    interval: CPRank
    errors: tuple[float, ...]
    wanted: float

    def to_dict(self) -> dict[str, object]:
        """Plain data for JSON: the interval with an error for every number of components."""
        errors = [
            {"components": size, "relative_error": error}
            for size, error in enumerate(self.errors, start=1)
        ]
        return {**self.interval.to_dict(), "wanted": self.wanted, "errors": errors}


def cp_error_curve(
    tensor: RealTensor,
    interval: CPRank,
    options: CPRankOptions = DEFAULT_OPTIONS,
    *,
    report: Report | None = None,
) -> ErrorCurve:
    """Fit sums of every number of components up to the upper end of an interval.

    Args:
        tensor: that the interval was found for.
        interval: what `cp_rank` returned.
        options: budgets and tolerances.
        report: called with the result of every start.

    Example:
        >>> import numpy
        >>> from rankscope.factorize.rank_interval import cp_rank
        >>> identity = numpy.einsum("ab,bc->abc", numpy.eye(3), numpy.eye(3))
        >>> [round(e, 3) for e in cp_error_curve(identity, cp_rank(identity)).errors]
        [0.816, 0.577, 0.0]

    Raises:
        DecompositionError: if the tensor is not real and finite.
        TooLargeError: if there are more unknowns than the options allow.
    """
    array, wanted = tensor_with_precision(tensor, options.fit)
    errors: list[float] = []
    last: CPFit | None = None
    for size in range(1, interval.upper_fit.num_components):
        # The components found so far, and one more: never worse than before.
        last = fit_cp(
            array, size, wanted, start=None if last is None else last.factors, report=report
        )
        errors.append(min([last.relative_error, *errors[-1:]]))
    errors.append(min([interval.upper_fit.relative_error, *errors[-1:]]))
    return ErrorCurve(interval, tuple(errors), wanted.relative_error)


def draw_error_curve(curve: ErrorCurve, path: Path | str) -> Path:
    """Draw the errors on a logarithmic scale, with the interval of the rank.

    Args:
        curve: from `cp_error_curve`.
        path: of a .svg, .pdf or .png file.

    Raises:
        OutputError: if the ending is none of these, or the file cannot be written.
        MissingExtraError: if matplotlib is not installed.
    """
    return write_figure(path, lambda: _figure(curve), what="an error curve")


# Matplotlib's classes can only be named where it is imported; hence Any.
def _figure(curve: ErrorCurve) -> Any:
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=(6.0, 3.6), layout="constrained", facecolor=LIGHT.background)
    axes = figure.add_subplot()
    sizes = range(1, len(curve.errors) + 1)
    axes.semilogy(
        sizes, [max(error, _LEAST) for error in curve.errors], color=_FOUND, marker="o", zorder=3
    )
    axes.axhline(curve.wanted, color=_MUTED, linewidth=1.0, linestyle="--")
    axes.annotate(
        "counts as a decomposition",
        (1.0, curve.wanted),
        xycoords=("axes fraction", "data"),
        textcoords="offset points",
        xytext=(-4, 4),
        ha="right",
        color=_MUTED,
    )
    interval = curve.interval
    axes.axvspan(
        interval.lower - 0.25, interval.upper + 0.25, color=_LOWER, alpha=0.12, linewidth=0
    )
    shown = f"{interval.lower}" if interval.is_exact else f"{interval.lower} to {interval.upper}"
    axes.set_title(f"CP rank {shown}", loc="left", color=_INK)
    axes.set_xlabel("outer products", color=_INK)
    axes.set_ylabel("relative error", color=_INK)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.tick_params(colors=_MUTED)
    axes.grid(color=_MUTED, alpha=0.15, linewidth=0.6)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    return figure
