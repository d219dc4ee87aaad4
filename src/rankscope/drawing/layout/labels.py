"""Labels of wires, frames of barriers with their tags, and the strokes of a cut."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

import numpy

from rankscope.diagrams.diagram import Diagram
from rankscope.diagrams.parts import Region
from rankscope.drawing.layout.placement import Dot, Segment, Side, Wiring
from rankscope.drawing.layout.routes import Route, border_points
from rankscope.drawing.layout.routing import Buckets, PlacedWiring
from rankscope.drawing.layout.tensors import (
    TAG_FONT,
    WIRE_FONT,
    mark_description,
    region_description,
    tag_text,
)
from rankscope.drawing.polygons import segments
from rankscope.drawing.scene import Box, Label, Point, Shape, ShapeKind, Wire
from rankscope.drawing.typesetting import outline, place_label, text_width

# --- Labels of wires: open legs at the tip, bonds beside their wire, where nothing is in the way


TIP_GAP, SIDE_GAP = 8.0, 7.5
SPACING = 5.0
MOST_POINTS = 300  # of one straight piece
SHARES = (0.5, 0.45, 0.55, 0.4, 0.6, 0.35, 0.65, 0.3, 0.7, 0.25, 0.75, 0.15, 0.85)
SLANT = 5.0
OVER_SHAPE, OVER_WIRE, OVER_BORDER = 50.0, 15.0, 60.0
OTHER_WIRE, OFF_MIDDLE, LONG_PIECE, WRONG_SIDE, INWARD = 20.0, 30.0, 0.25, 25.0, 12.0
SIDE_COST = {Side.UP: 0.0, Side.RIGHT: 2.0, Side.LEFT: 4.0, Side.DOWN: 6.0}


@dataclass(frozen=True)
class Request:
    """One label to place.

    Args:
        index: whose it is.
        text: TeX between dollars.
        style: of the label.
        routes: the wires it may stand beside.
        num_preferred: so many of them, from the first, are better than the rest.
        tip: the end of an open leg, and the direction it points in.
        side: a side that was asked for.
        centre: labels prefer the side away from here.
    """

    index: str
    text: str
    style: str
    routes: tuple[Route, ...]
    num_preferred: int = 0
    tip: tuple[Point, Point] | None = None
    side: Side | None = None
    centre: Point | None = None


@dataclass
class Page:
    """Everything drawn so far, which further labels must avoid."""

    shapes: Sequence[Shape]
    marks: Sequence[Shape]
    frames: Sequence[Shape]
    routes: Sequence[Route]
    placed: list[Label] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._solids: Buckets[Shape | Label] = Buckets()
        self._borders: Buckets[Box] = Buckets()
        for shape in (*self.shapes, *self.marks):
            self._solids.add(shape.box, shape)
        for frame in self.frames:
            left, top, right, bottom = frame.box
            for border in (
                (left, top, right, top),
                (left, bottom, right, bottom),
                (left, top, left, bottom),
                (right, top, right, bottom),
            ):
                self._borders.add(border, border)
        self._spaced = {route.line: spaced_points(route.line, SPACING) for route in self.routes}
        points = [point for route in self.routes for point in self._spaced[route.line]]
        ink = numpy.array(points, dtype=numpy.float64).reshape(-1, 2)
        self._ink_across, self._ink_down = ink[ink[:, 0].argsort()].T

    def add(self, label: Label) -> None:
        """Put a label down."""
        self.placed.append(label)
        self._solids.add(label.box, label)

    def clash(self, box: Box) -> float:
        """How badly a label in a box would overlap what is there."""
        cost = 0.0
        for other, _ in self._solids.near(_grow(box, 4.0)):
            wide = min(box[2], other[2] + 4) - max(box[0], other[0] - 4)
            high = min(box[3], other[3] + 4) - max(box[1], other[1] - 4)
            cost += OVER_SHAPE + 0.2 * max(0.0, wide) * max(0.0, high)
        cost += OVER_WIRE * self._num_points(_grow(box, 3.5))
        cost += OVER_BORDER * sum(1 for _ in self._borders.near(_grow(box, 5.0)))
        return cost

    def _num_points(self, box: Box) -> int:
        """How many points of wires are in a box."""
        left, top, right, bottom = box
        first = numpy.searchsorted(self._ink_across, left, side="left")
        last = numpy.searchsorted(self._ink_across, right, side="right")
        down = self._ink_down[first:last]
        return int(numpy.count_nonzero((top <= down) & (down <= bottom)))

    def pieces(self, route: Route) -> Iterator[list[Point]]:
        """Visible runs of a route: split at corners, at borders, and under shapes."""
        lines = [route.line] if route.is_curve else [*segments(route.line)]
        for line in lines:
            points = self._spaced.get(tuple(line)) or spaced_points(line, SPACING)
            visible = [(point, self._zone(point)) for point in points]
            for _, group in groupby(visible, key=lambda seen: seen[1]):
                run = [point for point, zone in group if zone is not None]
                if len(run) > 2:
                    yield run

    def _zone(self, point: Point) -> tuple[bool, ...] | None:
        """Which frames a point is in; None if a shape hides it."""
        if not self._solids.is_free(point) and self._is_hidden(point):
            return None
        return tuple([frame.covers(point) for frame in self.frames])

    def _is_hidden(self, point: Point) -> bool:
        for _, thing in self._solids.near((*point, *point)):
            if isinstance(thing, Shape) and thing.covers(point):
                return True
        return False


def place_labels(page: Page, requests: Sequence[Request]) -> tuple[Label, ...]:
    """All labels: tips first, they have no choice; then the others in order."""
    for request in requests:
        if request.tip is not None:
            page.add(_at_tip(request, *request.tip))
    for request in requests:
        if request.tip is None:
            label = _beside(page, request)
            if label is not None:
                page.add(label)
    order: Mapping[str, int] = {request.index: k for k, request in enumerate(requests)}
    return tuple(sorted(page.placed, key=lambda label: order[label.owner]))


def _at_tip(request: Request, point: Point, direction: Point) -> Label:
    (x, y), (dx, dy) = point, direction
    if abs(dx) < 0.05:
        anchor = "mb" if dy < 0 else "mt"
    elif abs(dy) < 0.05:
        anchor = "rm" if dx < 0 else "lm"
    else:
        half_width, half_height = _half(request.text)
        reach = abs(dx) * half_width + abs(dy) * half_height + TIP_GAP - 2
        return _label(request, (x + dx * reach, y + dy * reach))
    return _label(request, (x + dx * TIP_GAP, y + dy * TIP_GAP), anchor)


def _beside(page: Page, request: Request) -> Label | None:
    best: tuple[float, Point] | None = None
    half = _half(request.text)
    for rank, route in enumerate(request.routes):
        for run in page.pieces(route):
            length = math.dist(run[0], run[-1])
            for cost, point in _spots(request, run, half):
                total = cost - LONG_PIECE * min(length, 160.0)
                total += OTHER_WIRE if rank >= request.num_preferred else 0.0
                if best is None or total < best[0]:
                    total += page.clash(_box(point, half))
                    if best is None or total < best[0]:
                        best = (total, point)
    return None if best is None else _label(request, best[1])


def _spots(
    request: Request, run: list[Point], half: tuple[float, float]
) -> Iterator[tuple[float, Point]]:
    """Places on both sides of a run, with what each costs before looking for clashes."""
    for share in SHARES:
        place = min(len(run) - 2, max(1, round(share * (len(run) - 1))))
        (x0, y0), (x1, y1) = run[place - 1], run[place + 1]
        length = math.hypot(x1 - x0, y1 - y0) or 1.0
        nx, ny = (y1 - y0) / length, -(x1 - x0) / length
        for sign in (1.0, -1.0):
            dx, dy = nx * sign, ny * sign
            reach = abs(dx) * half[0] + abs(dy) * half[1] + SIDE_GAP
            point = (run[place][0] + dx * reach, run[place][1] + dy * reach)
            cost = OFF_MIDDLE * abs(share - 0.5) + _side_cost(request, run[place], (dx, dy))
            yield cost, point


def _side_cost(request: Request, at: Point, normal: Point) -> float:
    dx, dy = normal
    if abs(dy) > 0.5:
        side = Side.UP if dy < 0 else Side.DOWN
    else:
        side = Side.LEFT if dx < 0 else Side.RIGHT
    if request.side is not None:
        return 0.0 if side is request.side else WRONG_SIDE
    if request.centre is None:
        # Beside a slanting wire, the upper side.
        return SIDE_COST[side] + SLANT * dy
    outward = dx * (at[0] - request.centre[0]) + dy * (at[1] - request.centre[1])
    return (0.0 if side.is_vertical else 2.0) + (INWARD if outward < 0 else -INWARD)


def _label(request: Request, point: Point, anchor: str = "mm") -> Label:
    label = place_label(request.text, point, size=WIRE_FONT, style=request.style, anchor=anchor)
    return Label(label.text, label.x, label.y, label.size, label.style, label.box, request.index)


def _half(text: str) -> tuple[float, float]:
    left, top, right, bottom = outline(text, WIRE_FONT).box
    return ((right - left) / 2, (bottom - top) / 2)


def _box(point: Point, half: tuple[float, float]) -> Box:
    return (point[0] - half[0], point[1] - half[1], point[0] + half[0], point[1] + half[1])


def _grow(box: Box, margin: float) -> Box:
    return (box[0] - margin, box[1] - margin, box[2] + margin, box[3] + margin)


def spaced_points(line: Sequence[Point], spacing: float) -> list[Point]:
    """Points along a line at most `spacing` apart, ends included; further on very long pieces."""
    points = [line[0]]
    for (x0, y0), (x1, y1) in segments(line):
        count = min(MOST_POINTS, max(1, math.ceil(math.dist((x0, y0), (x1, y1)) / spacing)))
        points += [
            (x0 + step / count * (x1 - x0), y0 + step / count * (y1 - y0))
            for step in range(1, count + 1)
        ]
    return points


# --- Barriers as shapes: the dashed frame, its tag, and a mark where each wire leaves it ----------


DIAMOND, RING = 17.0, 9.0
TAG_SHARES = (0.5, 0.25, 0.75, 0.375, 0.625)  # of the width, where a tag may stand
TAG_HEIGHT, TAG_PADDING, TAG_INSET, TAG_CLEARANCE = 30.0, 24.0, 36.0, 12.0


def frame_shape(region: Region, box: Box) -> Shape:
    """The dashed frame of a barrier."""
    left, top, right, bottom = box
    return Shape(
        region.name,
        ShapeKind.FRAME,
        (left + right) / 2,
        (top + bottom) / 2,
        right - left,
        bottom - top,
        "barrier",
        region_description(region),
    )


def crossing_marks(
    wiring: Wiring, frames: Mapping[str, Box], routes: Mapping[Segment, Route]
) -> dict[Segment, list[Shape]]:
    """A diamond where a normalized leg leaves its barrier, a ring where another one does."""
    marks: dict[Segment, list[Shape]] = {}
    for name, frame in frames.items():
        region = wiring.diagram.region_by_name[name]
        for segment, route in routes.items():
            if not wiring.is_crossing(segment, name):
                continue
            for x, y in border_points(route, frame)[:1]:
                is_normalized = segment.index in region.over
                size = DIAMOND if is_normalized else RING
                mark = Shape(
                    f"{name}:{segment.index}",
                    ShapeKind.DIAMOND if is_normalized else ShapeKind.CIRCLE,
                    x,
                    y,
                    size,
                    size,
                    "normalized" if is_normalized else "passing",
                    mark_description(region, segment.index),
                )
                marks.setdefault(segment, []).append(mark)
    return marks


def tag(
    diagram: Diagram, region: Region, frame: Box, obstacles: Sequence[Box]
) -> tuple[Shape, Label]:
    """The pill on the border that names the function: top left, or the first free place."""
    text = tag_text(diagram, region)
    width = text_width(text, TAG_FONT)
    pill_width = width + TAG_PADDING
    left, top, right, bottom = frame
    inset = TAG_INSET - TAG_PADDING / 2 + pill_width / 2
    columns = [left + inset, right - inset]
    columns += [left + share * (right - left) for share in TAG_SHARES]
    fitting = [x for x in columns if left + inset <= x <= right - inset] or [(left + right) / 2]
    places = [(x, y) for y in (top, bottom) for x in fitting]
    x, y = next(
        (place for place in places if not _is_blocked(place, pill_width, obstacles)), places[0]
    )
    pill = Shape(
        f"{region.name}:tag",
        ShapeKind.PILL,
        x,
        y,
        pill_width,
        TAG_HEIGHT,
        "tag",
        region_description(region),
    )
    label = place_label(text, (x, y), size=TAG_FONT, style="on-tag", anchor="mm")
    return pill, Label(
        label.text, label.x, label.y, label.size, label.style, label.box, region.name
    )


def _is_blocked(place: tuple[float, float], width: float, obstacles: Sequence[Box]) -> bool:
    x, y = place
    half, rise = width / 2 + TAG_CLEARANCE, TAG_HEIGHT / 2 + 2
    return any(
        box[0] < x + half and x - half < box[2] and box[1] < y + rise and y - rise < box[3]
        for box in obstacles
    )


# --- A minimal cut on the picture: a short bold stroke across every wire that is cut --------------


LENGTH, WIDTH = 36.0, 3.4
CUT_SPACING = 4.0


def cut_strokes(
    placed: PlacedWiring, routes: Mapping[Segment, Route], cut: tuple[str, ...]
) -> tuple[Wire, ...]:
    """One stroke per index: through the dot of a hyperedge, else across its wire."""
    strokes = []
    for index in cut:
        own = [segment for segment in routes if segment.index == index]
        dots = [
            end
            for segment in own
            for end in segment.ends
            if isinstance(end, Dot) and len(placed.wiring.dots[end]) > 2
        ]
        if dots:
            at, normal = placed.centres[dots[0]], (math.sqrt(0.5), -math.sqrt(0.5))
        elif own:
            at, normal = _middle(
                placed, max(own, key=lambda s: _visible(placed, routes[s])), routes
            )
        else:
            continue
        (x, y), (dx, dy) = at, normal
        half = LENGTH / 2
        ends = ((x - half * dx, y - half * dy), (x + half * dx, y + half * dy))
        strokes.append(Wire(index, ends, "cut", width=WIDTH, description=f"cut through {index}"))
    return tuple(strokes)


def _visible_points(placed: PlacedWiring, route: Route) -> list[Point]:
    return [
        point
        for point in spaced_points(route.line, CUT_SPACING)
        if not any(
            box[0] <= point[0] <= box[2] and box[1] <= point[1] <= box[3]
            for box in placed.boxes.values()
        )
    ]


def _visible(placed: PlacedWiring, route: Route) -> int:
    return len(_visible_points(placed, route))


def _middle(
    placed: PlacedWiring, segment: Segment, routes: Mapping[Segment, Route]
) -> tuple[Point, Point]:
    """The middle of what is seen of a wire, and the direction across it."""
    points = _visible_points(placed, routes[segment]) or list(routes[segment].line)
    place = len(points) // 2
    before, after = points[max(0, place - 1)], points[min(len(points) - 1, place + 1)]
    length = math.dist(before, after) or 1.0
    return points[place], ((before[1] - after[1]) / length, (after[0] - before[0]) / length)
