"""Plane geometry for checking pictures: flattened outlines, gaps between them, near pairs.

All closed shapes of a scene are convex, so that separating axes decide whether they meet.
"""

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise

from rankscope.diagrams.pictures.scene import Box, Command, Point

Points = Sequence[Point]
CELL = 96.0


def flatten(commands: Sequence[Command], *, steps: int = 8) -> list[Point]:
    """The points a path runs through; curves become `steps` straight pieces.

    Example:
        >>> flatten([("M", (0.0, 0.0)), ("Q", (1.0, 0.0, 1.0, 1.0))], steps=2)
        [(0.0, 0.0), (0.75, 0.25), (1.0, 1.0)]
    """
    points: list[Point] = []
    for _, values in commands:
        ends = list(zip(values[::2], values[1::2], strict=True))
        if len(ends) < 2:
            points += ends
            continue
        controls = [points[-1], *ends]
        points += [_on_curve(controls, step / steps) for step in range(1, steps + 1)]
    return points


def _on_curve(controls: Points, share: float) -> Point:
    """De Casteljau: halve the polygon of controls until one point is left."""
    while len(controls) > 1:
        controls = [
            (x0 + share * (x1 - x0), y0 + share * (y1 - y0))
            for (x0, y0), (x1, y1) in pairwise(controls)
        ]
    return controls[0]


def box_corners(box: Box) -> list[Point]:
    """The corners of a box, clockwise."""
    left, top, right, bottom = box
    return [(left, top), (right, top), (right, bottom), (left, bottom)]


def segments(points: Points) -> Iterator[tuple[Point, Point]]:
    """The straight pieces of an open line that have a length."""
    for start, end in pairwise(points):
        if start != end:
            yield start, end


def gap(first: Points, second: Points) -> float:
    """How far two convex polygons (or pieces of a line) are apart; below zero, how deep they meet.

    Near a corner this may be less than the distance, never more.

    Example:
        >>> gap(box_corners((0.0, 0.0, 2.0, 2.0)), box_corners((5.0, 0.0, 6.0, 2.0)))
        3.0
        >>> gap(box_corners((0.0, 0.0, 2.0, 2.0)), [(1.0, 1.0), (9.0, 1.0)])
        -1.0
    """
    widest = -math.inf
    for polygon in (first, second):
        for (x0, y0), (x1, y1) in zip(polygon, (*polygon[1:], polygon[0]), strict=True):
            length = math.hypot(x1 - x0, y1 - y0)
            if length == 0:
                continue
            across = ((y0 - y1) / length, (x1 - x0) / length)
            widest = max(widest, _separation(first, second, across))
    return widest


def _separation(first: Points, second: Points, axis: Point) -> float:
    first_low, first_high = _extent(first, axis)
    second_low, second_high = _extent(second, axis)
    return max(second_low - first_high, first_low - second_high)


def _extent(points: Points, axis: Point) -> tuple[float, float]:
    along = [x * axis[0] + y * axis[1] for x, y in points]
    return min(along), max(along)


def boxes_gap(first: Box, second: Box) -> float:
    """How far two boxes are apart along the better axis; below zero, how deep they overlap."""
    return max(
        second[0] - first[2], first[0] - second[2], second[1] - first[3], first[1] - second[3]
    )


def resampled(points: Points, spacing: float) -> Iterator[tuple[Point, Point, float]]:
    """Middles of short pieces of a line, each with its direction and its length."""
    for (x0, y0), (x1, y1) in segments(points):
        length = math.hypot(x1 - x0, y1 - y0)
        count = max(1, round(length / spacing))
        direction = ((x1 - x0) / length, (y1 - y0) / length)
        for place in range(count):
            share = (place + 0.5) / count
            yield (x0 + share * (x1 - x0), y0 + share * (y1 - y0)), direction, length / count


def runs_along(point: Point, direction: Point, line: Points, *, reach: float) -> bool:
    """Whether a line passes within `reach` of a point, in nearly the same direction."""
    for start, end in segments(line):
        dx, dy = end[0] - start[0], end[1] - start[1]
        length = math.hypot(dx, dy)
        if abs(dx * direction[1] - dy * direction[0]) > 0.2 * length:
            continue
        share = ((point[0] - start[0]) * dx + (point[1] - start[1]) * dy) / length**2
        foot = (start[0] + share * dx, start[1] + share * dy)
        if 0 <= share <= 1 and math.dist(point, foot) < reach:
            return True
    return False


def intersections(first: Points, second: Points) -> Iterator[Point]:
    """Where two lines cross from one side to the other."""
    for start, end in segments(first):
        for other_start, other_end in segments(second):
            before, after = _side(start, end, other_start), _side(start, end, other_end)
            turn_before = _side(other_start, other_end, start)
            turn_after = _side(other_start, other_end, end)
            # A point on the line counts as right of it: a crossing at a corner is seen once.
            if (before > 0) != (after > 0) and (turn_before > 0) != (turn_after > 0):
                share = before / (before - after)
                yield (
                    other_start[0] + share * (other_end[0] - other_start[0]),
                    other_start[1] + share * (other_end[1] - other_start[1]),
                )


def _side(start: Point, end: Point, point: Point) -> float:
    return (end[0] - start[0]) * (point[1] - start[1]) - (end[1] - start[1]) * (point[0] - start[0])


def near_pairs(
    first: Sequence[Box], second: Sequence[Box], *, reach: float = 0.0
) -> list[tuple[int, int]]:
    """Pairs of positions whose boxes are at most `reach` apart, in order.

    Boxes are sorted into cells first, so that a long picture costs no more than its length.
    """
    cells: dict[tuple[int, int], list[int]] = {}
    for place, box in enumerate(second):
        for cell in _cells(box, 0.0):
            cells.setdefault(cell, []).append(place)
    pairs: list[tuple[int, int]] = []
    for place, box in enumerate(first):
        others = {other: None for cell in _cells(box, reach) for other in cells.get(cell, ())}
        pairs += [
            (place, other) for other in sorted(others) if boxes_gap(box, second[other]) <= reach
        ]
    return pairs


def _cells(box: Box, reach: float) -> Iterator[tuple[int, int]]:
    left, top, right, bottom = box
    for column in range(int((left - reach) // CELL), int((right + reach) // CELL) + 1):
        for row in range(int((top - reach) // CELL), int((bottom + reach) // CELL) + 1):
            yield (column, row)
