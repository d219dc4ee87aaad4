"""Shapes and wires as drawing commands: the one place that knows where their ink runs.

Every writer draws these commands, which is why SVG, PDF, PNG and TikZ show the same picture.
"""

import math

from rankscope.diagrams.pictures.scene import Box, Command, Point, Scene, Shape, ShapeKind, Wire

# Control points this far along the tangents make a cubic curve that passes for a quarter circle.
QUARTER = 4 / 3 * (math.sqrt(2) - 1)
ROUND_KINDS = (ShapeKind.CIRCLE, ShapeKind.DOT)
BOX_KINDS = (ShapeKind.SQUARE, ShapeKind.PILL, ShapeKind.FRAME)


def view_box(scene: Scene) -> Box:
    """What a picture shows: left, top, right, bottom of everything drawn, and the margin."""
    left, top, right, bottom = scene.box
    margin = scene.margin
    return (left - margin, top - margin, right + margin, bottom + margin)


def corner_radius(shape: Shape) -> float:
    """How much the corners of a square, pill or frame are rounded.

    Example:
        >>> corner_radius(Shape("tag", ShapeKind.PILL, 0.0, 0.0, 80.0, 30.0, "tag"))
        15.0
    """
    smaller = min(shape.width, shape.height) / 2
    match shape.kind:
        case ShapeKind.PILL:
            return smaller
        case ShapeKind.SQUARE:
            return min(9.0, smaller / 2)
        case ShapeKind.FRAME:
            return min(14.0, smaller)
        case _:
            return 0.0


def corners(shape: Shape) -> tuple[Point, ...]:
    """Corners of a diamond (from the top) or a triangle (from its tip), clockwise."""
    if shape.kind is ShapeKind.DIAMOND:
        left, top, right, bottom = shape.box
        return ((shape.x, top), (right, shape.y), (shape.x, bottom), (left, shape.y))
    # A little larger than the circle it stands for: a triangle of the same width looks small.
    radius, start = 0.56 * shape.width, math.radians(shape.angle)
    turns = [start + turn * 2 * math.pi / 3 for turn in range(3)]
    return tuple(
        (shape.x + radius * math.cos(turn), shape.y + radius * math.sin(turn)) for turn in turns
    )


def shape_path(shape: Shape) -> tuple[Command, ...]:
    """The closed outline of a shape."""
    if shape.kind in ROUND_KINDS:
        return _rounded_box(shape.box, shape.width / 2, shape.height / 2)
    if shape.kind in BOX_KINDS:
        radius = corner_radius(shape)
        return _rounded_box(shape.box, radius, radius)
    first, *others = corners(shape)
    return (("M", first), *(("L", point) for point in others), ("Z", ()))


def wire_path(wire: Wire) -> tuple[Command, ...]:
    """The line of a wire, its corners rounded."""
    if wire.is_curve:
        start, *others = wire.points
        return (("M", start), ("C", tuple(value for point in others for value in point)))
    points = [wire.points[0]]
    points += [
        here for before, here in zip(wire.points, wire.points[1:], strict=False) if here != before
    ]
    commands: list[Command] = [("M", points[0])]
    for before, corner, after in zip(points, points[1:], points[2:], strict=False):
        into, out = math.dist(before, corner), math.dist(corner, after)
        radius = min(wire.corner_radius, into / 2, out / 2)
        commands.append(("L", _toward(corner, before, radius / into)))
        commands.append(("Q", (*corner, *_toward(corner, after, radius / out))))
    return (*commands, ("L", points[-1]))


def _rounded_box(box: Box, radius_x: float, radius_y: float) -> tuple[Command, ...]:
    left, top, right, bottom = box
    held_x, held_y = radius_x * (1 - QUARTER), radius_y * (1 - QUARTER)
    inner_left, inner_right = left + radius_x, right - radius_x
    inner_top, inner_bottom = top + radius_y, bottom - radius_y
    return (
        ("M", (inner_left, top)),
        ("L", (inner_right, top)),
        ("C", (right - held_x, top, right, top + held_y, right, inner_top)),
        ("L", (right, inner_bottom)),
        ("C", (right, bottom - held_y, right - held_x, bottom, inner_right, bottom)),
        ("L", (inner_left, bottom)),
        ("C", (left + held_x, bottom, left, bottom - held_y, left, inner_bottom)),
        ("L", (left, inner_top)),
        ("C", (left, top + held_y, left + held_x, top, inner_left, top)),
        ("Z", ()),
    )


def _toward(point: Point, target: Point, share: float) -> Point:
    return (
        point[0] + share * (target[0] - point[0]),
        point[1] + share * (target[1] - point[1]),
    )
