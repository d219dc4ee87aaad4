"""Ways a wire can run between two points, and how they meet shapes, frames and each other."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from rankscope.drawing.layout.tensors import UNIT
from rankscope.drawing.polygons import segments
from rankscope.drawing.scene import Box, Point, around, on_curve

NEAR = 0.01
LANES = tuple(UNIT * (0.62 + 0.3 * lane) for lane in range(5))
CURVE_STEPS = 12


@dataclass(frozen=True)
class Route:
    """A line through points, or one cubic Bézier curve, in pixels."""

    points: tuple[Point, ...]
    is_curve: bool = False

    @cached_property
    def line(self) -> tuple[Point, ...]:
        """The points it runs through, curves made of short straight pieces."""
        if not self.is_curve:
            return self.points
        return tuple(on_curve(self.points, step / CURVE_STEPS) for step in range(CURVE_STEPS + 1))

    @cached_property
    def box(self) -> Box:
        """The box around it."""
        return around(self.line)

    @cached_property
    def pieces(self) -> tuple[tuple[Point, Point, Box], ...]:
        """Its straight pieces that have a length, each with its box."""
        return tuple((start, end, around((start, end))) for start, end in segments(self.line))

    def reversed(self) -> "Route":
        """The same line from its other end."""
        return Route(self.points[::-1], self.is_curve)


def is_level(start: Point, end: Point) -> bool:
    """Whether two points are on one row."""
    return abs(start[1] - end[1]) < NEAR


def is_upright(start: Point, end: Point) -> bool:
    """Whether two points are in one column."""
    return abs(start[0] - end[0]) < NEAR


def bracket(start: Point, end: Point) -> Route:
    """Leaves upright, arrives level: an arm of a hyperedge."""
    (x0, y0), (x1, y1) = start, end
    knee = (x0, y0 + 0.98 * (y1 - y0))
    return Route((start, knee, (x0 + 0.3 * (x1 - x0), y1), end), is_curve=True)


def arc(start: Point, end: Point, height: float) -> Route:
    """A bow whose middle is `height` pixels to the right of the way from start to end."""
    (x0, y0), (x1, y1) = start, end
    length = math.dist(start, end) or 1.0
    ux, uy = (x1 - x0) / length, (y1 - y0) / length
    lift, along = height / 0.75, 0.28 * length
    dx, dy = -uy * lift, ux * lift
    return Route(
        (
            start,
            (x0 + ux * along + dx, y0 + uy * along + dy),
            (x1 - ux * along + dx, y1 - uy * along + dy),
            end,
        ),
        is_curve=True,
    )


def loop(at: Point, direction: Point, radius: float) -> Route:
    """A closed wire that leaves a tensor and comes back: a trace."""
    (x, y), (dx, dy) = at, direction
    # Starts and ends inside the outline, left and right of the direction.
    inset, reach, width = 0.45 * radius, 3.7 * radius, 2.3 * radius
    px, py = -dy, dx
    return Route(
        (
            (x + px * inset, y + py * inset),
            (x + px * width + dx * reach, y + py * width + dy * reach),
            (x - px * width + dx * reach, y - py * width + dy * reach),
            (x - px * inset, y - py * inset),
        ),
        is_curve=True,
    )


def elbow(start: Point, end: Point, *, is_upright_first: bool) -> Route:
    """One corner."""
    corner = (start[0], end[1]) if is_upright_first else (end[0], start[1])
    return Route((start, corner, end))


def over_lane(start: Point, end: Point, y: float) -> Route:
    """Up or down to a lane, along it, and back."""
    return Route((start, (start[0], y), (end[0], y), end))


def beside_lane(start: Point, end: Point, x: float) -> Route:
    """Left or right to a lane, along it, and back."""
    return Route((start, (x, start[1]), (x, end[1]), end))


def orthogonal(start: Point, end: Point) -> Iterator[Route]:
    """Ways along rows and columns, simplest first."""
    low, high = sorted((start[1], end[1]))
    left, right = sorted((start[0], end[0]))
    if is_level(start, end) or is_upright(start, end):
        yield Route((start, end))
    else:
        yield elbow(start, end, is_upright_first=True)
        yield elbow(start, end, is_upright_first=False)
        for share in (0.5, 0.35, 0.65):
            yield over_lane(start, end, low + share * (high - low))
            yield beside_lane(start, end, left + share * (right - left))
    for lane in LANES:
        yield over_lane(start, end, low - lane)
        yield over_lane(start, end, high + lane)
        yield beside_lane(start, end, right + lane)
        yield beside_lane(start, end, left - lane)


def curved_routes(start: Point, end: Point) -> Iterator[Route]:
    """Straight, then more and more bent to either side."""
    yield Route((start, end))
    length = math.dist(start, end)
    for share in (0.14, 0.24, 0.36, 0.5):
        yield arc(start, end, share * length)
        yield arc(start, end, -share * length)


# --- How routes meet shapes, frames and each other ------------------------------------------------


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


def intersection(first: Piece, second: Piece) -> Point | None:
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
    crossings: list[Point] = []
    for start, end, _ in route.pieces:
        met = [intersection(side, (start, end)) for side in pairwise(corners)]
        crossings += sorted(
            (point for point in met if point is not None),
            key=lambda point: math.dist(start, point),
        )
    return crossings


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
