"""The look of this room's figures."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from rankscope.diagrams.pictures.figure_file import write_figure
from rankscope.diagrams.pictures.themes import LIGHT

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
