"""A contraction as an animated GIF: hold a frame, let the tensors of the next move meet."""

from collections.abc import Iterator, Sequence
from io import BytesIO

import numpy as np
from numpy.typing import NDArray

from rankscope.diagrams.contraction import plan_contraction
from rankscope.diagrams.layout.placement import NO_HINTS, PLAIN_VIEW, Hints, View
from rankscope.diagrams.morphing import eased, morph
from rankscope.diagrams.network import Drawable
from rankscope.diagrams.raster import to_png
from rankscope.diagrams.scene import Scene
from rankscope.diagrams.stage import Stage, stage
from rankscope.diagrams.story import Planner, tell
from rankscope.diagrams.storyboard import captioned, headed, of_one_size, panel_box
from rankscope.diagrams.themes import LIGHT, Theme
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
        Image.open(BytesIO(to_png(scene, theme, scale=scale))).convert("RGB") for scene, _ in found
    ]
    palette = Image.new("P", (1, 1))
    # Every colour is in the first picture or, for results, in the last.
    ends = [np.asarray(pictures[place]).reshape(-1, 3) for place in (0, -1)]
    palette.putpalette(_common_colors(np.concatenate(ends)))
    first, *others = [p.quantize(palette=palette, dither=Image.Dither.NONE) for p in pictures]
    buffer = BytesIO()
    first.save(
        buffer,
        "GIF",
        save_all=True,
        append_images=others,
        duration=[milliseconds for _, milliseconds in found],
        loop=0,
    )
    return buffer.getvalue()


def _common_colors(pixels: NDArray[np.uint8]) -> list[int]:
    """The most frequent colours, exactly: an averaged white would not be white."""
    colors, counts = np.unique(pixels, axis=0, return_counts=True)
    # A stable sort, so that equally frequent colours come in the same order in every run.
    ranked = colors[np.argsort(-counts, kind="stable")][:COLORS]
    return [int(channel) for channel in ranked.reshape(-1)]
