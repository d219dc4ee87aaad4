"""The frames of barriers: how large they are, given what is inside."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rankscope.diagrams.layout.tensors import TAG_FONT
from rankscope.diagrams.layout.wires import End, NodeEnd, Wiring
from rankscope.diagrams.layout.wording import tag_text
from rankscope.diagrams.pictures.mathtext import text_width
from rankscope.diagrams.pictures.scene import Box, union

# Left, top, right and bottom, around tensors, around inner frames, and around wires.
PADDING = (30.0, 36.0, 30.0, 26.0)
INNER_PADDING = (26.0, 40.0, 26.0, 22.0)
WIRE_PADDING = (16.0, 22.0, 16.0, 16.0)
TAG_ROOM, TAG_ROOM_IN_HALF = 72.0, 62.0
MANY_LEGS = 4


@dataclass(frozen=True)
class Frames:
    """The box of every region."""

    boxes: Mapping[str, Box]

    @classmethod
    def around_ends(cls, wiring: Wiring, ends: Mapping[End, Box]) -> "Frames":
        """Frames around tensors and dots only: what they are before wires are drawn."""
        boxes: dict[str, Box] = {}
        for region in wiring.diagram.structure.evaluation_order:
            if region is not None:
                boxes[region] = frame_box(wiring, region, ends, boxes, ())
        return cls(boxes)


def frame_box(
    wiring: Wiring,
    region: str,
    ends: Mapping[End, Box],
    inner: Mapping[str, Box],
    wires: Sequence[Box],
) -> Box:
    """The frame of one region, around its own things, finished inner frames and wires."""
    diagram = wiring.diagram
    content = [
        _padded(box, PADDING)
        for end, box in ends.items()
        if wiring.region_of(end) == region and isinstance(end, NodeEnd)
    ]
    content += [
        _padded(box, (PADDING[0], 22.0, PADDING[2], PADDING[3]))
        for end, box in ends.items()
        if wiring.region_of(end) == region and not isinstance(end, NodeEnd)
    ]
    content += [
        _padded(inner[name], INNER_PADDING)
        for name in diagram.structure.members[region]
        if name in inner
    ]
    content += [_padded(box, WIRE_PADDING) for box in wires]
    left, top, right, bottom = union(content)
    missing = max(0.0, least_width(wiring, region) - (right - left)) / 2
    return (left - missing, top, right + missing, bottom)


def least_width(wiring: Wiring, region: str) -> float:
    """A frame is never narrower than its tag.

    With four legs or more, one may leave through the middle of the top and one through the
    bottom; then the tag needs the room of one half.
    """
    diagram = wiring.diagram
    tag = text_width(tag_text(diagram, diagram.region_by_name[region]), TAG_FONT)
    if len(diagram.structure.legs[region]) < MANY_LEGS:
        return tag + TAG_ROOM
    return 2 * tag + 2 * TAG_ROOM_IN_HALF


def _padded(box: Box, padding: tuple[float, float, float, float]) -> Box:
    return (
        box[0] - padding[0],
        box[1] - padding[1],
        box[2] + padding[2],
        box[3] + padding[3],
    )
