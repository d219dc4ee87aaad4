"""A contraction as one HTML file to step through: no server, no network, no other file."""

import html
import json
import re
from dataclasses import dataclass, replace
from importlib.resources import files

from rankscope.diagrams.contraction import plan_contraction
from rankscope.diagrams.describing import describe
from rankscope.diagrams.network import Drawable
from rankscope.drawing.animation import (
    DrawnSequence,
    add_caption,
    add_heading,
    draw_sequence,
    of_one_size,
    panel_box,
    plain_caption,
    totals,
)
from rankscope.drawing.frames import Frame, Planner, frame_sequences
from rankscope.drawing.layout.placement import NO_HINTS, PLAIN_VIEW, Hints, View
from rankscope.drawing.polygons import view_box
from rankscope.drawing.scene import Scene
from rankscope.drawing.svg import to_svg
from rankscope.drawing.themes import LIGHT, Theme, contrast
from rankscope.drawing.typesetting import plain_text

PLACE = re.compile(r"@(\w+)@")
# Pixels; small pictures are not blown up, large ones fit a screen.
NARROWEST, WIDEST = 640, 1200


@dataclass(frozen=True)
class _Page:
    """One frame: its picture, what a screen reader says, and how far merging tensors move."""

    scene: Scene
    text: str
    moves: tuple[dict[str, str | float], ...] = ()


def to_html(
    drawable: Drawable,
    *,
    theme: Theme = LIGHT,
    view: View = PLAIN_VIEW,
    hints: Hints = NO_HINTS,
    planner: Planner = plan_contraction,
) -> str:
    """Write a stepper: previous, play, next, a slider, arrow keys, and the cost of every step.

    Raises:
        SizeError: if a size is missing, so that there is no best order.
    """
    sequences = frame_sequences(drawable, planner)
    groups = [_pages(draw_sequence(sequence, hints, view)) for sequence in sequences]
    scenes = of_one_size([[page.scene for page in group] for group in groups])
    pages = [
        replace(page, scene=scene)
        for group, shown in zip(groups, scenes, strict=True)
        for page, scene in zip(group, shown, strict=True)
    ]
    left, _, right, _ = view_box(pages[0].scene)
    moves = f"{len(pages) - len(sequences)} steps: {totals(sequences)}"
    texts = {
        "title": html.escape(drawable.title or drawable.name),
        "totals": html.escape(moves),
        "frames": "\n".join(_figure(page, number, theme) for number, page in enumerate(pages)),
        "steps": _json([{"text": page.text, "moves": list(page.moves)} for page in pages]),
        "last": str(len(pages) - 1),
        "width": str(round(min(max(right - left + 48, NARROWEST), WIDEST))),
    }
    template = (files("rankscope.drawing") / "assets" / "stepper.html").read_text("utf-8")
    # One pass, so that a title with a placeholder in it stays a title.
    return PLACE.sub(lambda match: (texts | _colors(theme))[match[1]], template)


def _pages(drawn: DrawnSequence) -> list[_Page]:
    box = panel_box(drawn)
    heading = plain_text(drawn.sequence.heading)
    pages: list[_Page] = []
    for number, (frame, scene) in enumerate(zip(drawn.sequence.frames, drawn.scenes, strict=True)):
        text = f"{heading}: {plain_caption(frame)}" if heading else plain_caption(frame)
        picture = add_heading(add_caption(scene, drawn, number, box), drawn.sequence.heading)
        picture = replace(picture, title=text, description=describe(frame.diagram))
        moves = _moves(drawn.scenes[number - 1], scene, frame) if number else ()
        pages.append(_Page(picture, text, moves))
    return pages


def _moves(before: Scene, after: Scene, frame: Frame) -> tuple[dict[str, str | float], ...]:
    """How far each tensor of the frame before goes to meet the others."""
    goal = next(shape for shape in after.shapes if shape.name == frame.result)
    return tuple(
        {"name": shape.name, "dx": round(goal.x - shape.x, 1), "dy": round(goal.y - shape.y, 1)}
        for shape in before.shapes
        if shape.name in frame.merged
    )


def _figure(page: _Page, number: int, theme: Theme) -> str:
    hidden = " hidden" if number else ""
    picture = to_svg(page.scene, theme, prefix=f"step{number}-")
    return f'<figure class="step"{hidden}>\n{picture}</figure>'


def _json(value: object) -> str:
    # Inside a script element the text must not be able to end it.
    return json.dumps(value, ensure_ascii=False).replace("<", "\\u003c")


def _colors(theme: Theme) -> dict[str, str]:
    is_dark = contrast(theme.background, "#FFFFFF") > contrast(theme.background, "#000000")
    return {
        "background": theme.background,
        "scheme": "dark" if is_dark else "light",
        "ink": theme.label("caption"),
        "muted": theme.label("muted"),
        "accent": theme.label("on-tag"),
        "line": theme.wire("rule").color,
    }
