"""All frames of a contraction on one page, below each other."""

from collections.abc import Sequence
from dataclasses import replace

from rankscope.diagrams.contraction import plan_contraction
from rankscope.diagrams.describing import describe
from rankscope.diagrams.layout.placement import NO_HINTS, PLAIN_VIEW, Hints, View
from rankscope.diagrams.network import Drawable
from rankscope.diagrams.pictures.arrangement import columns, named
from rankscope.diagrams.pictures.mathtext import place_label, text_width
from rankscope.diagrams.pictures.plain_text import plain_text
from rankscope.diagrams.pictures.scene import Box, Scene, union
from rankscope.diagrams.stories.captions import short_number, values
from rankscope.diagrams.stories.stage import Stage, stage
from rankscope.diagrams.stories.story import (
    Chapter,
    Frame,
    Planner,
    largest_intermediate,
    tell,
    total_flops,
)

# Pixels.
NUMBER_SIZE, FORMULA_SIZE, COST_SIZE, HEADING_SIZE = 22.0, 21.0, 17.0, 25.0
NUMBER_WIDTH, CAPTION_GAP, PANEL_GAP = 34.0, 36.0, 44.0
HEADING_GAP, CHAPTER_GAP = 34.0, 70.0
# Height over width from which frames are set in columns.
TALLEST_BOARD, TALLEST_BOOK = 2.4, 1.5


def storyboard(
    drawable: Drawable,
    hints: Hints = NO_HINTS,
    view: View = PLAIN_VIEW,
    *,
    planner: Planner = plan_contraction,
) -> Scene:
    """Draw every step of a contraction: formula on the left, cost on the right, picture below.

    Raises:
        SizeError: if a size is missing, so that there is no best order.
    """
    chapters = tell(drawable, planner)
    stages = [stage(chapter, hints, view) for chapter in chapters]
    pages = [_chapter_scene(found, number) for number, found in enumerate(stages, start=1)]
    scene = pages[0] if len(pages) == 1 else columns(pages, CHAPTER_GAP, tallest=TALLEST_BOOK)
    return replace(
        scene,
        name=drawable.name,
        title=f"Contraction of {drawable.title or drawable.name}",
        description=f"{describe(drawable)} {told(chapters)}",
    )


def told(chapters: Sequence[Chapter]) -> str:
    """A story in words."""
    sentences = []
    for chapter in chapters:
        if chapter.heading:
            sentences.append(f"{plain_text(chapter.heading)}:")
        sentences += [f"Step {n}: {spoken(f)}" for n, f in enumerate(chapter.frames) if n > 0]
    return " ".join((*sentences, f"In total {totals(chapters)}."))


def spoken(frame: Frame) -> str:
    """A frame's formula and cost as one plain sentence."""
    return f"{plain_text(frame.formula)}; {plain_text(frame.cost)}."


def totals(chapters: Sequence[Chapter]) -> str:
    """What all chapters cost together."""
    return (
        f"{short_number(total_flops(chapters), unit='FLOP')}, "
        f"largest intermediate {values(largest_intermediate(chapters))}"
    )


def captioned(scene: Scene, staged: Stage, number: int, box: Box) -> Scene:
    """A picture of frame `number` under its caption: number and formula left, cost right."""
    left, top, right, _ = box
    base = top - CAPTION_GAP
    frame = staged.chapter.frames[number]
    written = [
        (f"${number}$", (left, base), NUMBER_SIZE, "muted", "lc"),
        (frame.formula, (left + NUMBER_WIDTH, base), FORMULA_SIZE, "caption", "lc"),
    ]
    if frame.cost:
        written.append((frame.cost, (right, base), COST_SIZE, "muted", "rc"))
    labels = tuple(
        place_label(text, place, size=size, style=style, anchor=anchor)
        for text, place, size, style, anchor in written
    )
    return replace(scene, labels=(*scene.labels, *labels))


def headed(scene: Scene, heading: str) -> Scene:
    """A picture under the heading of its chapter, if that has one."""
    if not heading:
        return scene
    place = (scene.box[0], scene.box[1] - HEADING_GAP)
    label = place_label(heading, place, size=HEADING_SIZE, style="caption", anchor="lb")
    return replace(scene, labels=(*scene.labels, label))


def panel_box(staged: Stage) -> Box:
    """Where all pictures of a story are, wide enough for all captions."""
    left, top, right, bottom = union(scene.box for scene in staged.scenes)
    wide = max(
        NUMBER_WIDTH
        + text_width(frame.formula, FORMULA_SIZE)
        + (2 * CAPTION_GAP + text_width(frame.cost, COST_SIZE) if frame.cost else 0.0)
        for frame in staged.chapter.frames
    )
    missing = max(0.0, wide - (right - left)) / 2
    return (left - missing, top, right + missing, bottom)


def of_one_size(groups: Sequence[Sequence[Scene]]) -> list[list[Scene]]:
    """Pictures that show the same part of the plane within a group, and the same size in all."""
    boxes = [union(scene.box for scene in group) for group in groups]
    width = max(right - left for left, _, right, _ in boxes)
    height = max(bottom - top for _, top, _, bottom in boxes)
    found = []
    for group, (left, top, right, bottom) in zip(groups, boxes, strict=True):
        dx, dy = (width - (right - left)) / 2, (height - (bottom - top)) / 2
        canvas = (left - dx, top - dy, right + dx, bottom + dy)
        found.append([replace(scene, canvas=canvas) for scene in group])
    return found


def _chapter_scene(staged: Stage, chapter_number: int) -> Scene:
    left, _, right, _ = panel_box(staged)
    panels = []
    for number, picture in enumerate(staged.scenes):
        box = (left, picture.box[1], right, picture.box[3])
        panel = captioned(picture, staged, number, box)
        panels.append(named(panel, f"{chapter_number}.{number}"))
    page = headed(columns(panels, PANEL_GAP, tallest=TALLEST_BOARD), staged.chapter.heading)
    return page.shifted(-page.box[0], 0.0)
