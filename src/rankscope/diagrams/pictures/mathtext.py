"""TeX mathematics as outlines, with exact boxes: the one place that measures text.

Labels become paths (STIX, through matplotlib's mathtext), so that placement can be exact, a
picture looks the same in every viewer, and no font has to be installed.
"""

from functools import lru_cache
from importlib.util import find_spec

from rankscope.diagrams.pictures.scene import Label, Outline
from rankscope.errors import DiagramError, MissingExtraError


@lru_cache(maxsize=16384)
def outline(text: str, size: float) -> Outline:
    r"""Turn a line of TeX (mathematics between dollars) into an outline.

    Raises:
        DiagramError: if matplotlib's mathtext cannot read the text.
        MissingExtraError: if matplotlib is not installed.
    """
    if find_spec("matplotlib") is None:
        raise MissingExtraError(what="Drawing labels", package="matplotlib", extra="draw")
    # Imported here because matplotlib is optional, and slow to import.
    from rankscope.diagrams.pictures.typesetting import typesetter

    try:
        return typesetter().typeset(text, size)
    except ValueError as error:
        raise DiagramError(f"Label {text!r} is not TeX that mathtext can read.") from error


def text_width(text: str, size: float) -> float:
    """Width of the ink."""
    box = outline(text, size).box
    return box[2] - box[0]


def place_label(
    text: str, point: tuple[float, float], *, size: float, style: str, anchor: str = "mm"
) -> Label:
    """A label with `anchor` at a point: l, m or r, then t, m, b or c.

    "c" centres capitals on their own height, so that a superscript does not push them down.
    """
    left, top, right, bottom = outline(text, size).box
    dx = {"l": -left, "m": -(left + right) / 2, "r": -right}[anchor[0]]
    dy = {
        "t": -top,
        "m": -(top + bottom) / 2,
        "b": -bottom,
        "c": -(0.72 * _capital_middle(size) + 0.28 * (top + bottom) / 2),
    }[anchor[1]]
    x, y = point[0] + dx, point[1] + dy
    return Label(text, x, y, size, style, (x + left, y + top, x + right, y + bottom))


def _capital_middle(size: float) -> float:
    _, top, _, bottom = outline("$X$", size).box
    return (top + bottom) / 2
