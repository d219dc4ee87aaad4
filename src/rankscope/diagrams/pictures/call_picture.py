"""The picture of a call or a module: what it takes, one box, and what it makes.

A leg stands for all axes of an array and says its shape. The box of an opaque operation has a
broken outline, that of a module is double.
"""

from rankscope.diagrams.diagram import Diagram
from rankscope.diagrams.layout.placement import View
from rankscope.diagrams.layout.tensors import (
    DIAMETER,
    node_label,
    node_shape,
)
from rankscope.diagrams.layout.wording import index_text, node_text
from rankscope.diagrams.network import Box, Call
from rankscope.diagrams.parts import Role
from rankscope.diagrams.pictures.mathtext import place_label, text_width
from rankscope.diagrams.pictures.scene import Label, Scene, Shape, ShapeKind, Wire

# Pixels.
NAME_FONT, NOTE_FONT, SHAPE_FONT = 22.0, 14.0, 16.0
LINE, BOX_HEIGHT, BOX_PADDING, LEG_PADDING, LABEL_GAP = 70.0, 58.0, 22.0, 14.0, 7.0
SHORTEST_LEG, RIM = 54.0, 4.0


def call_picture(body: Call | Box, view: View) -> Scene:
    """Lay out a call or the box of a module, its middle at height zero."""
    diagram = body.diagram
    taken = [node for node in diagram.nodes if node.role is not Role.OPERATION]
    rows = max(len(taken), len(diagram.output), 1)
    width, height, name = _box_size(body, rows)
    into = max([SHORTEST_LEG, *(_leg(diagram, node.indices[0], view) for node in taken)])
    left = DIAMETER / 2 + into if taken else 0.0
    shapes, labels, wires = [_box(body, left, width, height)], [name], []
    labels[0] = _moved(name, left + width / 2)
    for node, y in zip(taken, _heights(len(taken)), strict=True):
        shape = node_shape(node, (0.0, y), size=DIAMETER)
        shapes.append(shape)
        labels.append(node_label(node, shape, size=DIAMETER))
        wires.append(_wire(node.indices[0], (DIAMETER / 2, left), y, (node.name, body.name)))
        labels.append(_label(diagram, node.indices[0], (DIAMETER / 2 + left) / 2, y, view))
    right = left + width
    for leg, y in zip(diagram.output, _heights(len(diagram.output)), strict=True):
        tip = right + max(SHORTEST_LEG, _leg(diagram, leg, view))
        wires.append(_wire(leg, (right, tip), y, (body.name,)))
        labels.append(_label(diagram, leg, (right + tip) / 2, y, view))
    if isinstance(body, Call) and not body.is_exact:
        labels.append(_note("opaque", left + width / 2, height / 2))
    if isinstance(body, Box):
        count = len(body.steps)
        labels.append(
            _note(f"{count} step{'' if count == 1 else 's'}", left + width / 2, height / 2)
        )
        inner = shapes[0]
        rim = Shape(
            f"{body.name} inside",
            ShapeKind.SQUARE,
            inner.x,
            inner.y,
            inner.width - 2 * RIM,
            inner.height - 2 * RIM,
            "module",
        )
        shapes.insert(1, rim)
    return Scene(
        body.name,
        title=body.title or body.name,
        wires=tuple(wires),
        shapes=tuple(shapes),
        labels=tuple(labels),
    )


def _heights(count: int) -> list[float]:
    return [LINE * (place - (count - 1) / 2) for place in range(count)]


def _box_size(body: Call | Box, rows: int) -> tuple[float, float, Label]:
    operation = next(node for node in body.diagram.nodes if node.role is Role.OPERATION)
    text = node_text(operation)
    label = place_label(text, (0.0, 0.0), size=NAME_FONT, style=f"on-{_style(body)}", anchor="mc")
    height = max(BOX_HEIGHT, LINE * (rows - 1) + BOX_HEIGHT)
    return text_width(text, NAME_FONT) + 2 * BOX_PADDING, height, label


def _style(body: Call | Box) -> str:
    if isinstance(body, Box):
        return "module"
    return "operation" if body.is_exact else "opaque"


def _box(body: Call | Box, left: float, width: float, height: float) -> Shape:
    what = body.kind if isinstance(body, Call) else f"{body.name}, {body.class_name}"
    return Shape(
        body.name,
        ShapeKind.SQUARE,
        left + width / 2,
        0.0,
        width,
        height,
        _style(body),
        f"{_style(body)} {what}",
    )


def _leg(diagram: Diagram, index: str, view: View) -> float:
    text = index_text(diagram.index_by_name[index], view)
    return text_width(text, SHAPE_FONT) + 2 * LEG_PADDING


def _label(diagram: Diagram, index: str, x: float, y: float, view: View) -> Label:
    text = index_text(diagram.index_by_name[index], view)
    return place_label(text, (x, y - LABEL_GAP), size=SHAPE_FONT, style="wire-generic", anchor="mb")


def _wire(name: str, ends: tuple[float, float], y: float, touched: tuple[str, ...]) -> Wire:
    return Wire(name, ((ends[0], y), (ends[1], y)), "wire-generic", ends=touched)


def _note(text: str, x: float, bottom: float) -> Label:
    return place_label(text, (x, bottom + LABEL_GAP), size=NOTE_FONT, style="muted", anchor="mt")


def _moved(label: Label, dx: float) -> Label:
    left, top, right, bottom = label.box
    return Label(
        label.text,
        label.x + dx,
        label.y,
        label.size,
        label.style,
        (left + dx, top, right + dx, bottom),
        label.owner,
    )
