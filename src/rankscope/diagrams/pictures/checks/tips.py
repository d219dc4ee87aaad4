"""Tips: open ends on one side of a connected picture share one line."""

import math
from collections.abc import Iterator
from typing import NamedTuple

from rankscope.diagrams.pictures.checks.picture import SLACK, Picture
from rankscope.diagrams.pictures.polygons import near_pairs
from rankscope.diagrams.pictures.scene import Point, around

TIP_DISTANCE = 60.0  # tips nearer than this must share one x
TOUCH = 1.5


class Tip(NamedTuple):
    """The open end of a wire that points to one side."""

    wire: str
    side: str
    point: Point
    group: int


def check_tips(picture: Picture) -> Iterator[str]:
    """Neighbouring tips of one connected picture that point the same way but do not line up."""
    tips = sideways_tips(picture)
    for place, first in enumerate(tips):
        for second in tips[place + 1 :]:
            offset = abs(first.point[0] - second.point[0])
            is_alike = first.side == second.side and first.group == second.group
            if is_alike and SLACK < offset < TIP_DISTANCE:
                yield (
                    f"The tips of {first.wire!r} (x = {first.point[0]:.1f}) and {second.wire!r} "
                    f"(x = {second.point[0]:.1f}) on the {first.side} do not share one x."
                )


def sideways_tips(picture: Picture) -> list[Tip]:
    """Open ends that point to the left or to the right, with the connected part they are on."""
    ends = [
        (place, line.points[at], line.points[beside])
        for place, line in enumerate(picture.lines)
        if picture.wires[place].style.startswith("wire-")
        for at, beside in ((0, 1), (-1, -2))
    ]
    shapes = (*picture.scene.shapes, *picture.scene.marks)
    boxes = [around([end]) for _, end, _ in ends]
    groups = list(range(len(picture.lines)))
    taken: dict[int, int] = {}
    first_in: dict[int, int] = {}
    for place, other in near_pairs(boxes, [shape.box for shape in shapes], reach=TOUCH):
        if shapes[other].covers(ends[place][1], margin=TOUCH):
            taken[place] = other
            _join(groups, ends[place][0], first_in.setdefault(other, ends[place][0]))
    for place, other in near_pairs(boxes, boxes, reach=TOUCH):
        if place != other and math.dist(ends[place][1], ends[other][1]) < TOUCH:
            taken[place] = other
            _join(groups, ends[place][0], ends[other][0])
    return [
        Tip(picture.wires[wire].name, side, end, _root(groups, wire))
        for place, (wire, end, before) in enumerate(ends)
        if place not in taken and (side := _side(before, end))
    ]


def _side(before: Point, end: Point) -> str:
    across, down = end[0] - before[0], end[1] - before[1]
    if abs(down) > 0.02 * abs(across):
        return ""
    return "left" if across < 0 else "right"


def _root(groups: list[int], place: int) -> int:
    while groups[place] != place:
        groups[place] = groups[groups[place]]
        place = groups[place]
    return place


def _join(groups: list[int], first: int, second: int) -> None:
    first, second = _root(groups, first), _root(groups, second)
    groups[max(first, second)] = min(first, second)
