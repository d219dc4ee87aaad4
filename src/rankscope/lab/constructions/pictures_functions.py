"""Pictures of functions: on a line, by their regions in the plane, and of the 2-5-1 network."""

import colorsys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy

from rankscope.errors import ConstructionError
from rankscope.lab.constructions.approximation import LineApproximation
from rankscope.lab.constructions.dense import Reals, dense_layers, evaluate
from rankscope.lab.constructions.explicit_networks import SQUARE, TwoFiveOne, sawtooth_function
from rankscope.lab.constructions.interval_arithmetic import Target
from rankscope.lab.constructions.obstructions import Obstruction, PolynomialBarrier
from rankscope.lab.constructions.pictures import (
    FIRST,
    FIRST_TINT,
    INK,
    MUTED,
    SECOND,
    THIRD,
    save_figure,
)
from rankscope.lab.constructions.piecewise_linear import PiecewiseLinear, one_hidden_layer
from rankscope.lab.constructions.regions import PlaneRegions

# Pictures of functions of one variable and of the networks that equal or approach them.


NUM_POINTS = 1201


def draw_hidden_units(function: PiecewiseLinear, path: Path | str) -> Path:
    """Draw a piecewise-linear function and the hidden units that add up to it.

    Raises:
        OutputError: if the ending is not .svg, .pdf or .png, or the file cannot be written.
        MissingExtraError: if matplotlib is not installed.
    """
    network = one_hidden_layer(function)
    first, last = dense_layers(network)
    low, high = _span(function)
    points = numpy.linspace(low, high, NUM_POINTS)
    units = first(points[:, None]).clip(min=0) * last.weight[0]

    def fill(figure: Any) -> None:
        axes = figure.add_subplot()
        axes.plot(points, units, color=MUTED, linewidth=0.9)
        axes.plot([], [], color=MUTED, linewidth=0.9, label=f"{units.shape[1]} hidden units")
        axes.plot(
            points, function(points), color=FIRST, linewidth=2.2, label="their sum, plus a constant"
        )
        kinks = function.simplified().breakpoints
        axes.plot(kinks, function(kinks), "o", color=SECOND, markersize=4, label="breakpoints")
        _frame(axes, f"{len(kinks)} breakpoints, {units.shape[1]} hidden units")

    return save_figure(path, fill, size=(6.0, 3.6))


def draw_approximation(result: LineApproximation, target: Target, path: Path | str) -> Path:
    """Draw a function, the network near it, and the error under its certified bound.

    Raises:
        OutputError: if the ending is not .svg, .pdf or .png, or the file cannot be written.
        MissingExtraError: if matplotlib is not installed.
    """
    points = numpy.linspace(*result.ends, NUM_POINTS)
    values = target.values(points[:, None])
    near = evaluate(result.network, points[:, None])[:, 0]

    def fill(figure: Any) -> None:
        upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=[2, 1])
        upper.fill_between(
            points,
            values - result.epsilon,
            values + result.epsilon,
            color=FIRST_TINT,
            label="within ε",
        )
        upper.plot(points, values, color=FIRST, linewidth=1.2, label="function")
        upper.plot(points, near, color=SECOND, linewidth=1.2, label="network")
        kinks = result.function.breakpoints
        upper.plot(kinks, result.function(kinks), ".", color=SECOND, markersize=4)
        _frame(upper, f"{result.num_units} hidden units")
        lower.plot(points, numpy.abs(values - near), color=SECOND, linewidth=0.9, label="error")
        lower.axhline(result.epsilon, color=INK, linewidth=0.8, label="ε")
        lower.axhline(
            result.certified_error, color=THIRD, linewidth=0.8, linestyle="--", label="certified"
        )
        _frame(lower, "")

    return save_figure(path, fill, size=(6.0, 4.6))


def draw_sawtooth(power: int, rivals: dict[str, PiecewiseLinear], path: Path | str) -> Path:
    """Draw the sawtooth on [0, 1] and functions that try to follow it.

    Raises:
        OutputError: if the ending is not .svg, .pdf or .png, or the file cannot be written.
        MissingExtraError: if matplotlib is not installed.
    """
    teeth = sawtooth_function(power)

    def fill(figure: Any) -> None:
        axes = figure.add_subplot()
        axes.plot(teeth.breakpoints, teeth.breakpoint_values, color=FIRST, linewidth=0.9)
        axes.plot([], [], color=FIRST, label=f"tent map {power} times")
        for (name, rival), colour in zip(rivals.items(), (SECOND, THIRD, INK), strict=False):
            inside = rival.breakpoints[(rival.breakpoints > 0) & (rival.breakpoints < 1)]
            points = numpy.concatenate([[0.0], inside, [1.0]])
            axes.plot(points, rival(points), color=colour, linewidth=1.6, label=name)
        axes.axhline(0.5, color=MUTED, linewidth=0.6)
        _frame(axes, f"{2**power} affine pieces from {3 * power} units")

    return save_figure(path, fill, size=(6.0, 3.4))


