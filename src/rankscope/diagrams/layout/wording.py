"""What is written in a picture: TeX for indices, tensors and tags; words for screen readers."""

import ast
import re

from rankscope.diagrams.diagram import Diagram
from rankscope.diagrams.layout.placement import View
from rankscope.diagrams.parts import Convolution, Index, Node, Region

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
