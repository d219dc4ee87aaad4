"""Pictures of the 2-5-1 network: its graph, and the functions it can be."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy

from rankscope.constructions.dense import Reals, dense_layers, evaluate
from rankscope.constructions.figures import FIRST, FIRST_TINT, INK, SECOND, save_figure
from rankscope.constructions.two_five_one import SQUARE, TwoFiveOne
from rankscope.errors import ConstructionError

NUM_POINTS = 161
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

    across = numpy.linspace(SQUARE.low[0], SQUARE.high[0], NUM_POINTS)
    up = numpy.linspace(SQUARE.low[1], SQUARE.high[1], NUM_POINTS)
    points = numpy.stack(numpy.meshgrid(across, up), axis=-1)
    values = evaluate(network.network, points.reshape(-1, 2)).reshape(NUM_POINTS, NUM_POINTS)
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
