"""Pictures of curves, bars and matrices that several topics share."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy

from rankscope.constructions.dense import Reals
from rankscope.constructions.figures import FIRST, INK, MUTED, SECOND, THIRD, save_figure

# Colours with different lightness, so that they can be told apart without colour, too.
COLOURS = (FIRST, SECOND, THIRD, INK, MUTED)
# Whole numbers are no floats to a type checker at run time.
Column = Sequence[int] | Sequence[float] | Reals
DASHES = ("-", "--", ":", "-.")
MOST_WRITTEN = 64


@dataclass(frozen=True)
class Axes:
    """What is written on a plot.

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

    # As tall as the tallest matrix, with room for words.
    tallest = max(matrix.shape[0] / matrix.shape[1] for matrix in matrices.values())
    return save_figure(path, fill, size=(2.9 * len(matrices) + 0.4, 2.4 * tallest + 1.1))


def _write_entries(plot: Any, matrix: Reals) -> None:
    middle = (matrix.min() + matrix.max()) / 2
    for (row, column), entry in numpy.ndenumerate(matrix):
        colour = "white" if entry > middle else INK
        text = f"{entry:.2f}".rstrip("0").rstrip(".")
        plot.text(column, row, text, ha="center", va="center", fontsize=7, color=colour)
