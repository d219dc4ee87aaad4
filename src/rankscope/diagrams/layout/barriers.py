"""Barriers as shapes: the dashed frame, its tag, and a mark where each wire leaves it."""

from collections.abc import Mapping, Sequence

from rankscope.diagrams.diagram import Diagram
from rankscope.diagrams.layout.encounters import border_points
from rankscope.diagrams.layout.routes import Route
from rankscope.diagrams.layout.tensors import TAG_FONT
from rankscope.diagrams.layout.wires import Segment, Wiring
from rankscope.diagrams.layout.wording import mark_description, region_description, tag_text
from rankscope.diagrams.parts import Region
from rankscope.diagrams.pictures.mathtext import place_label, text_width
from rankscope.diagrams.pictures.scene import Box, Label, Shape, ShapeKind

DIAMOND, RING = 17.0, 9.0
SHARES = (0.5, 0.25, 0.75, 0.375, 0.625)  # of the width, where a tag may stand
TAG_HEIGHT, TAG_PADDING, TAG_INSET, TAG_CLEARANCE = 30.0, 24.0, 36.0, 12.0


def frame_shape(region: Region, box: Box) -> Shape:
    """The dashed frame of a barrier."""
    left, top, right, bottom = box
    return Shape(
        region.name,
        ShapeKind.FRAME,
        (left + right) / 2,
        (top + bottom) / 2,
        right - left,
        bottom - top,
        "barrier",
        region_description(region),
    )


def crossing_marks(
    wiring: Wiring, frames: Mapping[str, Box], routes: Mapping[Segment, Route]
) -> dict[Segment, list[Shape]]:
    """A diamond where a normalized leg leaves its barrier, a ring where another one does."""
    found: dict[Segment, list[Shape]] = {}
    for name, frame in frames.items():
        region = wiring.diagram.region_by_name[name]
        for segment, route in routes.items():
            if not wiring.is_crossing(segment, name):
                continue
            for x, y in border_points(route, frame)[:1]:
                is_normalized = segment.index in region.over
                size = DIAMOND if is_normalized else RING
                mark = Shape(
                    f"{name}:{segment.index}",
                    ShapeKind.DIAMOND if is_normalized else ShapeKind.CIRCLE,
                    x,
                    y,
                    size,
                    size,
                    "normalized" if is_normalized else "passing",
                    mark_description(region, segment.index),
                )
                found.setdefault(segment, []).append(mark)
    return found


def tag(
    diagram: Diagram, region: Region, frame: Box, obstacles: Sequence[Box]
) -> tuple[Shape, Label]:
    """The pill on the border that names the function: top left, or the first free place."""
    text = tag_text(diagram, region)
    width = text_width(text, TAG_FONT)
    pill_width = width + TAG_PADDING
    left, top, right, bottom = frame
    inset = TAG_INSET - TAG_PADDING / 2 + pill_width / 2
    columns = [left + inset, right - inset]
    columns += [left + share * (right - left) for share in SHARES]
    fitting = [x for x in columns if left + inset <= x <= right - inset] or [(left + right) / 2]
    places = [(x, y) for y in (top, bottom) for x in fitting]
    x, y = next(
        (place for place in places if not _is_blocked(place, pill_width, obstacles)), places[0]
    )
    pill = Shape(
        f"{region.name}:tag",
        ShapeKind.PILL,
        x,
        y,
        pill_width,
        TAG_HEIGHT,
        "tag",
        region_description(region),
    )
    label = place_label(text, (x, y), size=TAG_FONT, style="on-tag", anchor="mm")
    return pill, Label(
        label.text, label.x, label.y, label.size, label.style, label.box, region.name
    )


def _is_blocked(place: tuple[float, float], width: float, obstacles: Sequence[Box]) -> bool:
    x, y = place
    half, rise = width / 2 + TAG_CLEARANCE, TAG_HEIGHT / 2 + 2
    return any(
        box[0] < x + half and x - half < box[2] and box[1] < y + rise and y - rise < box[3]
        for box in obstacles
    )
