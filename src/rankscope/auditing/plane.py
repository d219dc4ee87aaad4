"""The depth-width plane: the fitted law, a budget, and models as points, for files and pages.

A `Plane` says what is shown. `Plane.marks` lays it out once, in pixels from the top left: lines,
dots and labels, each with a role. A page gets the marks as SVG, where the roles are classes of its
style sheet; a file gets the same marks through matplotlib, see `plan_picture`.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape

from rankscope.auditing.configuration import Configuration
from rankscope.auditing.depth_width_law import (
    LEVINE,
    SQUARES_PER_BLOCK,
    DepthLaw,
    Number,
    parameters_in_blocks,
)

LEFT, RIGHT, TOP, BOTTOM = 62.0, 14.0, 14.0, 44.0  # margins around the frame
TITLE, LEGEND_LINE = 22.0, 16.0  # heights, where there are any
# Beyond this a linear axis would press everything against its left edge.
DEEPEST_LINEAR = 256
NUM_STEPS = 400
GAP = 9.0  # pixels between a point and its label
FAR = 2.5  # gaps from which on a line joins the two
LINE_ROOM = 4.0  # that labels leave around lines
SLIVER = 1e-6  # square pixels that rounding may put outside the frame
LEFT_SIDE, RIGHT_SIDE = "shallower than the law: deepen", "deeper than the law: widen"
# Heights at which the sides are written, as shares of the frame from below, the best first.
HEIGHTS = (0.3, 0.25, 0.35, 0.2, 0.4, 0.15, 0.5, 0.1, 0.6, 0.7, 0.8, 0.9, 0.05)
# No font is at hand when labels are placed: a character is taken as wide as in a wide font.
CHARACTER_WIDTH = 0.62

Place = tuple[float, float]


# --- Where labels of points go: none on another, on a point or outside the frame ------------------


# Directions are tried from the right upwards, then around; distances from near to far.
DIRECTIONS = (0, 45, 315, 135, 225, 180, 90, 270, 22, 338, 158, 202, 67, 113, 247, 293)
DISTANCES = (1.0, 2.0, 3.0, 4.5, 6.0, 8.0, 11.0, 15.0)


@dataclass(frozen=True)
class Box:
    """A rectangle, in pixels."""

    left: float
    bottom: float
    right: float
    top: float

    @classmethod
    def around(cls, x: float, y: float, size: tuple[float, float]) -> "Box":
        """The rectangle of a size (width, height) with its centre at a point."""
        return cls(x - size[0] / 2, y - size[1] / 2, x + size[0] / 2, y + size[1] / 2)

    @property
    def center(self) -> tuple[float, float]:
        """Its middle."""
        return (self.left + self.right) / 2, (self.bottom + self.top) / 2

    def nearest(self, x: float, y: float) -> tuple[float, float]:
        """Its point nearest to another point."""
        return min(max(x, self.left), self.right), min(max(y, self.bottom), self.top)

    def overlap(self, others: Sequence["Box"]) -> float:
        """Area that it shares with others, one by one."""
        area = 0.0
        # Plain comparisons: pages must not wait for numpy, and there are hundreds of others.
        for other in others:
            if (
                other.left < self.right
                and self.left < other.right
                and other.bottom < self.top
                and self.bottom < other.top
            ):
                width = min(self.right, other.right) - max(self.left, other.left)
                area += width * (min(self.top, other.top) - max(self.bottom, other.bottom))
        return area

    def outside(self, frame: "Box") -> float:
        """Area of it that lies outside a frame."""
        return (self.right - self.left) * (self.top - self.bottom) - self.overlap((frame,))


def place_labels(
    points: Sequence[tuple[float, float]],
    sizes: Sequence[tuple[float, float]],
    frame: Box,
    *,
    gap: float,
    obstacles: Sequence[Box] = (),
) -> tuple[Box, ...]:
    """A rectangle for the label of every point: the first free one around it, or the least bad.

    Args:
        points: in pixels.
        sizes: width and height of each label, in pixels.
        frame: where labels may lie.
        gap: distance of a label from its point, and space around points, in pixels.
        obstacles: what labels should not lie on.

    Example:
        >>> frame = Box(0.0, 0.0, 100.0, 100.0)
        >>> first, second = place_labels([(50.0, 50.0)] * 2, [(20.0, 10.0)] * 2, frame, gap=5.0)
        >>> first.overlap([second])
        0.0
    """
    taken = [*obstacles, *(Box.around(x, y, (gap, gap)) for x, y in points)]
    placed: list[Box] = []
    for point, size in zip(points, sizes, strict=True):
        placed.append(_best(_candidates(point, size, gap), frame, taken))
        taken.append(placed[-1])
    return tuple(placed)


def _best(candidates: Iterator[Box], frame: Box, taken: Sequence[Box]) -> Box:
    """The first that covers nothing and lies in the frame; else the first that is least bad."""
    costs: dict[Box, float] = {}
    for box in candidates:
        costs[box] = box.outside(frame) + box.overlap(taken)
        if costs[box] == 0:
            return box
    return min(costs, key=costs.__getitem__)


def _candidates(point: tuple[float, float], size: tuple[float, float], gap: float) -> Iterator[Box]:
    for distance in DISTANCES:
        for degrees in DIRECTIONS:
            across, up = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
            # The label's edge, not its centre, is `distance` away.
            x = point[0] + across * (distance * gap + size[0] / 2)
            y = point[1] + up * (distance * gap + size[1] / 2)
            yield Box.around(x, y, size)


# --- What is shown, and the marks that it is drawn with -------------------------------------------


@dataclass(frozen=True)
class Line:
    """A line through places; an area, if it is closed."""

    role: str
    places: tuple[Place, ...]
    is_closed: bool = False


@dataclass(frozen=True)
class Dot:
    """A point that stands for a shape."""

    role: str
    place: Place


@dataclass(frozen=True)
class Label:
    """Text whose middle line begins, is centred or ends at a place; `is_upright` turns it."""

    role: str
    place: Place
    text: str
    anchor: str = "middle"
    is_upright: bool = False


Mark = Line | Dot | Label


@dataclass(frozen=True)
class Point:
    """A shape in the plane, with a name or without."""

    role: str
    depth: Number
    width: Number
    name: str = ""


@dataclass(frozen=True)
class Axes:
    """Depth from left to right, the logarithm of the width from bottom to top.

    Args:
        deepest: depth at the right edge; the axis is logarithmic if it is beyond 256.
        narrowest: width at the bottom.
        widest: width at the top.
        frame: in pixels, which grow downwards: its `top` is the lower edge.
    """

    deepest: float
    narrowest: float
    widest: float
    frame: Box

    @property
    def is_logarithmic(self) -> bool:
        """Whether depths are on a logarithmic axis, from 1."""
        return self.deepest > DEEPEST_LINEAR

    @property
    def depths(self) -> list[float]:
        """Depths at which curves are drawn, from left to right."""
        shares = [step / NUM_STEPS for step in range(NUM_STEPS + 1)]
        if self.is_logarithmic:
            return [self.deepest**share for share in shares]
        return [self.deepest * share for share in shares]

    def x(self, depth: Number) -> float:
        """Pixels from the left."""
        if self.is_logarithmic:
            share = math.log(max(depth, 1.0)) / math.log(self.deepest)
        else:
            share = depth / self.deepest
        return self.frame.left + (self.frame.right - self.frame.left) * share

    def y(self, width: Number) -> float:
        """Pixels from the top, kept inside the frame."""
        share = math.log(max(width, 1e-9) / self.narrowest) / math.log(self.widest / self.narrowest)
        return self.frame.top - (self.frame.top - self.frame.bottom) * min(max(share, 0.0), 1.0)

    def place(self, depth: Number, width: Number) -> Place:
        """Both."""
        return self.x(depth), self.y(width)

    def holds(self, width: Number) -> bool:
        """Whether a width lies in the frame."""
        return self.narrowest <= width <= self.widest


@dataclass(frozen=True)
class Plane:
    """The depth-width plane as data: the law, a budget and models.

    Args:
        window: largest depth, least and largest width.
        law: the fitted law, with its uncertainty.
        equal_width: width of a model of a depth that has the size in question.
        points: models; those with a name are labelled.
        title: above the frame; empty for none.
        limit: a width that a line is drawn at; None for none.
        budget: what the line of equal sizes is, for the legend; without it there is no legend.
        has_theorem: whether the line depth = log3(width) of the theorem is drawn.
    """

    window: tuple[float, float, float]
    law: DepthLaw
    equal_width: Callable[[float], float]
    points: tuple[Point, ...]
    title: str = ""
    limit: int | None = None
    budget: str = ""
    has_theorem: bool = False

    def axes(self, size: tuple[float, float]) -> Axes:
        """The part of the plane that is shown in a picture of a size."""
        top = TOP + (TITLE if self.title else 0.0)
        bottom = size[1] - BOTTOM - LEGEND_LINE * ((len(self._legend()) + 1) // 2)
        frame = Box(LEFT, top, size[0] - RIGHT, bottom)
        return Axes(*self.window, frame)

    def marks(self, size: tuple[float, float], *, font_size: float) -> tuple[Mark, ...]:
        """Everything, in pixels, what lies below first; `font_size` is that of names."""
        axes = self.axes(size)
        lines = (*self._theorem(axes), *self._law(axes), *self._equals(axes), *self._limit(axes))
        dots = [
            Dot(point.role, axes.place(point.depth, point.width))
            for point in self.points
            if point.depth <= axes.deepest
        ]
        obstacles = _boxes_along([line for line in lines if not line.is_closed], dots)
        leaders, labels, taken = self._names(axes, obstacles, font_size)
        sides = tuple(
            side
            for text, is_left in ((LEFT_SIDE, True), (RIGHT_SIDE, False))
            for side in self._side(axes, taken, (text, font_size), is_left=is_left)
        )
        frame = axes.frame
        corner = ((frame.left, frame.bottom), (frame.left, frame.top), (frame.right, frame.top))
        above = [Label("title", (axes.frame.left, TOP), self.title, "start")] if self.title else []
        legend = _drawn_legend(self._legend(), axes, size)
        return (
            *_scales(axes),
            *lines,
            Line("axis", corner),
            *leaders,
            *dots,
            *sides,
            *labels,
            *above,
            *legend,
        )

    def _theorem(self, axes: Axes) -> Iterator[Line]:
        """Depth = log3(width): left of it, in theory, depth pays most."""
        if not self.has_theorem:
            return
        ratio = axes.widest / axes.narrowest
        widths = [axes.narrowest * ratio ** (step / NUM_STEPS) for step in range(NUM_STEPS + 1)]
        depths = [math.log(width) / math.log(3) for width in widths]
        frame = axes.frame
        side = tuple(
            (min(max(axes.x(depth), frame.left), frame.right), axes.y(width))
            for depth, width in zip(depths, widths, strict=True)
        )
        corners = ((frame.left, frame.bottom), (frame.left, frame.top))
        yield Line("theorem-side", (*side, *corners), is_closed=True)
        border = tuple(place for place in side if frame.left < place[0] < frame.right)
        if len(border) > 1:
            yield Line("theorem", border)

    def _law(self, axes: Axes) -> Iterator[Line]:
        low, high = self.law.shifted(-1.0), self.law.shifted(1.0)
        upper = [axes.place(depth, high.width(depth)) for depth in axes.depths]
        lower = [axes.place(depth, low.width(depth)) for depth in reversed(axes.depths)]
        yield Line("band", (*upper, *lower), is_closed=True)
        first, last = map(float, self.law.depths)
        inside = sorted({*(d for d in axes.depths if first <= d <= last), first, last})
        for role, depths in (
            ("law", [depth for depth in inside if depth <= axes.deepest]),
            ("law outside", [depth for depth in axes.depths if depth > last]),
            ("law outside", [depth for depth in axes.depths if depth < first]),
        ):
            shown = [depth for depth in depths if axes.holds(self.law.width(depth))]
            if len(shown) > 1:
                yield Line(role, tuple(axes.place(d, self.law.width(d)) for d in shown))

    def _equals(self, axes: Axes) -> Iterator[Line]:
        places = tuple(
            axes.place(depth, self.equal_width(depth))
            for depth in axes.depths
            if depth > 0 and axes.holds(self.equal_width(depth))
        )
        if len(places) > 1:
            yield Line("equal", places)

    def _limit(self, axes: Axes) -> Iterator[Line]:
        if self.limit is not None and axes.holds(self.limit):
            y = axes.y(self.limit)
            steps = [axes.x(depth) for depth in axes.depths]
            yield Line("limit", tuple((x, y) for x in steps))

    def _names(
        self, axes: Axes, obstacles: Sequence[Box], font_size: float
    ) -> tuple[list[Line], list[Label], Sequence[Box]]:
        """Labels clear of each other and of what is drawn, and lines to those that are far."""
        named = [point for point in self.points if point.name]
        places = [axes.place(point.depth, point.width) for point in named]
        sizes = [_text_size(point.name, font_size) for point in named]
        boxes = place_labels(places, sizes, axes.frame, gap=GAP, obstacles=obstacles)
        labels, leaders = [], []
        for point, place, box in zip(named, places, boxes, strict=True):
            labels.append(Label(f"mark {point.role}", box.center, point.name))
            end = box.nearest(*place)
            if math.dist(place, end) > FAR * GAP:
                leaders.append(Line("leader", (place, end)))
        return leaders, labels, (*obstacles, *boxes)

    def _side(
        self,
        axes: Axes,
        taken: Sequence[Box],
        text: tuple[str, float],
        *,
        is_left: bool,
    ) -> Iterator[Label]:
        """The name of one side, beside the law where there is space; none if there is none."""
        width, height = _text_size(*text)
        frame = axes.frame
        for share in HEIGHTS:
            middle = frame.top - share * (frame.top - frame.bottom)
            # The law leans to the right: its nearer end is below on its left, above on its right.
            edge = _across(axes, self.law, middle + (height if is_left else -height))
            center = edge + (-1 if is_left else 1) * (2 * GAP + width / 2)
            box = Box.around(center, middle, (width, height))
            if box.overlap(taken) == 0 and box.outside(frame) < SLIVER:
                yield Label("regime", box.center, text[0])
                return

    def _legend(self) -> tuple[tuple[str, str], ...]:
        if not self.budget:
            return ()
        first, last = self.law.depths
        rows = [
            ("theorem", "depth = log3(width): left of it, in theory, depth pays most"),
            ("band", "both parameters of the fit ± one standard error"),
            ("law", f"fitted law, depths {first} to {last}"),
            ("law outside", "fitted law, extrapolated"),
            ("equal", f"{self.budget}, and the alternatives"),
            ("planned", "planned"),
        ]
        if self.limit is not None:
            rows.insert(
                5, ("limit", f"embedding rank {self.limit:,}: bounds ignore width above it")
            )
        return tuple(rows)


@dataclass(frozen=True)
class PlacedModel:
    """A model in the plane, beside the model of its size that the law proposes.

    Args:
        plane: both, and the law.
        description: the picture in words.
        caption: the law's depth, its uncertainty and its source.
    """

    plane: Plane
    description: str
    caption: str


def place_model(configuration: Configuration, law: DepthLaw = LEVINE) -> PlacedModel | None:
    """Where a model lies in the plane; None if its blocks have no parameters."""
    parameters = parameters_in_blocks(configuration)
    if parameters < 1:
        return None

    def equal_width(depth: Number) -> float:
        return math.sqrt(parameters / (SQUARES_PER_BLOCK * depth))

    depth, width = configuration.depth, configuration.width
    best = law.best_depth(float(parameters))
    best_depth = max(1, round(best.real))
    best_width = equal_width(best_depth)
    widths = (float(width), best_width, *(law.width(float(end)) for end in law.depths))
    plane = Plane(
        (1.15 * max(depth, best_depth, law.depths[1]), min(widths) / 2, 2.0 * max(widths)),
        law,
        equal_width,
        (
            Point("best", best_depth, best_width, f"the law: {best_depth} × {best_width:,.0f}"),
            Point("model", depth, width, f"this model: {depth} × {width:,}"),
        ),
    )
    description = (
        f"Depth against width. This model: depth {depth}, width {width:,}. The law's model of its "
        f"size: depth {best_depth}, width {best_width:,.0f}."
    )
    caption = (
        f"the law's depth is {best.real:.1f} ({best.low:.1f} to {best.high:.1f} within its "
        f"standard errors); this model has {depth}. A law, not a theorem: fitted on {law.data}. "
        f"{law.reference}."
    )
    return PlacedModel(plane, description, caption)


PAGE_FONT_SIZE = 13.0  # of the style sheet


def to_svg(plane: Plane, size: tuple[float, float], description: str) -> str:
    """An `<svg>` for a page, whose style sheet knows the roles of the marks as classes."""
    drawn = "\n".join(map(_svg, plane.marks(size, font_size=PAGE_FONT_SIZE)))
    return (
        f'<svg viewBox="0 0 {size[0]:.0f} {size[1]:.0f}" role="img" '
        f'aria-label="{escape(description)}">\n{drawn}\n</svg>'
    )


def _svg(mark: Mark) -> str:
    match mark:
        case Line():
            path = "L".join(f"{x:.1f} {y:.1f}" for x, y in mark.places)
            return f'<path class="{mark.role}" d="M{path}{"Z" if mark.is_closed else ""}"/>'
        case Dot():
            x, y = mark.place
            return f'<circle class="{mark.role}" cx="{x:.1f}" cy="{y:.1f}" r="5"/>'
        case Label():
            x, y = mark.place
            turned = " rotate(-90)" if mark.is_upright else ""
            return (
                f'<text class="{mark.role}" transform="translate({x:.1f} {y:.1f}){turned}" '
                f'dy="0.35em" text-anchor="{mark.anchor}">{escape(mark.text)}</text>'
            )


def _scales(axes: Axes) -> Iterator[Mark]:
    """The numbers and names of the axes, and a line across for every width."""
    frame = axes.frame
    for depth in _depth_ticks(axes):
        yield Label("tick", (axes.x(depth), frame.top + 13.0), f"{depth:,}")
    for width in _width_ticks(axes):
        y = axes.y(width)
        yield Line("grid", ((frame.left, y), (frame.right, y)))
        yield Label("tick", (frame.left - 8.0, y), f"{width:,}", "end")
    middle = (frame.left + frame.right) / 2
    yield Label("name", (middle, frame.top + 31.0), "depth: number of blocks")
    upright = (10.0, (frame.top + frame.bottom) / 2)
    yield Label("name", upright, "width: size of a token vector", is_upright=True)


def _depth_ticks(axes: Axes) -> list[int]:
    if axes.is_logarithmic:
        return [10**power for power in range(int(math.log10(axes.deepest)) + 1)]
    step = next(step for step in (1, 2, 4, 8, 16, 32) if axes.deepest / step <= 9 or step == 32)
    return list(range(0, int(axes.deepest) + 1, step))


def _width_ticks(axes: Axes) -> list[int]:
    powers = range(math.ceil(math.log2(axes.narrowest)), int(math.log2(axes.widest)) + 1)
    return [2**power for power in powers[:: 1 if len(powers) <= 8 else 2] if power >= 0]


def _boxes_along(lines: Sequence[Line], dots: Sequence[Dot]) -> list[Box]:
    """Small boxes along every line and point, which labels keep clear of."""
    # A line has a place for nearly every pixel; every third is enough.
    places = [place for line in lines for place in line.places[::3]]
    places += [dot.place for dot in dots]
    return [Box.around(x, y, (LINE_ROOM, LINE_ROOM)) for x, y in places]


def _text_size(text: str, font_size: float) -> tuple[float, float]:
    return CHARACTER_WIDTH * font_size * len(text), 1.2 * font_size


def _across(axes: Axes, law: DepthLaw, y: float) -> float:
    """Where the law lies at a height, in pixels."""
    frame = axes.frame
    share = (frame.top - y) / (frame.top - frame.bottom)
    return axes.x(law.depth_for_width(axes.narrowest * (axes.widest / axes.narrowest) ** share))


def _drawn_legend(
    rows: Sequence[tuple[str, str]], axes: Axes, size: tuple[float, float]
) -> Iterator[Mark]:
    """Two columns below the names of the axes, a sample before each text."""
    for number, (role, text) in enumerate(rows):
        x = 14.0 + (number % 2) * size[0] * 0.52
        y = axes.frame.top + BOTTOM + 2.0 + LEGEND_LINE * (number // 2)
        if role == "planned":
            yield Dot(role, (x + 11.0, y))
        else:
            thick = 4.0 if role == "band" else 0.0
            corners = ((x, y - thick), (x + 22.0, y - thick), (x + 22.0, y + thick), (x, y + thick))
            yield Line(role, corners if thick else corners[:2], is_closed=bool(thick))
        yield Label("legend", (x + 28.0, y), text, "start")
