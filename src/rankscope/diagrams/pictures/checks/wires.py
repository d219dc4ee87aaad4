"""Wires: they touch only what they end on, stay apart, and cross a barrier once."""

import math
from collections.abc import Iterator
from itertools import pairwise

from rankscope.diagrams.pictures.checks.picture import SLACK, Picture, comes_near
from rankscope.diagrams.pictures.polygons import intersections, near_pairs, resampled, runs_along
from rankscope.diagrams.pictures.scene import Point, Wire

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
