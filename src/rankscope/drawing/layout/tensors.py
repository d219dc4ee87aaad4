"""Labels of a picture, and the sizes of tensors, labels and the frames of barriers."""

import ast
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rankscope.diagrams.diagram import Diagram
from rankscope.diagrams.parts import Convolution, Index, Node, Region, Role
from rankscope.drawing.layout.placement import End, NodeEnd, View, Wiring
from rankscope.drawing.scene import Box, Label, Point, Shape, ShapeKind, union
from rankscope.drawing.typesetting import outline, place_label, text_width

# --- What is written in a picture: TeX for indices, tensors and tags; words for screen readers ----


# Characters that mean something in TeX, or that mathtext does not know.
SPELLED = str.maketrans(
    {
        "_": r"\_",
        "%": r"\%",
        "$": r"\$",
        "{": r"\{",
        "}": r"\}",
        " ": r"\ ",
        "#": r"\sharp ",
        "^": r"\wedge ",
        "~": r"\sim ",
        "\\": "/",
        "`": "'",
        '"': "''",
    }
)


def index_text(index: Index, view: View) -> str:
    r"""The label of a wire, between dollars.

    Example:
        >>> index_text(Index("f", 768, "F"), View(show_sizes=True))
        '$F\\!=\\!768$'
        >>> index_text(Index("r12"), View())
        '$r_{12}$'
    """
    tex = index.label or plain_tex(index.symbol or index.name)
    if view.show_sizes and index.size is not None:
        return rf"${tex}\!=\!{index.size}$"
    return f"${tex}$"


def node_text(node: Node) -> str:
    r"""What is written in a tensor, between dollars.

    Example:
        >>> node_text(Node("G1", ("i",)))
        '$\\mathbf{G}_{1}$'
    """
    return f"${node.label or plain_tex(node.name, face='mathbf')}$"


def plain_tex(name: str, *, face: str | None = None) -> str:
    r"""A name that is not TeX, as TeX: digits after letters go below.

    Example:
        >>> plain_tex("x_in"), plain_tex("layers.0.bias")
        ('\\mathrm{x\\_in}', '\\mathrm{layers.0.bias}')
    """
    parts = re.fullmatch(r"(\d*)([^\W\d_])_?(\d*)", name)
    if parts is None:
        return rf"\{face or 'mathrm'}{{{name.translate(SPELLED)}}}"
    factor, letter, number = parts.groups()
    base = rf"\{face}{{{factor}{letter}}}" if face else f"{factor}{letter}"
    return f"{base}_{{{number}}}" if number else base


def tag_text(diagram: Diagram, region: Region) -> str:
    r"""The tag of a barrier, between dollars: function, what it runs over, and its scale."""
    if region.label is not None:
        return f"${region.label}$"
    tex = region.function.recipe.label
    if region.causal is not None:
        tex = rf"\mathrm{{causal}}\,{tex}"
    if region.over:
        over = (diagram.index_by_name[index] for index in region.over)
        names = (index.label or plain_tex(index.symbol or index.name) for index in over)
        tex += f"_{{{','.join(names)}}}"
    if region.scale is not None:
        tex += rf"(\,{scale_tex(diagram, region.scale)}\,)"
    return f"${tex}$"


def scale_tex(diagram: Diagram, expression: str) -> str:
    r"""A dot that stands for the value, times or over the scale; `D**-0.5` is `/\sqrt{D}`."""
    tree = ast.parse(expression, mode="eval").body
    match tree:
        case ast.BinOp(left=base, op=ast.Pow(), right=power) if _number(power) == -0.5:
            return rf"\cdot\,/\sqrt{{{_tex(diagram, base)}}}"
        case ast.BinOp(left=base, op=ast.Pow(), right=power) if _number(power) == -1:
            return rf"\cdot\,/{_tex(diagram, base)}"
        case ast.BinOp(left=ast.Constant(value=1), op=ast.Div(), right=base):
            return rf"\cdot\,/{_tex(diagram, base)}"
        case _:
            return rf"{_tex(diagram, tree)}\,\cdot"


def _number(part: ast.expr) -> float | None:
    match part:
        case ast.Constant(value=int() | float() as number):
            return float(number)
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)):
            return -float(number)
        case _:
            return None


def _tex(diagram: Diagram, part: ast.expr) -> str:
    match part:
        case ast.Name(id=symbol):
            named = diagram.index_by_name.get(symbol)
            tex = (named.label if named else None) or plain_tex(symbol)
        case ast.UnaryOp(operand=inner):
            tex = f"-{_tex(diagram, inner)}"
        case ast.BinOp(left=left, op=ast.Pow(), right=right) if _number(right) == 0.5:
            tex = rf"\sqrt{{{_tex(diagram, left)}}}"
        case ast.BinOp(left=left, op=ast.Pow(), right=right):
            tex = f"{_grouped(diagram, left)}^{{{_tex(diagram, right)}}}"
        case ast.BinOp(left=left, op=op, right=right):
            sign = {ast.Add: "+", ast.Sub: "-", ast.Mult: r"\,", ast.Div: "/"}[type(op)]
            tex = f"{_grouped(diagram, left)}{sign}{_grouped(diagram, right)}"
        case _:
            tex = ast.unparse(part)
    return tex


