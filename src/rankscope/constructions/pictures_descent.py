"""Pictures of gradient descent under its bound, and of the ways of several rules."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy

from rankscope.constructions.convex_problems import ConvexProblem
from rankscope.constructions.dense import Reals
from rankscope.constructions.descent import Descent
from rankscope.constructions.figures import FIRST, INK, MUTED, SECOND, THIRD, save_figure
from rankscope.errors import ConstructionError

COLOURS = (FIRST, SECOND, THIRD, INK)
NUM_POINTS = 81


def draw_descent(runs: Mapping[str, Descent], path: Path | str) -> Path:
    """Draw the gap C(θ_t) - min C of several runs, each under its bound where it has one.

    Args:
        runs: at most four, by their labels.
        path: ends with .svg, .pdf or .png.

    Raises:
        ConstructionError: if there is none, or more than four.
        OutputError: if the ending is another, or the file cannot be written.
        MissingExtraError: if matplotlib is not installed.
    """
    _require("draw_descent", len(runs))

    def fill(figure: Any) -> None:
        axes = figure.add_subplot()
        for colour, (label, run) in zip(COLOURS, runs.items(), strict=False):
            steps = numpy.arange(1, len(run.gaps))
            # Below rounding there is nothing to see on a logarithmic axis.
            gaps = numpy.where(run.gaps > 0, run.gaps, numpy.nan)[1:]
            axes.loglog(steps, gaps, color=colour, linewidth=1.5, label=label)
            if run.bounds is not None:
                axes.loglog(steps, run.bounds[1:], "--", color=colour, linewidth=1.0)
        axes.loglog([], [], "--", color=MUTED, linewidth=1.0, label="‖θ₀ - θ*‖² / (2ηt)")
        axes.set_xlabel("step t")
        axes.set_ylabel("C(θₜ) - min C")
        axes.margins(x=0)
        figure.legend(loc="outside right center", labelcolor=INK)

    return save_figure(path, fill, size=(6.4, 3.4))


def draw_ways(problem: ConvexProblem, ways: Mapping[str, Reals], path: Path | str) -> Path:
    """Draw the ways of several rules over the level lines of a cost of two parameters.

    Args:
        problem: the cost.
        ways: at most four lists of points, by their labels; as `follow` returns them.
        path: ends with .svg, .pdf or .png.

    Raises:
        ConstructionError: if there is none or more than four, or not in the plane.
        OutputError: if the ending is another, or the file cannot be written.
        MissingExtraError: if matplotlib is not installed.
    """
    _require("draw_ways", len(ways))
    shapes = [problem.minimizer.shape, *(way.shape[1:] for way in ways.values())]
    if set(shapes) != {(2,)}:
        raise ConstructionError(f"draw_ways needs points of 2 parameters, got shapes {shapes}.")
    points = numpy.concatenate([problem.minimizer[None], *ways.values()])
    low, high = points.min(axis=0), points.max(axis=0)
    room = 0.08 * (high - low).max() + 1e-9
    across, up = (numpy.linspace(low[i] - room, high[i] + room, NUM_POINTS) for i in range(2))

    def fill(figure: Any) -> None:
        axes = figure.add_subplot()
        costs = numpy.array([[problem.value(numpy.array([x, y])) for x in across] for y in up])
        # Square roots, so that lines of a quadratic are evenly apart.
        axes.contour(
            across,
            up,
            numpy.sqrt((costs - problem.minimum).clip(min=0)),
            levels=14,
            colors=MUTED,
            linewidths=0.5,
        )
        for colour, (label, way) in zip(COLOURS, ways.items(), strict=False):
            axes.plot(*way.T, ".-", color=colour, linewidth=1.1, markersize=3.5, label=label)
        axes.plot(*problem.minimizer, "*", color=INK, markersize=9, label="minimum")
        axes.set_aspect("equal")
        axes.set_xlabel("θ₁")
        axes.set_ylabel("θ₂")
        figure.legend(loc="outside right center", labelcolor=INK)

    return save_figure(path, fill, size=(6.4, 3.8))


def _require(who: str, count: int) -> None:
    if not 1 <= count <= len(COLOURS):
        raise ConstructionError(f"{who} draws 1 to {len(COLOURS)} curves, got {count}.")
