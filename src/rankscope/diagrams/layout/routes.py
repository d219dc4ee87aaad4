"""Ways a wire can run between two points: straight, elbow, bracket, lane, arc, loop."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from rankscope.diagrams.layout.tensors import UNIT
from rankscope.diagrams.pictures.polygons import segments
from rankscope.diagrams.pictures.scene import Box, Point, around

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
        return tuple(_on_curve(self.points, step / CURVE_STEPS) for step in range(CURVE_STEPS + 1))

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


def _on_curve(points: tuple[Point, ...], step: float) -> Point:
    rest = 1 - step
    weights = (rest**3, 3 * step * rest**2, 3 * step**2 * rest, step**3)
    return (
        sum(weight * x for weight, (x, _) in zip(weights, points, strict=True)),
        sum(weight * y for weight, (_, y) in zip(weights, points, strict=True)),
    )


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


def bowed(start: Point, end: Point) -> Iterator[Route]:
    """Straight, then more and more bent to either side."""
    yield Route((start, end))
    length = math.dist(start, end)
    for share in (0.14, 0.24, 0.36, 0.5):
        yield arc(start, end, share * length)
        yield arc(start, end, -share * length)
