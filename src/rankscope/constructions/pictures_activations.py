"""Pictures of activation functions and of how often units act."""

from pathlib import Path
from typing import Any

import numpy

from rankscope.constructions.activations import ACTIVATIONS
from rankscope.constructions.dead_units import DeadUnits, LayerUnits
from rankscope.constructions.figures import FIRST, INK, MUTED, SECOND, THIRD, save_figure

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


def draw_dead_units(found: DeadUnits, path: Path | str) -> Path:
    """Draw for each layer how often its units act, the busiest first; dead ones are marked.

    Raises:
        OutputError: if the ending is not .svg, .pdf or .png, or the file cannot be written.
        MissingExtraError: if matplotlib is not installed.
    """

    def fill(figure: Any) -> None:
        rows = figure.subplots(len(found.layers), 1, squeeze=False, sharey=True)[:, 0]
        for axes, layer in zip(rows, found.layers, strict=True):
            _bars(axes, layer)
        rows[-1].set_xlabel("units, the busiest first")
        figure.suptitle(str(found), x=0.01, ha="left", color=INK, fontsize=9)

    return save_figure(path, fill, size=(6.0, 0.8 + 1.3 * len(found.layers)))


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
