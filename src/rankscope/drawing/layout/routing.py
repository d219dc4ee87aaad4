"""Routes of wires: the simplest that run through nothing and cross each barrier once.

Regions are finished from the inside out. The wires inside a region come first, then its frame
around them, then what crosses it.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
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
from rankscope.drawing.layout.routes import (
    NEAR,
    TOGETHER,
    Route,
    arc,
    bracket,
    covers,
    curved_routes,
    elbow,
    intersection,
    is_in_line,
    is_level,
    is_upright,
    loop,
    near_pieces,
    num_entries,
    orthogonal,
    passes,
    shared_run,
)
from rankscope.drawing.layout.tensors import frame_box
from rankscope.drawing.scene import Box, Point

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


# --- Choosing among the ways: what a route costs, region by region ------------------------------


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
