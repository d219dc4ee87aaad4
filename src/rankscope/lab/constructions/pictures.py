"""Pictures of curves, bars and matrices, activations, shared weights, distances and descent."""

import colorsys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy

from rankscope.drawing.raster import write_figure
from rankscope.drawing.themes import LIGHT
from rankscope.errors import ConstructionError
from rankscope.lab.constructions.dead_units import DeadUnits, LayerUnits
from rankscope.lab.constructions.dense import ACTIVATIONS, Reals
from rankscope.lab.constructions.learning import (
    ConvexProblem,
    Descent,
    DistributionDistances,
    compare_distributions,
)
from rankscope.lab.constructions.weight_sharing import SharedMatrix

# Colours and margins that all figures share.


INK, MUTED = LIGHT.label("caption"), LIGHT.label("muted")
FIRST, FIRST_TINT = LIGHT.shape("parameter").stroke, LIGHT.shape("parameter").fill
SECOND = LIGHT.wire("cut").color
THIRD = LIGHT.shape("convolution").stroke


# Matplotlib's classes can only be named where it is imported; hence Any.
def save_figure(
    path: Path | str, fill: Callable[[Any], None], *, size: tuple[float, float]
) -> Path:
    """Make a figure of a size in inches, let `fill` draw on it, and write .svg, .pdf or .png.

    Raises:
        OutputError: if the ending is none of these, or the file cannot be written.
        MissingExtraError: if matplotlib is not installed.
    """

    def make() -> Any:
        from matplotlib.figure import Figure

        figure = Figure(figsize=size, layout="constrained", facecolor=LIGHT.background)
        fill(figure)
        return figure

    return write_figure(path, make, what="a construction")


# Pictures of curves, bars and matrices that several topics share.


# Colours with different lightness, so that they can be told apart without colour, too.
COLOURS = (FIRST, SECOND, THIRD, INK, MUTED)
# Whole numbers are no floats to a type checker at run time.
Column = Sequence[int] | Sequence[float] | Reals
DASHES = ("-", "--", ":", "-.")
MOST_WRITTEN = 64


@dataclass(frozen=True)
class Axes:
    """Title and axis labels of a plot.

    Args:
        title: above it.
        across: the name of the horizontal axis.
        up: the name of the vertical axis.
        is_log_across: whether equal steps are equal factors, horizontally.
        is_log_up: the same vertically.
    """

    title: str
    across: str
    up: str
    is_log_across: bool = False
    is_log_up: bool = False

    def dress(self, axes: Any) -> None:
        """Write it."""
        axes.set_title(self.title, loc="left", color=INK)
        axes.set_xlabel(self.across)
        axes.set_ylabel(self.up)
        if self.is_log_across:
            axes.set_xscale("log")
        if self.is_log_up:
            axes.set_yscale("log")


