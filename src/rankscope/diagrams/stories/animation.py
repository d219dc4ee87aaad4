"""A contraction as an animated GIF: hold a frame, let the tensors of the next move meet."""

from collections.abc import Iterator, Sequence
from io import BytesIO

import numpy as np
from numpy.typing import NDArray

from rankscope.diagrams.contraction import plan_contraction
from rankscope.diagrams.layout.placement import NO_HINTS, PLAIN_VIEW, Hints, View
from rankscope.diagrams.network import Drawable
from rankscope.diagrams.pictures.raster import to_png
from rankscope.diagrams.pictures.scene import Scene
from rankscope.diagrams.pictures.themes import LIGHT, Theme
from rankscope.diagrams.stories.morphing import eased, morph
from rankscope.diagrams.stories.stage import Stage, stage
from rankscope.diagrams.stories.story import Planner, tell
from rankscope.diagrams.stories.storyboard import captioned, headed, of_one_size, panel_box
from rankscope.errors import MissingExtraError

# Milliseconds.
HOLD, LAST_HOLD = 1100, 2600
MOVE_STEPS, MOVE_STEP = 8, 50
COLORS = 128

Shot = tuple[Scene, int]


def to_gif(
    drawable: Drawable,
    *,
    theme: Theme = LIGHT,
    view: View = PLAIN_VIEW,
    hints: Hints = NO_HINTS,
    planner: Planner = plan_contraction,
    scale: float = 1.0,
) -> bytes:
    """Animate a contraction; the same input gives the same bytes.

    Raises:
        SizeError: if a size is missing, so that there is no best order.
        MissingExtraError: if Pillow or matplotlib is not installed.
    """
    stages = [stage(chapter, hints, view) for chapter in tell(drawable, planner)]
    return encoded(shots(stages), theme, scale=scale)


def shots(stages: Sequence[Stage]) -> list[Shot]:
    """Pictures of one size, and how many milliseconds each is shown."""
    chapters = [list(_chapter_shots(staged)) for staged in stages]
    scenes = of_one_size([[scene for scene, _ in chapter] for chapter in chapters])
    times = [milliseconds for chapter in chapters for _, milliseconds in chapter]
    times[-1] = LAST_HOLD
    return list(zip((scene for group in scenes for scene in group), times, strict=True))


def _chapter_shots(staged: Stage) -> Iterator[Shot]:
    box, heading = panel_box(staged), staged.chapter.heading
    for number, (frame, scene) in enumerate(zip(staged.chapter.frames, staged.scenes, strict=True)):
        if len(frame.merged) > 1:
            before = staged.scenes[number - 1]
            for step in range(1, MOVE_STEPS + 1):
                moving = morph(before, scene, frame, eased(step / (MOVE_STEPS + 1)))
                yield headed(captioned(moving, staged, number, box), heading), MOVE_STEP
        yield headed(captioned(scene, staged, number, box), heading), HOLD


def encoded(found: Sequence[Shot], theme: Theme, *, scale: float) -> bytes:
    """Pictures as one GIF that repeats for ever, with one palette for all."""
    try:
        from PIL import Image
    except ImportError as error:
        raise MissingExtraError(what="Writing GIF", package="pillow", extra="draw") from error
    pictures = [
        np.asarray(Image.open(BytesIO(to_png(scene, theme, scale=scale))).convert("RGB"))
        for scene, _ in found
    ]
    # Every colour is in the first picture or, for results, in the last.
    palette = _common_colors(np.concatenate([_packed(pictures[0]), _packed(pictures[-1])]))
    frames = []
    for picture in pictures:
        size = (picture.shape[1], picture.shape[0])
        frame = Image.frombytes("P", size, _nearest(picture, palette).tobytes())
        frame.putpalette(palette.astype(np.uint8).tobytes())
        frames.append(frame)
    buffer = BytesIO()
    frames[0].save(
        buffer,
        "GIF",
        save_all=True,
        append_images=frames[1:],
        duration=[milliseconds for _, milliseconds in found],
        loop=0,
    )
    return buffer.getvalue()


def _packed(pixels: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Colours as single numbers, which are quick to sort."""
    red, green, blue = (pixels[..., channel].astype(np.int64).reshape(-1) for channel in range(3))
    return red << 16 | green << 8 | blue


def _unpacked(colors: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.stack([colors >> 16, colors >> 8 & 255, colors & 255], axis=-1)


def _common_colors(colors: NDArray[np.int64]) -> NDArray[np.int64]:
    """The most frequent colours, exactly: an averaged white would not be white."""
    distinct, counts = np.unique(colors, return_counts=True)
    # A stable sort, so that equally frequent colours come in the same order in every run.
    return _unpacked(distinct[np.argsort(-counts, kind="stable")][:COLORS])


def _nearest(pixels: NDArray[np.uint8], palette: NDArray[np.int64]) -> NDArray[np.uint8]:
    """Every pixel, row by row, as the number of the nearest colour of the palette."""
    distinct, places = np.unique(_packed(pixels), return_inverse=True)
    distances = np.square(_unpacked(distinct)[:, None] - palette).sum(axis=-1)
    numbers: NDArray[np.uint8] = distances.argmin(axis=1).astype(np.uint8)
    return numbers[places]
