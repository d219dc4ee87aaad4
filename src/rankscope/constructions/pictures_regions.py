"""Pictures of affine regions in the plane."""

import colorsys
from pathlib import Path
from typing import Any

import numpy

from rankscope.constructions.figures import INK, save_figure
from rankscope.constructions.one_layer_obstruction import Obstruction
from rankscope.constructions.regions_plane import PlaneRegions

GOLDEN = 0.6180339887498949


def draw_regions(
    found: PlaneRegions,
    path: Path | str,
    *,
    title: str = "",
    obstruction: Obstruction | None = None,
) -> Path:
    """Draw each maximal affine piece in a colour of its own, with thin lines between patterns.

    Args:
        found: the regions.
        path: ends with .svg, .pdf or .png.
        title: a line above; the counts if empty.
        obstruction: two places of one line that are to be marked.

    Raises:
        OutputError: if the ending is another, or the file cannot be written.
        MissingExtraError: if matplotlib is not installed.
    """

    def fill(figure: Any) -> None:
        axes = figure.add_subplot()
        _paint(axes, found)
        if obstruction is not None:
            _mark(axes, obstruction)
        axes.set_title(title or _counts(found), loc="left", color=INK)

    return save_figure(path, fill, size=(5.0, 5.2))


def _counts(found: PlaneRegions) -> str:
    return f"{found.num_patterns:,} patterns, {found.num_affine_pieces:,} affine pieces"


def _paint(axes: Any, found: PlaneRegions) -> None:
    from matplotlib.collections import PolyCollection

    polygons = [numpy.array(region.polygon.vertices) for region in found.regions]
    # Thin out the lines before they turn everything black.
    width = 0.8 if len(polygons) < 300 else 60 / len(polygons)
    axes.add_collection(
        PolyCollection(
            polygons,
            facecolors=[_colour(piece) for piece in found.pieces],
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
