"""Geometric checks of a scene: overlaps, crossings and misplaced labels, on polygons and lines."""

import math
from collections.abc import Iterator
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

from rankscope.drawing.polygons import (
    Points,
    box_corners,
    boxes_gap,
    flatten,
    gap,
    intersections,
    near_pairs,
    resampled,
    runs_along,
    segments,
    shape_path,
    view_box,
    wire_path,
)
from rankscope.drawing.scene import Box, Label, Point, Scene, Shape, Wire, around
from rankscope.drawing.themes import ROLE_STYLES
from rankscope.drawing.typesetting import outline

SLACK = 0.5  # pixels that two things may share before it shows
# Labels of these styles belong inside a tensor; those on tags inside a tag; all others are free.
HOSTED = tuple(f"on-{style}" for style in ROLE_STYLES)


class Piece(NamedTuple):
    """One drawn thing: a closed outline for shapes, an open line for wires and borders."""

    what: str
    name: str
    points: Points
    box: Box

    def __str__(self) -> str:
        return f"{self.what} {self.name!r}"


class Picture:
    """The parts of a scene that may get in each other's way."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene

    @cached_property
    def tensors(self) -> list[Piece]:
        """Outlines of the tensors."""
        return [outlined("tensor", shape) for shape in self.scene.shapes]

    @cached_property
    def solids(self) -> list[Piece]:
        """Outlines of tensors and marks; cuts are left out, for they lie on wires on purpose."""
        marks = [mark for mark in self.scene.marks if mark.style != "cut"]
        return [*self.tensors, *(outlined("mark", mark) for mark in marks)]

    @cached_property
    def borders(self) -> list[Piece]:
        """Closed lines around the frames."""
        borders = []
        for frame in self.scene.frames:
            _, name, points, box = outlined("", frame)
            borders.append(Piece(f"the border of {frame.style}", name, [*points, points[0]], box))
        return borders

    @cached_property
    def wires(self) -> list[Wire]:
        """Wires, without cuts."""
        return [wire for wire in self.scene.wires if wire.style != "cut"]

    @cached_property
    def lines(self) -> list[Piece]:
        """The line of every wire in `wires`, its corners rounded as they are drawn."""
        lines = []
        for wire in self.wires:
            points = flatten(wire_path(wire), steps=16)
            lines.append(Piece("wire", wire.name, points, around(points)))
        return lines

    @cached_property
    def _shapes_by_name(self) -> dict[str, list[Shape]]:
        by_name: dict[str, list[Shape]] = {}
        for shape in (*self.scene.shapes, *self.scene.marks):
            by_name.setdefault(shape.name, []).append(shape)
        return by_name

    def is_hidden(self, point: Point, *wires: Wire) -> bool:
        """Whether a shape or mark that one of the wires ends on covers a point."""
        return any(
            shape.covers(point, margin=1.0)
            for wire in wires
            for name in wire.ends
            for shape in self._shapes_by_name.get(name, ())
        )


def outlined(what: str, shape: Shape) -> Piece:
    """The flattened outline of a shape."""
    points = flatten(shape_path(shape))
    return Piece(what, shape.name, points, around(points))


def comes_near(line: Points, polygon: Points, reach: float) -> bool:
    """Whether a line comes nearer than `reach` to a convex polygon; below zero, so deep into it."""
    box = around(polygon)
    return any(
        boxes_gap(around(piece), box) < reach and gap(piece, polygon) < reach
        for piece in segments(line)
    )


# --- Labels: free ones touch nothing, those on a tensor or a tag fit inside it --------------------


def check_labels(picture: Picture) -> Iterator[str]:
    """What is wrong with the labels of a picture."""
    yield from _over_shapes(picture)
    yield from _over_labels(picture)
    yield from _over_lines(picture)
    for label in picture.scene.labels:
        yield from _false_box(label)
        if label.style in HOSTED:
            yield from _outside_host(label, picture.scene.shapes, "tensor")
        elif label.style == "on-tag":
            yield from _outside_host(label, picture.scene.marks, "tag")


def _free(picture: Picture) -> list[Label]:
    return [label for label in picture.scene.labels if label.style not in (*HOSTED, "on-tag")]


def _over_shapes(picture: Picture) -> Iterator[str]:
    labels = _free(picture)
    boxes = [label.box for label in labels]
    for place, other in near_pairs(boxes, [solid.box for solid in picture.solids]):
        if gap(box_corners(boxes[place]), picture.solids[other].points) < -SLACK:
            yield f"Label {labels[place].text!r} lies over {picture.solids[other]}."


def _over_labels(picture: Picture) -> Iterator[str]:
    labels = picture.scene.labels
    boxes = [label.box for label in labels]
    for first, second in near_pairs(boxes, boxes):
        if first < second and boxes_gap(boxes[first], boxes[second]) < -SLACK:
            yield f"Label {labels[first].text!r} lies over label {labels[second].text!r}."


def _over_lines(picture: Picture) -> Iterator[str]:
    labels = _free(picture)
    boxes = [label.box for label in labels]
    lines = [*picture.lines, *picture.borders]
    reaches = [wire.width / 2 for wire in picture.wires] + [1.0] * len(picture.borders)
    widest = max(reaches, default=0.0)
    for place, other in near_pairs(boxes, [line.box for line in lines], reach=widest):
        corners = box_corners(boxes[place])
        if comes_near(lines[other].points, corners, reaches[other] - SLACK):
            yield f"Label {labels[place].text!r} lies over {lines[other]}."


def _outside_host(label: Label, shapes: tuple[Shape, ...], what: str) -> Iterator[str]:
    left, top, right, bottom = label.box
    middle = ((left + right) / 2, (top + bottom) / 2)
    hosts = [shape for shape in shapes if shape.covers(middle)]
    if not hosts:
        yield f"Label {label.text!r} of style {label.style!r} sits in no {what}."
        return
    host = min(hosts, key=lambda shape: math.dist(middle, (shape.x, shape.y)))
    if all(host.covers(corner) for corner in box_corners(label.box)):
        return
    # The ink itself, not its box: the corners of the box are empty, and so are those of a circle.
    ink = flatten(outline(label.text, label.size).commands, steps=2)
    if not all(host.covers((label.x + x, label.y + y)) for x, y in ink):
        yield (
            f"Label {label.text!r}, {right - left:.0f} x {bottom - top:.0f} px, does not fit in "
            f"{what} {host.name!r}, {host.width:.0f} x {host.height:.0f} px."
        )


def _false_box(label: Label) -> Iterator[str]:
    left, top, right, bottom = outline(label.text, label.size).box
    ink = (label.x + left, label.y + top, label.x + right, label.y + bottom)
    if any(abs(said - is_at) > SLACK for said, is_at in zip(label.box, ink, strict=True)):
        said, measured = (", ".join(f"{edge:.0f}" for edge in box) for box in (label.box, ink))
        yield f"Label {label.text!r} says that its ink is at ({said}), but it is at ({measured})."


# --- Shapes: none lies over another or on the border of a frame, and nothing is cut off -----------


# Half of the widest outline: ink reaches this far beyond the line it follows.
HALF_STROKE = 1.1


def check_shapes(picture: Picture) -> Iterator[str]:
    """What is wrong with the tensors and marks of a picture."""
    solids = picture.solids
    boxes = [solid.box for solid in solids]
    for first, second in near_pairs(boxes, boxes):
        if first < second and gap(solids[first].points, solids[second].points) < -SLACK:
            yield f"{_begin(solids[first].what)} {solids[first].name!r} lies over {solids[second]}."
    for place, other in near_pairs(
        [tensor.box for tensor in picture.tensors], [border.box for border in picture.borders]
    ):
        tensor, border = picture.tensors[place], picture.borders[other]
        if comes_near(border.points, tensor.points, -SLACK):
            yield f"Tensor {tensor.name!r} lies over {border}."


def check_view(picture: Picture) -> Iterator[str]:
    """Whatever reaches out of the view box."""
    left, top, right, bottom = view_box(picture.scene)
    pieces = [
        *((str(piece), piece.box, HALF_STROKE) for piece in (*picture.solids, *picture.borders)),
        *(
            (str(line), line.box, wire.width / 2)
            for line, wire in zip(picture.lines, picture.wires, strict=True)
        ),
        *((f"label {label.text!r}", label.box, 0.0) for label in picture.scene.labels),
    ]
    for what, box, reach in pieces:
        outside = max(left - box[0], top - box[1], box[2] - right, box[3] - bottom) + reach
        if outside > 0.01:
            yield f"{_begin(what)} reaches {outside:.1f} px out of the view box."


def _begin(sentence: str) -> str:
    return sentence[0].upper() + sentence[1:]


# --- Tips: open ends on one side of a connected picture share one line ----------------------------


TIP_DISTANCE = 60.0  # tips nearer than this must share one x
TOUCH = 1.5


class SideTip(NamedTuple):
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


def sideways_tips(picture: Picture) -> list[SideTip]:
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
        SideTip(picture.wires[wire].name, side, end, _root(groups, wire))
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


# --- Wires: they touch only what they end on, stay apart, and cross a barrier once ----------------


OVERLAP = 8.0  # pixels that two wires may run along each other where they part


def check_wires(picture: Picture) -> Iterator[str]:
    """What is wrong with the wires of a picture."""
    yield from _through_shapes(picture)
    yield from _along_wires(picture)
    yield from _twice_through_barriers(picture)


def count_crossings(picture: Picture) -> int:
    """How often wires cross each other; ends that meet do not count."""
    boxes = [line.box for line in picture.lines]
    return sum(
        not _is_meeting(picture, picture.wires[first], picture.wires[second], point)
        for first, second in near_pairs(boxes, boxes)
        if first < second
        for point in intersections(picture.lines[first].points, picture.lines[second].points)
    )


def _is_meeting(picture: Picture, first: Wire, second: Wire, point: Point) -> bool:
    ends = (first.points[0], first.points[-1], second.points[0], second.points[-1])
    is_at_end = any(math.dist(point, end) < 1.5 for end in ends)
    return is_at_end or picture.is_hidden(point, first, second)


def _through_shapes(picture: Picture) -> Iterator[str]:
    boxes = [line.box for line in picture.lines]
    widest = max((wire.width for wire in picture.wires), default=0.0)
    for place, other in near_pairs(boxes, [solid.box for solid in picture.solids], reach=widest):
        wire, solid = picture.wires[place], picture.solids[other]
        reach = wire.width / 2 - SLACK
        is_foreign = solid.name not in wire.ends
        if is_foreign and comes_near(picture.lines[place].points, solid.points, reach):
            yield f"Wire {wire.name!r} runs through {solid}, where it does not end."


def _along_wires(picture: Picture) -> Iterator[str]:
    boxes = [line.box for line in picture.lines]
    for first, second in near_pairs(boxes, boxes, reach=1.5):
        wire, other = picture.wires[first], picture.wires[second]
        # Arms of one hyperedge may run together: they are the same index.
        if first >= second or wire.name == other.name:
            continue
        shared = sum(
            length
            for point, direction, length in resampled(picture.lines[first].points, 3.0)
            if runs_along(point, direction, picture.lines[second].points, reach=1.5)
            and not picture.is_hidden(point, wire, other)
        )
        if shared > OVERLAP:
            yield f"Wire {wire.name!r} runs along wire {other.name!r} for {shared:.0f} px."


def _twice_through_barriers(picture: Picture) -> Iterator[str]:
    barriers = [frame for frame in picture.scene.frames if frame.style == "barrier"]
    counts: dict[tuple[int, str], int] = {}
    boxes = [line.box for line in picture.lines]
    for place, other in near_pairs(boxes, [barrier.box for barrier in barriers]):
        samples = resampled(picture.lines[place].points, 2.0)
        inside = [barriers[other].covers(point) for point, _, _ in samples]
        crossed = sum(here != there for here, there in pairwise(inside))
        key = (other, picture.wires[place].name)
        counts[key] = counts.get(key, 0) + crossed
    for (other, name), count in counts.items():
        if count > 1:
            barrier = barriers[other].name
            yield f"Wire {name!r} crosses barrier {barrier!r} {count} times, not once."


# --- What is wrong with a picture, in words: overlaps, stray wires, ragged tips -------------------


def lint(scene: Scene) -> tuple[str, ...]:
    """Everything that is wrong with a picture, one sentence each; empty when it is fine.

    A label beside a wire, on a plate or in the open may touch nothing; one on a tensor or a tag
    must fit inside it. A wire may touch only tensors and marks that its `ends` name, may not run
    along another index, and crosses a barrier at most once (all wires of an index together).
    Tensors and marks may not lie over each other, nor tensors over the border of a frame. Open
    ends that point left (right) out of one connected picture, nearer than 60 px, share one x.
    Cuts may lie over anything.

    Example:
        >>> from rankscope.drawing.scene import Shape, ShapeKind, Wire
        >>> lint(
        ...     Scene(
        ...         "stray",
        ...         shapes=(Shape("A", ShapeKind.CIRCLE, 0.0, 0.0, 54.0, 54.0, "data"),),
        ...         wires=(Wire("i", ((-80.0, 0.0), (80.0, 0.0)), "wire-rank"),),
        ...     )
        ... )
        ("Wire 'i' runs through tensor 'A', where it does not end.",)
    """
    nowhere = tuple(_nowhere(scene))
    if nowhere:
        return nowhere
    picture = Picture(scene)
    checks = (check_labels, check_shapes, check_wires, check_tips, check_view)
    return tuple(message for check in checks for message in check(picture))


def crossings(scene: Scene) -> int:
    """How often wires cross each other in the open; ends that meet do not count.

    Example:
        >>> from rankscope.drawing.scene import Wire
        >>> across = Wire("i", ((-9.0, 0.0), (9.0, 0.0)), "wire-rank")
        >>> down = Wire("j", ((0.0, -9.0), (0.0, 9.0)), "wire-rank")
        >>> crossings(Scene("cross", wires=(across, down)))
        1
    """
    return count_crossings(Picture(scene))


def _nowhere(scene: Scene) -> Iterator[str]:
    """Things whose place or size is not a number: nothing else can be said about them."""
    shapes = [*scene.frames, *scene.shapes, *scene.marks]
    places: list[tuple[str, tuple[float, ...]]] = []
    places += [(f"Shape {shape.name!r}", (*shape.box, shape.angle)) for shape in shapes]
    places += [
        (f"Wire {wire.name!r}", (*(value for point in wire.points for value in point), wire.width))
        for wire in scene.wires
    ]
    places += [
        (f"Label {label.text!r}", (label.x, label.y, label.size, *label.box))
        for label in scene.labels
    ]
    for what, values in places:
        if not all(map(math.isfinite, values)):
            yield f"{what} has a place or a size that is not finite: {values}."
