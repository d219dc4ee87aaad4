"""Wires: each takes the simplest way that runs through nothing and crosses each barrier once.

Regions are finished from the inside out. The wires inside a region come first, then its frame
around them, then what crosses it.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from rankscope.diagrams.layout.buckets import Buckets
from rankscope.diagrams.layout.encounters import (
    TOGETHER,
    covers,
    is_in_line,
    meeting,
    near_pieces,
    num_entries,
    passes,
    shared_run,
)
from rankscope.diagrams.layout.frames import frame_box
from rankscope.diagrams.layout.routes import (
    Route,
    arc,
    bowed,
    bracket,
    elbow,
    is_level,
    is_upright,
    loop,
    orthogonal,
)
from rankscope.diagrams.layout.wires import Dot, End, NodeEnd, Segment, Tip, Wiring
from rankscope.diagrams.pictures.scene import Box, Point

HIT, WRONG_BARRIER, ALONG, CROSSING, LATER = 1000.0, 400.0, 300.0, 40.0, 4.0
CLEARANCE = 6.0
LONGEST_TOGETHER = 12.0
PORT_SHARE = 0.75
ARC_SPACING, DOT_ARC_SPACING = 44.0, 34.0


@dataclass(frozen=True)
class Ground:
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


class Router:
    """Routes one picture; use `run` once."""

    def __init__(self, ground: Ground) -> None:
        self.ground = ground
        self.wiring = ground.wiring
        self.routes: dict[Segment, Route] = {}
        self.frames: dict[str, Box] = {}
        self.cost = 0.0
        self._shapes: Buckets[End] = Buckets()
        self._wires: Buckets[Segment] = Buckets()
        for end, box in ground.boxes.items():
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
                    self.wiring, region, self.ground.boxes, self.frames, wires
                )
        return Routing(self.routes, self.frames, self.cost)

    def _difficulty(self, segment: Segment) -> tuple[int, float]:
        """Straight wires first, then short ones: they have the least choice."""
        start, end = self._points(segment)
        is_straight = is_level(start, end) or is_upright(start, end)
        return (0 if is_straight else 1, math.dist(start, end))

    def _points(self, segment: Segment) -> tuple[Point, Point]:
        return (self.ground.centres[segment.first], self.ground.centres[segment.second])

    def _route(self, segment: Segment) -> None:
        best: tuple[float, Route] | None = None
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
            box = self.ground.boxes[segment.first]
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
        elif segment.index in self.ground.straight:
            yield from bowed(start, end)
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
        yield from bowed(start, end)

    def _port(self, segment: Segment, start: Point, end: Point) -> Point | None:
        """Where a loose end that is only a bit aside leaves its tensor, to run straight."""
        loose = segment.second
        if not isinstance(loose, Tip) and not (
            isinstance(loose, Dot) and len(self.wiring.dots[loose]) == 1
        ):
            return None
        box = self.ground.boxes[segment.first]
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
        shared = [self.ground.boxes[end] for end in segment.ends if end in other.ends]
        crossed, along = 0, 0.0
        for first, second in near_pieces(route, self.routes[other], reach=TOGETHER):
            point = meeting(first, second)
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
