"""Matplotlib figures of this room: one look, the same bytes each time, nothing global changed."""

from collections.abc import Callable
from importlib import import_module
from io import BytesIO
from pathlib import Path
from typing import Any

from rankscope.diagrams.pictures.themes import LIGHT
from rankscope.errors import MissingExtraError, OutputError
from rankscope.files import write_atomically

# No date and no version may change the bytes.
FACTS: dict[str, dict[str, None]] = {
    ".svg": {"Date": None, "Creator": None},
    ".pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    ".png": {"Software": None},
}
SETTINGS = {
    "svg.hashsalt": "rankscope",
    "svg.fonttype": "path",
    "font.family": "DejaVu Sans",
    "font.size": 9.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
}
INK, MUTED = LIGHT.label("caption"), LIGHT.label("muted")
FIRST, FIRST_TINT = LIGHT.shape("parameter").stroke, LIGHT.shape("parameter").fill
SECOND = LIGHT.wire("cut").color
THIRD = LIGHT.shape("convolution").stroke
DOTS_PER_INCH = 160


# Matplotlib's classes can only be named where it is imported; hence Any.
def save_figure(
    path: Path | str, fill: Callable[[Any], None], *, size: tuple[float, float]
) -> Path:
    """Make a figure of a size in inches, let `fill` draw on it, and write .svg, .pdf or .png.

    Raises:
        OutputError: if the ending is none of these, or the file cannot be written.
        MissingExtraError: if matplotlib is not installed.
    """
    target = Path(path)
    if target.suffix not in FACTS:
        raise OutputError(
            f"Figures are {', '.join(FACTS)}, got {target.name!r}; choose one of these endings."
        )
    try:
        matplotlib = import_module("matplotlib")
    except ImportError as error:
        raise MissingExtraError(
            what="Drawing a construction", package="matplotlib", extra="draw"
        ) from error
    from matplotlib.figure import Figure

    buffer = BytesIO()
    with matplotlib.rc_context(SETTINGS):
        figure = Figure(figsize=size, layout="constrained", facecolor=LIGHT.background)
        fill(figure)
        figure.savefig(
            buffer, format=target.suffix[1:], dpi=DOTS_PER_INCH, metadata=FACTS[target.suffix]
        )
    write_atomically(target, buffer.getvalue())
    return target
