"""A scene flattened into polygons and lines, once for all checks."""

from functools import cached_property
from typing import NamedTuple

from rankscope.diagrams.pictures.paths import shape_path, wire_path
from rankscope.diagrams.pictures.polygons import Points, boxes_gap, flatten, gap, segments
from rankscope.diagrams.pictures.scene import Box, Point, Scene, Shape, Wire, around

SLACK = 0.5  # pixels that two things may share before it shows
# Labels of these styles belong inside a tensor; those on tags inside a tag; all others are free.
HOSTED = ("on-data", "on-parameter", "on-core", "on-constant", "on-result", "on-convolution")


class Piece(NamedTuple):
    """One drawn thing: a closed outline for shapes, an open line for wires and borders."""

    what: str
    name: str
    points: Points
    box: Box

    def __str__(self) -> str:
        return f"{self.what} {self.name!r}"


class Picture:
    """The parts of a scene that may get in each other's way."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene

    @cached_property
    def tensors(self) -> list[Piece]:
        """Outlines of the tensors."""
        return [outlined("tensor", shape) for shape in self.scene.shapes]

    @cached_property
    def solids(self) -> list[Piece]:
        """Outlines of tensors and marks; cuts are left out, for they lie on wires on purpose."""
        marks = [mark for mark in self.scene.marks if mark.style != "cut"]
        return [*self.tensors, *(outlined("mark", mark) for mark in marks)]

    @cached_property
    def borders(self) -> list[Piece]:
        """Closed lines around the frames."""
        found = []
        for frame in self.scene.frames:
            _, name, points, box = outlined("", frame)
            found.append(Piece(f"the border of {frame.style}", name, [*points, points[0]], box))
        return found

    @cached_property
    def wires(self) -> list[Wire]:
        """Wires, without cuts."""
        return [wire for wire in self.scene.wires if wire.style != "cut"]

    @cached_property
    def lines(self) -> list[Piece]:
        """The line of every wire in `wires`, its corners rounded as they are drawn."""
        found = []
        for wire in self.wires:
            points = flatten(wire_path(wire), steps=16)
            found.append(Piece("wire", wire.name, points, around(points)))
        return found

    @cached_property
    def _shapes_by_name(self) -> dict[str, list[Shape]]:
        found: dict[str, list[Shape]] = {}
        for shape in (*self.scene.shapes, *self.scene.marks):
            found.setdefault(shape.name, []).append(shape)
        return found

    def is_hidden(self, point: Point, *wires: Wire) -> bool:
        """Whether a shape or mark that one of the wires ends on covers a point."""
        return any(
            shape.covers(point, margin=1.0)
            for wire in wires
            for name in wire.ends
            for shape in self._shapes_by_name.get(name, ())
        )


def outlined(what: str, shape: Shape) -> Piece:
    """The flattened outline of a shape."""
    points = flatten(shape_path(shape))
    return Piece(what, shape.name, points, around(points))


def comes_near(line: Points, polygon: Points, reach: float) -> bool:
    """Whether a line comes nearer than `reach` to a convex polygon; below zero, so deep into it."""
    box = around(polygon)
    return any(
        boxes_gap(around(piece), box) < reach and gap(piece, polygon) < reach
        for piece in segments(line)
    )