def draw_barrier(
    result: PolynomialBarrier, target: Target, ends: tuple[float, float], path: Path | str
) -> Path:
    """Draw the error of a nearly best polynomial, with the points that prove it is.

    Raises:
        OutputError: if the ending is not .svg, .pdf or .png, or the file cannot be written.
        MissingExtraError: if matplotlib is not installed.
    """
    points = numpy.linspace(*ends, NUM_POINTS)
    errors = target.values(points[:, None]) - result.polynomial(points)
    marked = target.values(result.points[:, None]) - result.polynomial(result.points)

    def fill(figure: Any) -> None:
        axes = figure.add_subplot()
        axes.axhspan(
            -result.lower, result.lower, color=FIRST_TINT, label="no polynomial stays inside"
        )
        axes.plot(points, errors, color=FIRST, linewidth=1.2, label="error of a nearly best one")
        axes.plot(result.points, marked, "o", color=SECOND, markersize=4, label="points of proof")
        _frame(axes, f"degree {result.degree}: at least {result.lower:.3g} away, at any width")

    return save_figure(path, fill, size=(6.0, 3.4))


def _span(function: PiecewiseLinear) -> tuple[float, float]:
    """The breakpoints with some space on both sides."""
    if not len(function.breakpoints):
        return function.point - 1.0, function.point + 1.0
    low, high = float(function.breakpoints[0]), float(function.breakpoints[-1])
    space = max(0.25 * (high - low), 0.5)
    return low - space, high + space


