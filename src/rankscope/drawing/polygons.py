"""Plane geometry for checking pictures: flattened outlines, gaps between them, near pairs.

All closed shapes of a scene are convex, so that separating axes decide whether they meet.
"""

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise

from rankscope.drawing.scene import Box, Command, Point, Scene, Shape, ShapeKind, Wire

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


# --- Shapes and wires as drawing commands: the one place that knows where their ink runs ----------


# Control points this far along the tangents make a cubic curve that passes for a quarter circle.
QUARTER = 4 / 3 * (math.sqrt(2) - 1)
ROUND_KINDS = (ShapeKind.CIRCLE, ShapeKind.DOT)
BOX_KINDS = (ShapeKind.SQUARE, ShapeKind.PILL, ShapeKind.FRAME)


def view_box(scene: Scene) -> Box:
    """What a picture shows: left, top, right, bottom of everything drawn, and the margin."""
    left, top, right, bottom = scene.box
    margin = scene.margin
    return (left - margin, top - margin, right + margin, bottom + margin)


def corner_radius(shape: Shape) -> float:
    """How much the corners of a square, pill or frame are rounded.

    Example:
        >>> corner_radius(Shape("tag", ShapeKind.PILL, 0.0, 0.0, 80.0, 30.0, "tag"))
        15.0
    """
    smaller = min(shape.width, shape.height) / 2
    match shape.kind:
        case ShapeKind.PILL:
            return smaller
        case ShapeKind.SQUARE:
            return min(9.0, smaller / 2)
        case ShapeKind.FRAME:
            return min(14.0, smaller)
        case _:
            return 0.0


def corners(shape: Shape) -> tuple[Point, ...]:
    """Corners of a diamond (from the top) or a triangle (from its tip), clockwise."""
    if shape.kind is ShapeKind.DIAMOND:
        left, top, right, bottom = shape.box
        return ((shape.x, top), (right, shape.y), (shape.x, bottom), (left, shape.y))
    # A little larger than the circle it stands for: a triangle of the same width looks small.
    radius, start = 0.56 * shape.width, math.radians(shape.angle)
    turns = [start + turn * 2 * math.pi / 3 for turn in range(3)]
    return tuple(
        (shape.x + radius * math.cos(turn), shape.y + radius * math.sin(turn)) for turn in turns
    )


def shape_path(shape: Shape) -> tuple[Command, ...]:
    """The closed outline of a shape."""
    if shape.kind in ROUND_KINDS:
        return _rounded_box(shape.box, shape.width / 2, shape.height / 2)
    if shape.kind in BOX_KINDS:
        radius = corner_radius(shape)
        return _rounded_box(shape.box, radius, radius)
    first, *others = corners(shape)
    return (("M", first), *(("L", point) for point in others), ("Z", ()))


def wire_path(wire: Wire) -> tuple[Command, ...]:
    """The line of a wire, its corners rounded."""
    if wire.is_curve:
        start, *others = wire.points
        return (("M", start), ("C", tuple(value for point in others for value in point)))
    points = [wire.points[0]]
    points += [
        here for before, here in zip(wire.points, wire.points[1:], strict=False) if here != before
    ]
    commands: list[Command] = [("M", points[0])]
    for before, corner, after in zip(points, points[1:], points[2:], strict=False):
        into, out = math.dist(before, corner), math.dist(corner, after)
        radius = min(wire.corner_radius, into / 2, out / 2)
        commands.append(("L", _toward(corner, before, radius / into)))
        commands.append(("Q", (*corner, *_toward(corner, after, radius / out))))
    return (*commands, ("L", points[-1]))


def _rounded_box(box: Box, radius_x: float, radius_y: float) -> tuple[Command, ...]:
    left, top, right, bottom = box
    held_x, held_y = radius_x * (1 - QUARTER), radius_y * (1 - QUARTER)
    inner_left, inner_right = left + radius_x, right - radius_x
    inner_top, inner_bottom = top + radius_y, bottom - radius_y
    return (
        ("M", (inner_left, top)),
        ("L", (inner_right, top)),
        ("C", (right - held_x, top, right, top + held_y, right, inner_top)),
        ("L", (right, inner_bottom)),
        ("C", (right, bottom - held_y, right - held_x, bottom, inner_right, bottom)),
        ("L", (inner_left, bottom)),
        ("C", (left + held_x, bottom, left, bottom - held_y, left, inner_bottom)),
        ("L", (left, inner_top)),
        ("C", (left, top + held_y, left + held_x, top, inner_left, top)),
        ("Z", ()),
    )


def _toward(point: Point, target: Point, share: float) -> Point:
    return (
        point[0] + share * (target[0] - point[0]),
        point[1] + share * (target[1] - point[1]),
    )