def draw_curves(
    curves: Mapping[str, tuple[Column, Column]],
    axes: Axes,
    path: Path | str,
    *,
    has_points: bool = False,
) -> Path:
    """Draw curves over each other, with their names beside the plot.

    Args:
        curves: places and heights of each.
        axes: what is written on the plot.
        path: ends with .svg, .pdf or .png.
        has_points: whether to mark the places.

    Raises:
        OutputError: if the ending is another, or the file cannot be written.
        MissingExtraError: if matplotlib is not installed.
    """

    def fill(figure: Any) -> None:
        plot = figure.add_subplot()
        axes.dress(plot)
        for number, (name, (places, heights)) in enumerate(curves.items()):
            plot.plot(
                places,
                heights,
                DASHES[number // len(COLOURS) % len(DASHES)],
                color=COLOURS[number % len(COLOURS)],
                marker="o" if has_points else None,
                markersize=3.5,
                linewidth=1.4,
                label=name,
            )
        plot.legend(fontsize=8, labelcolor=INK, loc="upper left", bbox_to_anchor=(1.0, 1.0))

    return save_figure(path, fill, size=(6.2, 3.4))


def draw_matrices(
    matrices: Mapping[str, Reals], path: Path | str, *, across: str = "", up: str = ""
) -> Path:
    """Draw matrices side by side, darker for larger entries, with small ones written out.

    Raises:
        OutputError: if the ending is not .svg, .pdf or .png, or the file cannot be written.
        MissingExtraError: if matplotlib is not installed.
    """

    def fill(figure: Any) -> None:
        plots = figure.subplots(1, len(matrices), squeeze=False)[0]
        for plot, (name, matrix) in zip(plots, matrices.items(), strict=True):
            plot.imshow(matrix, cmap="Blues", aspect="equal")
            plot.set_title(name, loc="left", color=INK)
            plot.set_xlabel(across)
            plot.set_ylabel(up)
            is_small = matrix.size <= MOST_WRITTEN
            plot.set_xticks(range(matrix.shape[1]) if is_small else [])
            plot.set_yticks(range(matrix.shape[0]) if is_small else [])
            plot.tick_params(length=0, labelsize=7)
            if is_small:
                _write_entries(plot, matrix)

    # As tall as the tallest matrix, with space for words.
    tallest = max(matrix.shape[0] / matrix.shape[1] for matrix in matrices.values())
    return save_figure(path, fill, size=(2.9 * len(matrices) + 0.4, 2.4 * tallest + 1.1))


def _write_entries(plot: Any, matrix: Reals) -> None:
    middle = (matrix.min() + matrix.max()) / 2
    for (row, column), entry in numpy.ndenumerate(matrix):
        colour = "white" if entry > middle else INK
        text = f"{entry:.2f}".rstrip("0").rstrip(".")
        plot.text(column, row, text, ha="center", va="center", fontsize=7, color=colour)


# Pictures of activation functions and of how often units act.


# Drawn apart by dash as well as by colour.
STYLES = (
    (INK, "-"),
    (FIRST, "-"),
    (THIRD, "-"),
    (SECOND, "-"),
    (MUTED, "--"),
)


def draw_activations(path: Path | str) -> Path:
    """Draw the five activation functions and their slopes side by side.

    Raises:
        OutputError: if the ending is not .svg, .pdf or .png, or the file cannot be written.
        MissingExtraError: if matplotlib is not installed.
    """
    points = numpy.linspace(-4.0, 4.0, 1601)

    def fill(figure: Any) -> None:
        left, right = figure.subplots(1, 2)
        for activation, (colour, dash) in zip(ACTIVATIONS, STYLES, strict=True):
            style = {"color": colour, "linestyle": dash, "linewidth": 1.5}
            left.plot(points, activation.values(points), label=activation.name, **style)
            slopes = activation.slopes(points)
            # A jump is no steep line.
            slopes[1:][numpy.abs(numpy.diff(slopes)) > 0.5] = numpy.nan
            right.plot(points, slopes, **style)
        left.set_ylim(-1.15, 2.5)
        for axes, title in ((left, "value"), (right, "slope")):
            axes.axhline(0.0, color=MUTED, linewidth=0.5)
            axes.axvline(0.0, color=MUTED, linewidth=0.5)
            axes.set_title(title, loc="left", color=INK)
            axes.margins(x=0)
        figure.legend(loc="outside right center", labelcolor=INK)

    return save_figure(path, fill, size=(7.2, 3.0))


def draw_dead_units(result: DeadUnits, path: Path | str) -> Path:
    """Draw for each layer how often its units act, the busiest first; dead ones are marked.

    Raises:
        OutputError: if the ending is not .svg, .pdf or .png, or the file cannot be written.
        MissingExtraError: if matplotlib is not installed.
    """

    def fill(figure: Any) -> None:
        rows = figure.subplots(len(result.layers), 1, squeeze=False, sharey=True)[:, 0]
        for axes, layer in zip(rows, result.layers, strict=True):
            _bars(axes, layer)
        rows[-1].set_xlabel("units, the busiest first")
        figure.suptitle(str(result), x=0.01, ha="left", color=INK, fontsize=9)

    return save_figure(path, fill, size=(6.0, 0.8 + 1.3 * len(result.layers)))


def _bars(axes: Any, layer: LayerUnits) -> None:
    shares = numpy.sort(layer.activity)[::-1]
    axes.bar(range(len(shares)), shares, width=1.0, color=FIRST, linewidth=0)
    dead = numpy.flatnonzero(shares == 0)
    if len(dead):
        axes.plot(dead, numpy.zeros(len(dead)), "x", color=SECOND, markersize=5, clip_on=False)
    title = f"{layer.name}: {len(dead)} of {len(shares)} dead"
    axes.set_title(title, loc="left", color=INK, fontsize=8)
    axes.set_ylim(0, 1)
    axes.set_yticks([0, 0.5, 1])
    axes.set_ylabel("acts")
    axes.set_xlim(-0.5, len(shares) - 0.5)
    axes.set_xticks([])


# Pictures of matrices that repeat a few weights: a colour for each weight.


MOST_SIDE = 400
SEVERAL = (0.25, 0.25, 0.25)
WIDTH = 3.0


def draw_shared_matrices(matrices: Mapping[str, SharedMatrix], path: Path | str) -> Path:
    """Draw matrices side by side; entries of one colour hold the same weight, white ones zero.

    A place where several weights add up is dark grey. In a graph layer entries of one colour are
    equal up to the numbers of its adjacency.

    Args:
        matrices: by their titles.
        path: ends with .svg, .pdf or .png.

    Raises:
        ConstructionError: if there is none, or one has a side of more than 400.
        OutputError: if the ending is another, or the file cannot be written.
        MissingExtraError: if matplotlib is not installed.
    """
    largest = max((side for matrix in matrices.values() for side in matrix.shape), default=0)
    if not 1 <= largest <= MOST_SIDE:
        raise ConstructionError(
            f"draw_shared_matrices needs matrices with sides of 1 to {MOST_SIDE}, got "
            f"{len(matrices)} with a largest side of {largest}."
        )
    tallest = max(matrix.shape[0] / matrix.shape[1] for matrix in matrices.values())

    def fill(figure: Any) -> None:
        panels = figure.subplots(1, len(matrices), squeeze=False)[0]
        for axes, (title, matrix) in zip(panels, matrices.items(), strict=True):
            _paint(axes, title, matrix)

    return save_figure(path, fill, size=(WIDTH * len(matrices), WIDTH * tallest + 0.8))


def _paint(axes: Any, title: str, matrix: SharedMatrix) -> None:
    rows, columns = matrix.shape
    axes.pcolormesh(
        shared_colours(matrix),
        edgecolors=MUTED if max(rows, columns) <= 60 else "none",
        linewidth=0.15,
    )
    axes.invert_yaxis()
    axes.set_aspect("equal")
    axes.set_anchor("N")
    axes.set_xticks([])
    axes.set_yticks([])
    for side in ("top", "right"):
        axes.spines[side].set_visible(True)
    counts = f"{rows} × {columns}, {matrix.num_entries} entries, {matrix.num_weights} weights"
    axes.set_title(f"{title}\n{counts}", loc="left", color=INK, fontsize=8)


def shared_colours(matrix: SharedMatrix) -> Reals:
    """Red, green and blue of each entry: one colour for each weight, white for zero."""
    colours = numpy.ones((*matrix.shape, 3))
    numbers = numpy.unique(matrix.sources)
    palette = numpy.array([_colour(place, len(numbers)) for place in range(len(numbers))])
    colours[matrix.rows, matrix.columns] = palette[numpy.searchsorted(numbers, matrix.sources)]
    places = matrix.rows * matrix.shape[1] + matrix.columns
    result, counts = numpy.unique(places, return_counts=True)
    colours.reshape(-1, 3)[result[counts > 1]] = SEVERAL
    return colours


def _colour(place: int, count: int) -> tuple[float, float, float]:
    """Colours around the wheel of hues, every second one darker."""
    return colorsys.hls_to_rgb(place / count, 0.48 if place % 2 else 0.68, 0.6)


# The lecture's figure: distances between binary distributions.


NUM_POINTS = 201
TOP = 3.0
CROSS_ENTROPY = "cross-entropy of P and Q"


def draw_binary_distances(path: Path | str, *, probabilities: Sequence[float] = (0.3, 1.0)) -> Path:
    """Draw all distances from P = (p, 1 - p) to Q = (q, 1 - q) over q, a panel for each p.

    Raises:
        ConstructionError: if there is no p, or one is not between 0 and 1.
        OutputError: if the ending is not .svg, .pdf or .png, or the file cannot be written.
        MissingExtraError: if matplotlib is not installed.
    """
    if not probabilities or not all(0 <= probability <= 1 for probability in probabilities):
        raise ConstructionError(
            f"draw_binary_distances needs probabilities between 0 and 1, got {list(probabilities)}."
        )

    def fill(figure: Any) -> None:
        panels = figure.subplots(1, len(probabilities), squeeze=False, sharey=True)[0]
        for axes, probability in zip(panels, probabilities, strict=True):
            _curves(axes, probability)
        panels[0].set_ylabel("nats, or probability")
        figure.legend(
            *panels[0].get_legend_handles_labels(), loc="outside right center", labelcolor=INK
        )

    return save_figure(path, fill, size=(3.0 * len(probabilities) + 2.2, 3.4))


def _curves(axes: Any, probability: float) -> None:
    # Closer together near 0 and 1, where logarithms are steep.
    steps = numpy.sin(numpy.linspace(0.0, numpy.pi / 2, NUM_POINTS)) ** 2
    results = [
        compare_distributions(numpy.array([probability, 1 - probability]), numpy.array([q, 1 - q]))
        for q in steps
    ]
    entropies = [each.cross_entropy for each in results]
    # Wide and pale: the divergence may lie on it.
    axes.plot(steps, _finite(entropies), color=THIRD, linewidth=4, alpha=0.35, label=CROSS_ENTROPY)
    for label, colour, dash, values in _lines(results):
        axes.plot(steps, _finite(values), dash, color=colour, label=label)
    axes.set_ylim(0, TOP)
    axes.set_xlim(0, 1)
    axes.set_xlabel("q")
    axes.set_title(
        f"P = ({probability:g}, {1 - probability:g}), Q = (q, 1 - q)", loc="left", color=INK
    )


def _finite(values: list[float]) -> Reals:
    """Nothing is drawn where a divergence is infinite."""
    return numpy.where(numpy.isinf(values), numpy.nan, values)


def _lines(result: list[DistributionDistances]) -> list[tuple[str, str, str, list[float]]]:
    return [
        ("$L^1$", FIRST, "-", [each.l1 for each in result]),
        ("$L^2$", FIRST, "--", [each.l2 for each in result]),
        (r"$L^\infty$ = total variation", FIRST, ":", [each.l_infinity for each in result]),
        ("KL(P ‖ Q)", SECOND, "-", [each.kullback_leibler for each in result]),
        ("KL(Q ‖ P)", SECOND, "--", [each.kullback_leibler_reversed for each in result]),
        ("2 TV², Pinsker", MUTED, ":", [each.pinsker for each in result]),
    ]


# Pictures of gradient descent under its bound, and of the ways of several rules.


RULE_COLOURS = (FIRST, SECOND, THIRD, INK)
NUM_LANDSCAPE_POINTS = 81


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
        for colour, (label, run) in zip(RULE_COLOURS, runs.items(), strict=False):
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
    space = 0.08 * (high - low).max() + 1e-9
    across, up = (
        numpy.linspace(low[i] - space, high[i] + space, NUM_LANDSCAPE_POINTS) for i in range(2)
    )

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
        for colour, (label, way) in zip(RULE_COLOURS, ways.items(), strict=False):
            axes.plot(*way.T, ".-", color=colour, linewidth=1.1, markersize=3.5, label=label)
        axes.plot(*problem.minimizer, "*", color=INK, markersize=9, label="minimum")
        axes.set_aspect("equal")
        axes.set_xlabel("θ₁")
        axes.set_ylabel("θ₂")
        figure.legend(loc="outside right center", labelcolor=INK)

    return save_figure(path, fill, size=(6.4, 3.8))


def _require(who: str, count: int) -> None:
    if not 1 <= count <= len(RULE_COLOURS):
        raise ConstructionError(f"{who} draws 1 to {len(RULE_COLOURS)} curves, got {count}.")
