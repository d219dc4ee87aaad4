"""Matplotlib figures as files: one look, the same bytes each time, nothing global changed.

Matplotlib is imported only when a figure is asked for; pyplot never is.
"""

from collections.abc import Callable
from importlib import import_module
from io import BytesIO
from pathlib import Path
from typing import Any

from rankscope.errors import MissingExtraError, OutputError
from rankscope.files import write_atomically

# No date and no version may change the bytes.
_FACTS: dict[str, dict[str, None]] = {
    ".svg": {"Date": None, "Creator": None},
    ".pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    ".png": {"Software": None},
}
_SETTINGS = {
    "svg.hashsalt": "rankscope",
    "svg.fonttype": "path",
    "font.family": "DejaVu Sans",
    "font.size": 9.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
}
_DOTS_PER_INCH = 200


# Matplotlib's classes can only be named where it is imported; hence Any.
def write_figure(path: Path | str, make: Callable[[], Any], *, what: str = "a figure") -> Path:
    """Write what `make` gives, a matplotlib `Figure`, to a .svg, .pdf or .png file.

    Args:
        path: of the file; its ending chooses the format.
        make: called with the settings of this package.
        what: is drawn, for messages: "a plan".

    Raises:
        OutputError: if the ending is none of these, or the file cannot be written.
        MissingExtraError: if matplotlib is not installed.
    """
    target = Path(path)
    if target.suffix not in _FACTS:
        raise OutputError(
            f"Drawing {what} writes {', '.join(_FACTS)}, got {target.name!r}; choose one of these "
            "endings."
        )
    try:
        matplotlib = import_module("matplotlib")
    except ImportError as error:
        raise MissingExtraError(
            what=f"Drawing {what}", package="matplotlib", extra="draw"
        ) from error
    buffer = BytesIO()
    with matplotlib.rc_context(_SETTINGS):
        make().savefig(
            buffer, format=target.suffix[1:], dpi=_DOTS_PER_INCH, metadata=_FACTS[target.suffix]
        )
    write_atomically(target, buffer.getvalue())
    return target