def _frame(axes: Any, title: str) -> None:
    axes.set_title(title, loc="left", color=INK)
    axes.legend(fontsize=8, labelcolor=INK, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    axes.margins(x=0)


# Pictures of affine regions in the plane.


GOLDEN = 0.6180339887498949


def draw_regions(
    result: PlaneRegions,
    path: Path | str,
    *,
    title: str = "",
    obstruction: Obstruction | None = None,
) -> Path:
    """Draw each maximal affine piece in a colour of its own, with thin lines between patterns.

    Args:
        result: the regions.
        path: ends with .svg, .pdf or .png.
        title: a line above; the counts if empty.
        obstruction: two places of one line that are to be marked.

    Raises:
        OutputError: if the ending is another, or the file cannot be written.
        MissingExtraError: if matplotlib is not installed.
    """

    def fill(figure: Any) -> None:
        axes = figure.add_subplot()
        _paint(axes, result)
        if obstruction is not None:
            _mark(axes, obstruction)
        axes.set_title(title or _counts(result), loc="left", color=INK)

    return save_figure(path, fill, size=(5.0, 5.2))


def _counts(result: PlaneRegions) -> str:
    return f"{result.num_patterns:,} patterns, {result.num_affine_pieces:,} affine pieces"


def _paint(axes: Any, result: PlaneRegions) -> None:
    from matplotlib.collections import PolyCollection

    polygons = [numpy.array(region.polygon.vertices) for region in result.regions]
    # Thin out the lines before they turn everything black.
    width = 0.8 if len(polygons) < 300 else 60 / len(polygons)
    axes.add_collection(
        PolyCollection(
            polygons,
            facecolors=[_colour(piece) for piece in result.pieces],
            edgecolors=INK,
            linewidths=width,
        )
    )
    corners = numpy.concatenate(polygons)
    axes.set_xlim(corners[:, 0].min(), corners[:, 0].max())
    axes.set_ylim(corners[:, 1].min(), corners[:, 1].max())
    axes.set_aspect("equal")
    axes.set_xlabel("first input")
    axes.set_ylabel("second input")


def _colour(number: int) -> tuple[float, float, float]:
    """Hues a golden ratio apart: neighbours in number are far apart on the wheel."""
    hue = number * GOLDEN % 1.0
    return colorsys.hls_to_rgb(hue, 0.74 + 0.1 * (number % 3 - 1), 0.55)


def _mark(axes: Any, obstruction: Obstruction) -> None:
    for place, style in ((obstruction.first, "-"), (obstruction.second, ":")):
        ends = [(float(x), float(y)) for x, y in place.segment]
        across, up = zip(*ends, strict=True)
        axes.plot(across, up, style, color=INK, linewidth=3.5)


# Pictures of the 2-5-1 network: its graph, and the functions it can be.


NUM_SQUARE_POINTS = 161
PER_ROW = 4
RADIUS = 0.24


def draw_two_five_one(network: TwoFiveOne, path: Path | str) -> Path:
    """Draw the network as a graph, inputs on the left; a line is as thick as its weight is large.

    Raises:
        OutputError: if the ending is not .svg, .pdf or .png, or the file cannot be written.
        MissingExtraError: if matplotlib is not installed.
    """
    weights = [layer.weight for layer in dense_layers(network.network)]
    heights = [_heights(size) for size in (weights[0].shape[1], *map(len, weights))]

    def fill(figure: Any) -> None:
        axes = figure.add_subplot()
        for place, weight in enumerate(weights):
            _connect(axes, place, weight, heights)
        _nodes(axes, heights)
        axes.plot([], [], color=FIRST, linewidth=2, label="positive weight")
        axes.plot([], [], color=SECOND, linewidth=2, label="negative weight")
        axes.legend(loc="upper right", fontsize=8, labelcolor=INK)
        axes.set_xlim(-0.6, 5.4)
        axes.set_ylim(-2.5, 2.5)
        axes.set_aspect("equal")
        axes.set_axis_off()

    return save_figure(path, fill, size=(5.0, 4.0))


def _heights(size: int) -> Reals:
    return (size - 1) / 2 - numpy.arange(size, dtype=float)


def _connect(axes: Any, place: int, weight: Reals, heights: list[Reals]) -> None:
    largest = numpy.abs(weight).max()
    for (target, source), value in numpy.ndenumerate(weight):
        ends = heights[place][source], heights[place + 1][target]
        axes.plot(
            (2 * place, 2 * place + 2),
            ends,
            color=FIRST if value > 0 else SECOND,
            linewidth=0.4 + 2.2 * abs(value) / largest,
            zorder=1,
        )


def _nodes(axes: Any, heights: list[Reals]) -> None:
    from matplotlib.patches import Circle

    for place, (letter, levels) in enumerate(zip("xhy", heights, strict=True)):
        for number, height in enumerate(levels, start=1):
            centre = 2 * place, height
            axes.add_patch(
                Circle(centre, RADIUS, facecolor=FIRST_TINT, edgecolor=INK, linewidth=0.9, zorder=2)
            )
            label = f"${letter}$" if len(levels) == 1 else f"${letter}_{number}$"
            axes.text(*centre, label, ha="center", va="center", color=INK, zorder=3)


def draw_realizations(networks: Sequence[TwoFiveOne], path: Path | str) -> Path:
    """Draw the functions of several networks on [-2, 2]², with the lines where they break.

    Raises:
        ConstructionError: if there is none.
        OutputError: if the ending is not .svg, .pdf or .png, or the file cannot be written.
        MissingExtraError: if matplotlib is not installed.
    """
    if not networks:
        raise ConstructionError("draw_realizations needs at least 1 network, got 0.")
    num_rows = -(-len(networks) // PER_ROW)
    num_columns = min(len(networks), PER_ROW)

    def fill(figure: Any) -> None:
        grid = figure.subplots(num_rows, num_columns, squeeze=False, sharex=True, sharey=True)
        for axes, network in zip(grid.flat, networks, strict=False):
            _contours(axes, network)
        for axes in grid.flat[len(networks) :]:
            axes.set_axis_off()

    return save_figure(path, fill, size=(2.1 * num_columns, 2.35 * num_rows))


def _contours(axes: Any, network: TwoFiveOne) -> None:
    from matplotlib.collections import LineCollection

    across = numpy.linspace(SQUARE.low[0], SQUARE.high[0], NUM_SQUARE_POINTS)
    up = numpy.linspace(SQUARE.low[1], SQUARE.high[1], NUM_SQUARE_POINTS)
    points = numpy.stack(numpy.meshgrid(across, up), axis=-1)
    values = evaluate(network.network, points.reshape(-1, 2)).reshape(
        NUM_SQUARE_POINTS, NUM_SQUARE_POINTS
    )
    # Colours meet at zero on every panel.
    size = max(float(numpy.abs(values).max()), 1e-12)
    levels = numpy.linspace(-size, size, 17)
    axes.contourf(across, up, values, levels=levels, cmap="RdBu_r")
    edges = [
        numpy.array([start, end])
        for region in network.regions.regions
        for start, end in _inner_edges(region.polygon.vertices)
    ]
    axes.add_collection(LineCollection(edges, colors=INK, linewidths=0.8))
    axes.set_aspect("equal")
    axes.set_title(f"{network.regions.num_patterns} regions", loc="left", color=INK, fontsize=8)
    axes.set_xticks([-2, 0, 2])
    axes.set_yticks([-2, 0, 2])


def _inner_edges(vertices: Sequence[tuple[float, float]]) -> list[tuple[Any, Any]]:
    """Sides of a polygon that are not on the frame of the square."""
    sides = zip(vertices, (*vertices[1:], vertices[0]), strict=True)
    return [
        (start, end)
        for start, end in sides
        if not any(start[axis] == end[axis] in (-2.0, 2.0) for axis in range(2))
    ]
