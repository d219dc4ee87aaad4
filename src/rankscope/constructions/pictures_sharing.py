"""Pictures of matrices that repeat a few weights: a colour for each weight."""

import colorsys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy

from rankscope.constructions.dense import Reals
from rankscope.constructions.figures import INK, MUTED, save_figure
from rankscope.constructions.shared_matrix import SharedMatrix
from rankscope.errors import ConstructionError

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
    found, counts = numpy.unique(places, return_counts=True)
    colours.reshape(-1, 3)[found[counts > 1]] = SEVERAL
    return colours


def _colour(place: int, count: int) -> tuple[float, float, float]:
    """Around the wheel of hues, every second one darker."""
    return colorsys.hls_to_rgb(place / count, 0.48 if place % 2 else 0.68, 0.6)
