"""A picture before it has a file format: shapes, wires and labels in pixels, y pointing down.

Layouts make scenes; writers (`svg`, `tikz`, `raster`) read them. Nothing here has a colour:
`style` is a name that a theme turns into one.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property

Point = tuple[float, float]
Box = tuple[float, float, float, float]
# One drawing command: "M", "L", "Q", "C" or "Z", and its coordinates.
Command = tuple[str, tuple[float, ...]]


def decimal(value: float, digits: int = 2) -> str:
    """A number with at most so many digits behind the point."""
    # Adding zero turns -0.0 into 0.0; a fixed number of digits makes bytes stable.
    return f"{round(value, digits) + 0.0:.{digits}f}".rstrip("0").rstrip(".")


class ShapeKind(StrEnum):
    """Outlines that every writer can draw."""

    CIRCLE = "circle"
    SQUARE = "square"
    TRIANGLE = "triangle"
    DIAMOND = "diamond"
    DOT = "dot"
    PILL = "pill"
    FRAME = "frame"


@dataclass(frozen=True)
class Shape:
    """A closed outline, centred on (x, y). `angle` (degrees) turns a triangle: 0 points right."""

    name: str
    kind: ShapeKind
    x: float
    y: float
    width: float
    height: float
    style: str
    description: str = ""
    angle: float = 0.0

    @property
    def box(self) -> Box:
        """Left, top, right, bottom."""
        half_width, half_height = self.width / 2, self.height / 2
        return (
            self.x - half_width,
            self.y - half_height,
            self.x + half_width,
            self.y + half_height,
        )

    def covers(self, point: Point, *, margin: float = 0.0) -> bool:
        """Whether a point lies inside, or within `margin` of it."""
        dx, dy = abs(point[0] - self.x), abs(point[1] - self.y)
        half_width, half_height = self.width / 2 + margin, self.height / 2 + margin
        if self.kind in (ShapeKind.CIRCLE, ShapeKind.DOT, ShapeKind.TRIANGLE):
            return math.hypot(dx, dy) < half_width
        if self.kind is ShapeKind.DIAMOND:
            return dx / half_width + dy / half_height < 1
        return dx < half_width and dy < half_height


@dataclass(frozen=True)
class Wire:
    """A line through `points` with rounded corners, or, if `is_curve`, one cubic Bézier curve.

    `ends` names the shapes, frames and marks that it may touch.
    """

    name: str
    points: tuple[Point, ...]
    style: str
    width: float = 2.4
    is_curve: bool = False
    description: str = ""
    corner_radius: float = 16.0
    ends: tuple[str, ...] = ()

    def samples(self, count: int = 60) -> list[Point]:
        """Points along the wire, evenly spaced (for a curve, evenly in its parameter)."""
        steps = [position / count for position in range(count + 1)]
        if self.is_curve:
            return [on_curve(self.points, step) for step in steps]
        lengths = [math.dist(a, b) for a, b in zip(self.points, self.points[1:], strict=False)]
        total = sum(lengths)
        return [_along(self.points, lengths, total * step) for step in steps]


@dataclass(frozen=True)
class Outline:
    """Drawing commands around the baseline at (0, 0), y down, and the box of the ink."""

    commands: tuple[Command, ...]
    box: Box


@dataclass(frozen=True)
class Label:
    """A line of TeX mathematics (with dollars). `box` is where its ink is; (x, y) its baseline."""

    text: str
    x: float
    y: float
    size: float
    style: str
    box: Box
    owner: str = ""


@dataclass(frozen=True)
class Scene:
    """Five layers, painted in this order: frames, wires, shapes, marks, labels.

    `canvas` is the part of the plane to show when that is more than what is drawn, so that the
    pictures of one animation are all of one size.
    """

    name: str
    title: str = ""
    description: str = ""
    frames: tuple[Shape, ...] = ()
    wires: tuple[Wire, ...] = ()
    shapes: tuple[Shape, ...] = ()
    marks: tuple[Shape, ...] = ()
    labels: tuple[Label, ...] = ()
    margin: float = field(default=18.0)
    canvas: Box | None = None

    @cached_property
    def box(self) -> Box:
        """Everything that is drawn, and the canvas, without the margin."""
        boxes = [] if self.canvas is None else [self.canvas]
        boxes += [shape.box for shape in (*self.frames, *self.shapes, *self.marks)]
        boxes += [label.box for label in self.labels]
        # A line stays within its corners; a curve leaves its control points.
        boxes += [around(w.samples() if w.is_curve else w.points) for w in self.wires]
        return union(boxes)

    def shifted(self, dx: float, dy: float) -> "Scene":
        """The same picture moved."""
        canvas = self.canvas
        if canvas is not None:
            canvas = (canvas[0] + dx, canvas[1] + dy, canvas[2] + dx, canvas[3] + dy)
        return replace(
            self,
            canvas=canvas,
            frames=tuple(replace(s, x=s.x + dx, y=s.y + dy) for s in self.frames),
            shapes=tuple(replace(s, x=s.x + dx, y=s.y + dy) for s in self.shapes),
            marks=tuple(replace(s, x=s.x + dx, y=s.y + dy) for s in self.marks),
            wires=tuple(
                replace(w, points=tuple((x + dx, y + dy) for x, y in w.points)) for w in self.wires
            ),
            labels=tuple(
                replace(
                    label,
                    x=label.x + dx,
                    y=label.y + dy,
                    box=(
                        label.box[0] + dx,
                        label.box[1] + dy,
                        label.box[2] + dx,
                        label.box[3] + dy,
                    ),
                )
                for label in self.labels
            ),
        )

    def joined(self, others: Iterable["Scene"]) -> "Scene":
        """This picture with others laid over it, layer by layer; name and texts stay."""
        scenes = (self, *others)
        return replace(
            self,
            frames=tuple(shape for scene in scenes for shape in scene.frames),
            wires=tuple(wire for scene in scenes for wire in scene.wires),
            shapes=tuple(shape for scene in scenes for shape in scene.shapes),
            marks=tuple(shape for scene in scenes for shape in scene.marks),
            labels=tuple(label for scene in scenes for label in scene.labels),
        )


def union(boxes: Iterable[Box]) -> Box:
    """The smallest box around boxes; (0, 0, 0, 0) around nothing."""
    given = list(boxes)
    if not given:
        return (0.0, 0.0, 0.0, 0.0)
    lefts, tops, rights, bottoms = zip(*given, strict=True)
    return (min(lefts), min(tops), max(rights), max(bottoms))


def around(points: Iterable[Point]) -> Box:
    """The smallest box around points."""
    return union((x, y, x, y) for x, y in points)


def on_curve(points: tuple[Point, ...], step: float) -> Point:
    """The point of a cubic Bézier curve at a step from 0 to 1."""
    rest = 1 - step
    weights = (rest**3, 3 * step * rest**2, 3 * step**2 * rest, step**3)
    return (
        sum(w * x for w, (x, _) in zip(weights, points, strict=True)),
        sum(w * y for w, (_, y) in zip(weights, points, strict=True)),
    )


def _along(points: tuple[Point, ...], lengths: list[float], distance: float) -> Point:
    for (x0, y0), (x1, y1), length in zip(points, points[1:], lengths, strict=False):
        if distance <= length:
            share = distance / length if length else 0.0
            return (x0 + share * (x1 - x0), y0 + share * (y1 - y0))
        distance -= length
    return points[-1]
