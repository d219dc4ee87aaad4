"""Routes of wires: the simplest that run through nothing and cross each barrier once.

Regions are finished from the inside out. The wires inside a region come first, then its frame
around them, then what crosses it.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Generic, TypeVar

from rankscope.drawing.layout.placement import (
    VECTORS,
    Dot,
    End,
    NodeEnd,
    Segment,
    Side,
    Tip,
    Wiring,
)
from rankscope.drawing.layout.tensors import UNIT, frame_box
from rankscope.drawing.polygons import segments
from rankscope.drawing.scene import Box, Point, around, on_curve

# --- Boxes sorted into cells, so that asking what is near costs the same in a large picture -------


CELL = 96.0
Thing = TypeVar("Thing")


class Buckets(Generic[Thing]):
    """A growing collection of things with boxes."""

    def __init__(self) -> None:
        self._things: list[tuple[Box, Thing]] = []
        self._cells: dict[tuple[int, int], list[int]] = {}

    def add(self, box: Box, thing: Thing) -> None:
        """Remember a thing."""
        place = len(self._things)
        for cell in _cells(box):
            self._cells.setdefault(cell, []).append(place)
        self._things.append((box, thing))

    def near(self, box: Box) -> Iterator[tuple[Box, Thing]]:
        """Things whose boxes meet a box, in the order they were added."""
        left, top, right, bottom = box
        for place in self._places(_cells(box)):
            other, thing = self._things[place]
            if left <= other[2] and other[0] <= right and top <= other[3] and other[1] <= bottom:
                yield other, thing

    def is_free(self, point: Point) -> bool:
        """Whether nothing is in the cell of a point: a quick answer, as for most of them."""
        return (int(point[0] // CELL), int(point[1] // CELL)) not in self._cells

    def _places(self, cells: Sequence[tuple[int, int]]) -> Sequence[int]:
        if len(cells) == 1:
            return self._cells.get(cells[0], ())
        return sorted({place for cell in cells for place in self._cells.get(cell, ())})


def _cells(box: Box) -> list[tuple[int, int]]:
    left, top = int(box[0] // CELL), int(box[1] // CELL)
    right, bottom = int(box[2] // CELL), int(box[3] // CELL)
    if left == right and top == bottom:
        return [(left, top)]  # as for every point: there are many
    return [(column, row) for column in range(left, right + 1) for row in range(top, bottom + 1)]


# --- Ways a wire can run between two points: straight, elbow, bracket, lane, arc, loop ------------


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


HIT, WRONG_BARRIER, ALONG, CROSSING, LATER = 1000.0, 400.0, 300.0, 40.0, 4.0
CLEARANCE = 6.0
LONGEST_TOGETHER = 12.0
PORT_SHARE = 0.75
ARC_SPACING, DOT_ARC_SPACING = 44.0, 34.0


@dataclass(frozen=True)
class PlacedWiring:
    """What wires run between: centres and boxes of everything placed, in pixels."""

    wiring: Wiring
    centres: Mapping[End, Point]
    boxes: Mapping[End, Box]
    straight: tuple[str, ...] = ()


@dataclass(frozen=True)
class Routing:
    """A route for every segment, a frame for every region, and how much is wrong with them."""

    routes: Mapping[Segment, Route]
    frames: Mapping[str, Box]
    cost: float


# Wires that are compared with each other, and those of them at one tensor that are not open; with
# more, each goes its first way.
_MOST_JUDGED, _MOST_AT_ONE = 300, 10


def is_crowded(wiring: Wiring) -> bool:
    """Whether there are so many wires, or at one place, that comparing them would take minutes."""
    at_one = Counter(
        end
        for segment in wiring.segments
        if not any(isinstance(end, Tip) for end in segment.ends)
        for end in segment.ends
        if isinstance(end, NodeEnd)
    )
    most = max(at_one.values(), default=0)
    return len(wiring.segments) > _MOST_JUDGED or most > _MOST_AT_ONE


class Router:
    """Routes one picture; use `run` once."""

    def __init__(self, placed: PlacedWiring) -> None:
        self.placed = placed
        self.wiring = placed.wiring
        self._is_crowded = is_crowded(placed.wiring)
        self.routes: dict[Segment, Route] = {}
        self.frames: dict[str, Box] = {}
        self.cost = 0.0
        self._shapes: Buckets[End] = Buckets()
        self._wires: Buckets[Segment] = Buckets()
        for end, box in placed.boxes.items():
            if not isinstance(end, Tip):
                self._shapes.add(box, end)

    def run(self) -> Routing:
        """Route everything."""
        by_region: dict[str | None, list[Segment]] = {}
        for segment in self.wiring.segments:
            by_region.setdefault(self.wiring.common_region(segment), []).append(segment)
        for region in self.wiring.diagram.structure.evaluation_order:
            for segment in sorted(by_region.get(region, []), key=self._difficulty):
                self._route(segment)
            if region is not None:
                wires = [self.routes[segment].box for segment in by_region.get(region, [])]
                self.frames[region] = frame_box(
                    self.wiring, region, self.placed.boxes, self.frames, wires
                )
        return Routing(self.routes, self.frames, self.cost)

    def _difficulty(self, segment: Segment) -> tuple[int, float]:
        """Straight wires first, then short ones: they have the least choice."""
        start, end = self._points(segment)
        is_straight = is_level(start, end) or is_upright(start, end)
        return (0 if is_straight else 1, math.dist(start, end))

    def _points(self, segment: Segment) -> tuple[Point, Point]:
        return (self.placed.centres[segment.first], self.placed.centres[segment.second])

    def _route(self, segment: Segment) -> None:
        best: tuple[float, Route] | None = None
        if self._is_crowded:
            best = (0.0, next(iter(self._ways(segment))))
        for place, route in enumerate(self._ways(segment)):
            if best is not None and LATER * place >= best[0]:
                break
            limit = math.inf if best is None else best[0] - LATER * place
            cost = LATER * place + self._faults(segment, route, limit)
            if best is None or cost < best[0]:
                best = (cost, route)
        assert best is not None
        self.cost += best[0]
        self.routes[segment] = best[1]
        self._wires.add(best[1].box, segment)

    def _ways(self, segment: Segment) -> Iterator[Route]:
        start, end = self._points(segment)
        num_parallel = self._num_parallel(segment)
        if segment.first == segment.second:
            box = self.placed.boxes[segment.first]
            for direction in ((0.0, -1.0), (0.0, 1.0), (-1.0, 0.0), (1.0, 0.0)):
                size = (box[2] - box[0]) / 2 * (1 + 0.35 * segment.ordinal)
                yield loop(start, direction, size)
        elif num_parallel > 1:
            is_small = any(isinstance(end, Dot) for end in segment.ends)
            spacing = DOT_ARC_SPACING if is_small else ARC_SPACING
            first = self._first_parallel(segment)
            forwards = segment.first == first.first
            height = spacing * (segment.ordinal - (num_parallel - 1) / 2)
            for share in (1.0, 1.8, 2.6):
                yield arc(start, end, share * (-height if forwards else height))
        elif segment.index in self.placed.straight:
            yield from curved_routes(start, end)
            yield from orthogonal(start, end)
        else:
            yield from self._row_ways(segment, start, end)

    def _row_ways(self, segment: Segment, start: Point, end: Point) -> Iterator[Route]:
        port = self._port(segment, start, end)
        if port is not None:
            yield Route((port, end))
        elif not is_level(start, end) and not is_upright(start, end):
            weights = [self._weight(one) for one in segment.ends]
            if isinstance(segment.first, Dot) != isinstance(segment.second, Dot):
                is_first_dot = isinstance(segment.first, Dot)
                yield bracket(end, start).reversed() if is_first_dot else bracket(start, end)
            elif weights[0] != weights[1]:
                # Leaves the tensor across the row, arrives at the convolution along it.
                yield elbow(start, end, is_upright_first=weights[0] > weights[1])
        yield from orthogonal(start, end)
        yield from curved_routes(start, end)

    def _port(self, segment: Segment, start: Point, end: Point) -> Point | None:
        """Where a loose end that is only a bit aside leaves its tensor, to run straight."""
        loose = segment.second
        if not isinstance(loose, Tip) and not (
            isinstance(loose, Dot) and len(self.wiring.dots[loose]) == 1
        ):
            return None
        box = self.placed.boxes[segment.first]
        reach = PORT_SHARE * (box[2] - box[0]) / 2
        dx, dy = abs(end[0] - start[0]), abs(end[1] - start[1])
        if dx <= min(reach, dy):
            return (end[0], start[1])
        return (start[0], end[1]) if dy <= min(reach, dx) else None

    def _weight(self, end: End) -> int:
        if isinstance(end, NodeEnd):
            return 1 if end.name in self.wiring.diagram.convolution_by_name else 2
        return 0

    def _parallel(self, segment: Segment) -> list[Segment]:
        return [
            other for other in self.wiring.at[segment.first] if {*other.ends} == {*segment.ends}
        ]

    def _num_parallel(self, segment: Segment) -> int:
        return len(self._parallel(segment))

    def _first_parallel(self, segment: Segment) -> Segment:
        return self._parallel(segment)[0]

    def _faults(self, segment: Segment, route: Route, limit: float) -> float:
        """What is wrong with a route; stops counting at `limit`."""
        left, top, right, bottom = route.box
        box = (left - CLEARANCE, top - CLEARANCE, right + CLEARANCE, bottom + CLEARANCE)
        cost = 0.0
        for other_box, end in self._shapes.near(box):
            if end not in segment.ends and passes(route, other_box, CLEARANCE):
                cost += HIT
        for region, frame in self.frames.items():
            expected = 1 if self.wiring.is_crossing(segment, region) else 0
            cost += WRONG_BARRIER * abs(num_entries(route, frame) - expected)
        for _, other in self._wires.near(box):
            if cost >= limit:
                break
            cost += self._conflict(segment, route, other)
        return cost

    def _conflict(self, segment: Segment, route: Route, other: Segment) -> float:
        shared = [self.placed.boxes[end] for end in segment.ends if end in other.ends]
        crossed, along = 0, 0.0
        for first, second in near_pieces(route, self.routes[other], reach=TOGETHER):
            point = intersection(first, second)
            if point is not None and not any(covers(box, point, 2.0) for box in shared):
                crossed += 1
            length, middle = shared_run(first, second, reach=TOGETHER)
            # Wires that leave one tensor side by side are spread over its ports later.
            if length and not any(is_in_line(box, middle) for box in shared):
                along += length
        cost = CROSSING * crossed
        if along > LONGEST_TOGETHER:
            cost += ALONG if segment.index != other.index else ALONG / 5
        return cost


# --- Ports: wires that leave the same side of a tensor are spread, in the order of where they go


SPACING = 18.0
WIDEST_SHARE = 1.4  # of the radius, from the first port to the last


def spread_ports(placed: PlacedWiring, routes: Mapping[Segment, Route]) -> dict[Segment, Route]:
    """The same routes, moved apart where several leave one side."""
    moved = dict(routes)
    offsets: dict[Segment, float] = {}
    for end, joined in placed.wiring.at.items():
        if not isinstance(end, NodeEnd):
            continue
        sides: dict[Side, list[Segment]] = {}
        for segment in joined:
            side = _departure(segment, end, routes[segment])
            if side is not None:
                sides.setdefault(side, []).append(segment)
        for side, group in sides.items():
            if len(group) > 1:
                _spread(placed, end, side, group, moved, offsets)
    return moved


def _departure(segment: Segment, end: End, route: Route) -> Side | None:
    """The side a route leaves from, if it leaves at a right angle from the middle."""
    if segment.first == segment.second:
        return None
    points = route.points if segment.first == end else route.points[::-1]
    dx, dy = points[1][0] - points[0][0], points[1][1] - points[0][1]
    for side in Side:
        ux, uy = VECTORS[side]
        if dx * ux + dy * uy > NEAR and abs(dx * uy - dy * ux) < NEAR:
            return side
    return None


def _spread(
    placed: PlacedWiring,
    end: NodeEnd,
    side: Side,
    group: list[Segment],
    moved: dict[Segment, Route],
    offsets: dict[Segment, float],
) -> None:
    axis = 0 if side.is_vertical else 1
    ordered = sorted(group, key=lambda s: _order(placed, end, s, moved[s], axis))
    box = placed.boxes[end]
    step = min(SPACING, WIDEST_SHARE * (box[2] - box[0]) / 2 / (len(ordered) - 1))
    places = {s: step * (k - (len(ordered) - 1) / 2) for k, s in enumerate(ordered)}
    fixed = [s for s in ordered if s in offsets or not _is_movable(s, moved[s], side)]
    if fixed:
        shift = offsets.get(fixed[0], 0.0) - places[fixed[0]]
        places = {s: place + shift for s, place in places.items()}
    for segment in ordered:
        if segment not in fixed and abs(places[segment]) > NEAR:
            offset = places[segment]
            moved[segment] = _shift_port(segment, end, moved[segment], axis, offset)
            if len(moved[segment].points) == 2:
                offsets[segment] = offset


def _order(
    placed: PlacedWiring, end: NodeEnd, segment: Segment, route: Route, axis: int
) -> tuple[int, float, str]:
    """A key that sorts wires from left to right so that they do not cross.

    What turns left comes first (the nearest turn first), then what goes straight on, then what
    turns right (the farthest turn first).
    """
    aside = placed.centres[segment.other(end)][axis] - placed.centres[end][axis]
    points = route.points if segment.first == end else route.points[::-1]
    depth = abs(points[1][1 - axis] - points[0][1 - axis])
    if len(route.points) == 2 or abs(aside) < NEAR:
        return (0, aside, segment.index)
    return (-1, depth, segment.index) if aside < 0 else (1, -depth, segment.index)


def _is_movable(segment: Segment, route: Route, side: Side) -> bool:
    """A straight wire to a dot or a tip, or along a row, must stay in the middle."""
    if len(route.points) > 2:
        return True
    is_bond = isinstance(segment.first, NodeEnd) and isinstance(segment.second, NodeEnd)
    return is_bond and side.is_vertical


def _shift_port(segment: Segment, end: End, route: Route, axis: int, offset: float) -> Route:
    is_first = segment.first == end
    points = list(route.points if is_first else route.points[::-1])
    for place in (0, 1):
        point = list(points[place])
        point[axis] += offset
        points[place] = (point[0], point[1])
    bent = Route(tuple(points), route.is_curve)
    return bent if is_first else bent.reversed()
