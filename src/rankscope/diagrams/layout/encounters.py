"""How routes meet shapes, frames and each other."""

import math
from collections.abc import Iterator
from itertools import pairwise

from rankscope.diagrams.layout.routes import Route
from rankscope.diagrams.pictures.scene import Box, Point

Piece = tuple[Point, Point]
TOGETHER = 7.0  # wires nearer than this look like one


def passes(route: Route, box: Box, margin: float) -> bool:
    """Whether a route comes within `margin` of the shape in a box."""
    middle = ((box[0] + box[2]) / 2, (box[1] + box[3]) / 2)
    radius = (box[2] - box[0]) / 2 + margin
    return any(_distance(middle, start, end) < radius for start, end, _ in route.pieces)


def near_pieces(first: Route, second: Route, *, reach: float) -> Iterator[tuple[Piece, Piece]]:
    """Pairs of straight pieces of two routes whose boxes are within `reach`."""
    left, top, right, bottom = first.box
    frame = (left - reach, top - reach, right + reach, bottom + reach)
    others = [piece for piece in second.pieces if not _is_apart(piece[2], frame)]
    # Written out, because nothing else is asked as often.
    for start, end, (left, top, right, bottom) in first.pieces if others else ():
        low_x, low_y, high_x, high_y = left - reach, top - reach, right + reach, bottom + reach
        for other_start, other_end, (x0, y0, x1, y1) in others:
            if x0 <= high_x and low_x <= x1 and y0 <= high_y and low_y <= y1:
                yield (start, end), (other_start, other_end)


def meeting(first: Piece, second: Piece) -> Point | None:
    """Where two straight pieces cross; one that only touches the other from the left does not."""
    (x0, y0), (x1, y1) = first
    (x2, y2), (x3, y3) = second
    before = (x1 - x0) * (y2 - y0) - (y1 - y0) * (x2 - x0)
    after = (x1 - x0) * (y3 - y0) - (y1 - y0) * (x3 - x0)
    turn_before = (x3 - x2) * (y0 - y2) - (y3 - y2) * (x0 - x2)
    turn_after = (x3 - x2) * (y1 - y2) - (y3 - y2) * (x1 - x2)
    if (before > 0) == (after > 0) or (turn_before > 0) == (turn_after > 0):
        return None
    share = before / (before - after)
    return (x2 + share * (x3 - x2), y2 + share * (y3 - y2))


def shared_run(first: Piece, second: Piece, *, reach: float) -> tuple[float, Point]:
    """How far two straight pieces run side by side within `reach`, and the middle of that."""
    start, end = first
    length = math.dist(start, end)
    ux, uy = (end[0] - start[0]) / length, (end[1] - start[1]) / length
    (near, aside), (far, other_aside) = sorted(
        (
            (x - start[0]) * ux + (y - start[1]) * uy,
            (y - start[1]) * ux - (x - start[0]) * uy,
        )
        for x, y in second
    )
    low, high = max(near, 0.0), min(far, length)
    middle = (start[0] + (low + high) / 2 * ux, start[1] + (low + high) / 2 * uy)
    is_parallel = abs(aside - other_aside) < 0.2 * math.dist(*second)
    is_near = abs(aside + other_aside) / 2 < reach
    return (high - low if is_parallel and is_near and low < high else 0.0), middle


def num_entries(route: Route, frame: Box) -> int:
    """How often a route crosses the border of a frame."""
    return len(border_points(route, frame))


def border_points(route: Route, frame: Box) -> list[Point]:
    """Where a route crosses the border of a frame, in order."""
    left, top, right, bottom = frame
    corners = [(left, top), (right, top), (right, bottom), (left, bottom), (left, top)]
    if _is_apart(route.box, frame):
        return []
    found: list[Point] = []
    for start, end, _ in route.pieces:
        met = [meeting(side, (start, end)) for side in pairwise(corners)]
        found += sorted(
            (point for point in met if point is not None),
            key=lambda point: math.dist(start, point),
        )
    return found


def _is_apart(first: Box, second: Box) -> bool:
    return (
        first[2] < second[0] or second[2] < first[0] or first[3] < second[1] or second[3] < first[1]
    )


def _distance(point: Point, start: Point, end: Point) -> float:
    dx, dy = end[0] - start[0], end[1] - start[1]
    share = ((point[0] - start[0]) * dx + (point[1] - start[1]) * dy) / (dx * dx + dy * dy)
    share = min(1.0, max(0.0, share))
    return math.dist(point, (start[0] + share * dx, start[1] + share * dy))


def is_in_line(box: Box, point: Point) -> bool:
    """Whether a point is inside a box, or straight above, below or beside its middle."""
    x, y = (box[0] + box[2]) / 2, (box[1] + box[3]) / 2
    is_straight = min(abs(point[0] - x), abs(point[1] - y)) < TOGETHER + 1
    return is_straight or covers(box, point, 12.0)


def covers(box: Box, point: Point, margin: float) -> bool:
    """Whether a point is inside a box, or within `margin` of it."""
    return (
        box[0] - margin < point[0] < box[2] + margin
        and box[1] - margin < point[1] < box[3] + margin
    )
