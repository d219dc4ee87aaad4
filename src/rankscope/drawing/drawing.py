"""One call from a diagram to a file: the ending chooses the format."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rankscope.diagrams.network import Drawable
from rankscope.drawing.animation import storyboard
from rankscope.drawing.layout.placement import Hints, View
from rankscope.drawing.page import compose
from rankscope.drawing.scene import Scene
from rankscope.drawing.themes import LIGHT, Theme
from rankscope.errors import OutputError
from rankscope.files import require_writable, write_atomically


@dataclass(frozen=True)
class PictureSource:
    """A drawable with the options of its picture."""

    drawable: Drawable
    theme: Theme
    view: View
    hints: Hints
    steps: bool

    @property
    def scene(self) -> Scene:
        """The picture of the whole, or of its contraction step by step."""
        make = storyboard if self.steps else compose
        return make(self.drawable, self.hints, self.view)


def draw(
    drawable: Drawable,
    path: Path | str,
    *,
    theme: Theme = LIGHT,
    view: View | None = None,
    hints: Hints | None = None,
    steps: bool = False,
) -> Path:
    """Draw to a file: .svg, .pdf, .png, .tikz, .gif (contraction) or .html (stepper).

    Args:
        drawable: a diagram, a sum or a network.
        path: where; the ending chooses the format.
        theme: colours.
        view: what to show: sizes, thick wires, plates, a cut.
        hints: pinned positions.
        steps: draw every step of the contraction below the other instead of the whole.

    Raises:
        OutputError: if the ending is none of these, or the file cannot be written.
    """
    target = Path(path)
    if target.suffix not in WRITERS:
        raise OutputError(
            f"draw writes {', '.join(WRITERS)}, got {target.name!r}; choose one of these endings."
        )
    require_writable(target)
    picture = PictureSource(drawable, theme, view or View(), hints or Hints(), steps)
    write_atomically(target, WRITERS[target.suffix](picture))
    return target


def _svg(picture: PictureSource) -> bytes:
    from rankscope.drawing.svg import to_svg

    return to_svg(picture.scene, picture.theme).encode()


def _tikz(picture: PictureSource) -> bytes:
    from rankscope.drawing.tikz import to_tikz

    return to_tikz(picture.scene, picture.theme).encode()


def _png(picture: PictureSource) -> bytes:
    from rankscope.drawing.raster import to_png

    return to_png(picture.scene, picture.theme)


def _pdf(picture: PictureSource) -> bytes:
    from rankscope.drawing.raster import to_pdf

    return to_pdf(picture.scene, picture.theme)


def _gif(picture: PictureSource) -> bytes:
    from rankscope.drawing.animation import to_gif

    return to_gif(picture.drawable, theme=picture.theme, view=picture.view, hints=picture.hints)


def _html(picture: PictureSource) -> bytes:
    from rankscope.drawing.stepper import to_html

    page = to_html(picture.drawable, theme=picture.theme, view=picture.view, hints=picture.hints)
    return page.encode()


WRITERS: dict[str, Callable[[PictureSource], bytes]] = {
    ".svg": _svg,
    ".pdf": _pdf,
    ".png": _png,
    ".tikz": _tikz,
    ".gif": _gif,
    ".html": _html,
}