def _grouped(diagram: Diagram, part: ast.expr) -> str:
    is_sum = isinstance(part, ast.BinOp) and isinstance(part.op, ast.Add | ast.Sub)
    tex = _tex(diagram, part)
    return f"({tex})" if is_sum else tex


def node_description(node: Node) -> str:
    """A tensor in words.

    Example:
        >>> node_description(Node("W", ("f", "h")))
        'tensor W [f, h], parameter'
    """
    return f"tensor {node.name} [{', '.join(node.indices)}], {node.role.value}"


def convolution_description(convolution: Convolution) -> str:
    """A convolution in words."""
    before, after = convolution.padding
    return (
        f"convolution {convolution.name} of {convolution.input} with {convolution.kernel} "
        f"into {convolution.output}, stride {convolution.stride}, "
        f"padding {before} and {after}, dilation {convolution.dilation}"
    )


def index_description(index: Index) -> str:
    """A wire in words."""
    size = "size not given" if index.size is None else f"size {index.size}"
    return f"index {index.name}, {index.kind.value}, {size}"


def region_description(region: Region) -> str:
    """A barrier in words."""
    over = f" over {', '.join(region.over)}" if region.over else ""
    causal = ", causal" if region.causal else ""
    scale = f", scaled by {region.scale}" if region.scale else ""
    return f"{region.function.name}{over}{causal}{scale}"


def mark_description(region: Region, index: str) -> str:
    """Where a wire leaves a barrier, in words."""
    if index in region.over:
        return f"{region.function.name} normalizes index {index}"
    return f"index {index} leaves {region.function.name}"


# --- How large tensors and their labels are, and the outlines they get ----------------------------


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
    needed = [_needed_width(node, SMALLEST_FONT) for node in diagram.nodes]
    return max([DIAMETER, *needed])


def _needed_width(node: Node, size: float) -> float:
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
    font = min(full, full * size / max(_needed_width(node, full), 1.0))
    # The middle of a triangle's wide half is off its centre, away from the tip.
    back = 0.04 * size if is_triangle else 0.0
    angle = math.radians(shape.angle)
    at = (shape.x - back * math.cos(angle), shape.y - back * math.sin(angle))
    label = place_label(
        node_text(node), at, size=round(font, 2), style=f"on-{shape.style}", anchor="mc"
    )
    return _with_owner(label, node.name)


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
    return _with_owner(label, convolution.name)


def _with_owner(label: Label, owner: str) -> Label:
    return Label(label.text, label.x, label.y, label.size, label.style, label.box, owner)


# --- The frames of barriers: how large they are, given what is inside -----------------------------


# Left, top, right and bottom, around tensors, around inner frames, and around wires.
PADDING = (30.0, 36.0, 30.0, 26.0)
INNER_PADDING = (26.0, 40.0, 26.0, 22.0)
WIRE_PADDING = (16.0, 22.0, 16.0, 16.0)
TAG_ROOM, TAG_ROOM_IN_HALF = 72.0, 62.0
MANY_LEGS = 4


@dataclass(frozen=True)
class Frames:
    """The box of every region."""

    boxes: Mapping[str, Box]

    @classmethod
    def around_ends(cls, wiring: Wiring, ends: Mapping[End, Box]) -> "Frames":
        """Frames around tensors and dots only: what they are before wires are drawn."""
        boxes: dict[str, Box] = {}
        for region in wiring.diagram.structure.evaluation_order:
            if region is not None:
                boxes[region] = frame_box(wiring, region, ends, boxes, ())
        return cls(boxes)


def frame_box(
    wiring: Wiring,
    region: str,
    ends: Mapping[End, Box],
    inner: Mapping[str, Box],
    wires: Sequence[Box],
) -> Box:
    """The frame of one region, around its own things, finished inner frames and wires."""
    diagram = wiring.diagram
    content = [
        _pad(box, PADDING)
        for end, box in ends.items()
        if wiring.region_of(end) == region and isinstance(end, NodeEnd)
    ]
    content += [
        _pad(box, (PADDING[0], 22.0, PADDING[2], PADDING[3]))
        for end, box in ends.items()
        if wiring.region_of(end) == region and not isinstance(end, NodeEnd)
    ]
    content += [
        _pad(inner[name], INNER_PADDING)
        for name in diagram.structure.members[region]
        if name in inner
    ]
    content += [_pad(box, WIRE_PADDING) for box in wires]
    left, top, right, bottom = union(content)
    missing = max(0.0, least_width(wiring, region) - (right - left)) / 2
    return (left - missing, top, right + missing, bottom)


def least_width(wiring: Wiring, region: str) -> float:
    """A frame is never narrower than its tag.

    With four legs or more, one may leave through the middle of the top and one through the
    bottom; then the tag needs the space of one half.
    """
    diagram = wiring.diagram
    tag = text_width(tag_text(diagram, diagram.region_by_name[region]), TAG_FONT)
    if len(diagram.structure.legs[region]) < MANY_LEGS:
        return tag + TAG_ROOM
    return 2 * tag + 2 * TAG_ROOM_IN_HALF


def _pad(box: Box, padding: tuple[float, float, float, float]) -> Box:
    return (
        box[0] - padding[0],
        box[1] - padding[1],
        box[2] + padding[2],
        box[3] + padding[3],
    )
