"""How large tensors and their labels are, and the outlines they get."""

import math

from rankscope.diagrams.diagram import Diagram
from rankscope.diagrams.layout.wording import (
    convolution_description,
    node_description,
    node_text,
)
from rankscope.diagrams.parts import Convolution, Node, Role
from rankscope.diagrams.pictures.mathtext import outline, place_label
from rankscope.diagrams.pictures.scene import Label, Point, Shape, ShapeKind

UNIT = 96.0  # pixels per grid unit
DIAMETER = 54.0
CONVOLUTION_DIAMETER = 30.0
TRIANGLE_SHARE = 1.36  # a triangle looks as large as a circle when it is this much wider
PILL_SHARE = 0.78  # height of a constant's pill over its width
NODE_FONT, WIRE_FONT, TAG_FONT, STAR_FONT, TRIANGLE_FONT = 25.0, 20.0, 17.0, 27.0, 21.0
SMALLEST_FONT = 13.0
PAPER_AROUND_TEXT = 5.0

KINDS = {
    Role.DATA: ShapeKind.SQUARE,
    Role.PARAMETER: ShapeKind.CIRCLE,
    Role.CORE: ShapeKind.CIRCLE,
    Role.BUFFER: ShapeKind.CIRCLE,
    Role.CONSTANT: ShapeKind.PILL,
    Role.RESULT: ShapeKind.CIRCLE,
    Role.OPERATION: ShapeKind.SQUARE,
}


def diameter(diagram: Diagram) -> float:
    """One size for all tensors of a figure: 54 px, or what the longest name needs."""
    needed = [_needed(node, SMALLEST_FONT) for node in diagram.nodes]
    return max([DIAMETER, *needed])


def _needed(node: Node, size: float) -> float:
    """Width of the outline that a label of this size just fits in."""
    left, top, right, bottom = outline(node_text(node), size).box
    width, height = right - left, bottom - top
    if node.narrow_side is not None:
        # A label of this width fits the wide half of a triangle.
        return (1.9 * width + height + 2 * PAPER_AROUND_TEXT) / TRIANGLE_SHARE
    if KINDS[node.role] is ShapeKind.CIRCLE:
        return math.hypot(width, 0.8 * height) + 2 * PAPER_AROUND_TEXT
    return max(width, height) + 2 * PAPER_AROUND_TEXT


def node_label(node: Node, shape: Shape, *, size: float) -> Label:
    """The name inside a tensor, as large as fits."""
    is_triangle = shape.kind is ShapeKind.TRIANGLE
    full = TRIANGLE_FONT if is_triangle else NODE_FONT
    font = min(full, full * size / max(_needed(node, full), 1.0))
    # The middle of a triangle's wide half is off its centre, away from the tip.
    back = 0.04 * size if is_triangle else 0.0
    angle = math.radians(shape.angle)
    at = (shape.x - back * math.cos(angle), shape.y - back * math.sin(angle))
    label = place_label(
        node_text(node), at, size=round(font, 2), style=f"on-{shape.style}", anchor="mc"
    )
    return _owned(label, node.name)


def node_shape(node: Node, at: Point, *, size: float, angle: float = 0.0) -> Shape:
    """The outline of a tensor, centred on a point; `angle` is where a triangle points."""
    kind, width, height = KINDS[node.role], size, size
    if kind is ShapeKind.PILL:
        height = PILL_SHARE * size
    if node.narrow_side is not None:
        kind, width, height = ShapeKind.TRIANGLE, TRIANGLE_SHARE * size, TRIANGLE_SHARE * size
    return Shape(
        node.name,
        kind,
        at[0],
        at[1],
        width,
        height,
        node.role.value,
        node_description(node),
        angle=angle if node.narrow_side is not None else 0.0,
    )


def convolution_shape(convolution: Convolution, at: Point) -> Shape:
    """The small ring of a convolution."""
    return Shape(
        convolution.name,
        ShapeKind.CIRCLE,
        at[0],
        at[1],
        CONVOLUTION_DIAMETER,
        CONVOLUTION_DIAMETER,
        "convolution",
        convolution_description(convolution),
    )


def convolution_label(convolution: Convolution, shape: Shape) -> Label:
    """The star inside."""
    label = place_label(
        r"$\ast$", (shape.x, shape.y), size=STAR_FONT, style="on-convolution", anchor="mm"
    )
    return _owned(label, convolution.name)


def _owned(label: Label, owner: str) -> Label:
    return Label(label.text, label.x, label.y, label.size, label.style, label.box, owner)
