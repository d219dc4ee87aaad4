"""A drawable as an einsum program for people: one line per region, in the order they finish."""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from rankscope.diagrams.diagram import Diagram
from rankscope.diagrams.network import (
    Argument,
    Call,
    Drawable,
    Reference,
    Sum,
    Word,
    flattened,
)
from rankscope.diagrams.parts import Convolution, Node, Region, Role
from rankscope.diagrams.sizes import letters


@dataclass(frozen=True)
class Program:
    """Lines of the form `name = function(scale * einsum("…", operands), options)`."""

    name: str
    lines: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join(self.lines)


def einsum_program(drawable: Drawable) -> Program:
    """Write a drawable as einsums, with the functions, masks and scales of its regions.

    Operands are arrays; `where` says how the positions along a convolution's legs belong
    together. Indices of one letter keep it.

    Example:
        >>> from rankscope.diagrams.parts import Function
        >>> from rankscope.diagrams.parts import Index
        >>> layer = Diagram(
        ...     "layer",
        ...     (Index("b"), Index("f"), Index("h"), Index("o")),
        ...     (Node("X", ("b", "f")), Node("V", ("f", "h")), Node("W", ("h", "o"))),
        ...     output=("b", "o"),
        ...     regions=(Region("R", ("X", "V"), Function("relu")),),
        ... )
        >>> print(einsum_program(layer))
        R = relu(einsum("bf,fh->bh", X, V))
        result = einsum("bh,ho->bo", R, W)
    """
    network = flattened(drawable)
    names = {name for step in network.steps for name in step.arrays}
    lines: list[str] = []
    for step in network.steps:
        match step.body:
            case Sum():
                lines.extend(_sum_lines(step.body, step.name, names))
            case Diagram():
                writer = _DiagramWriter(step.body, step.name, names)
                lines.extend(writer.inner_lines())
                lines.append(f"{step.name} = {writer.expression(None)}")
            case Call():
                lines.append(f"{', '.join(step.arrays)} = {_call_line(step.body)}")
    return Program(drawable.name, tuple(lines))


def _sum_lines(total: Sum, name: str, names: set[str]) -> Iterator[str]:
    terms = []
    for place, term in enumerate(total.terms):
        writer = _DiagramWriter(term.diagram, f"{name}.{place}", names)
        yield from writer.inner_lines()
        factor = "" if term.coefficient == 1.0 else f"{term.coefficient:g} * "
        terms.append(f"{factor}{writer.expression(None)}")
    yield f"{name} = {' + '.join(terms)}"


def _call_line(call: Call) -> str:
    """An operator that is no contraction, with its arrays first and its other arguments by name."""

    def text(value: Argument) -> str:
        match value:
            case Reference(node=node):
                return call.diagram.node_by_name[node].source
            case Word(text=word):
                return word
            case tuple():
                return f"[{', '.join(map(text, value))}]"
            case _:
                return repr(value)

    given = [
        text(value) if isinstance(value, Reference) else f"{name}={text(value)}"
        for name, value in call.arguments
    ]
    return f"{call.kind}({', '.join(given)})"


class _DiagramWriter:
    """The lines of one diagram."""

    def __init__(self, diagram: Diagram, label: str, taken: set[str]) -> None:
        self.diagram = diagram
        self.letters = letters(index.name for index in diagram.indices)
        arrays = {node.source for node in diagram.nodes}
        # A region is private to its diagram, so its name may be that of an array elsewhere.
        self.names: Mapping[str, str] = {
            region.name: f"{label}.{region.name}" if region.name in arrays | taken else region.name
            for region in diagram.regions
        }

    def inner_lines(self) -> Iterator[str]:
        for region in self.diagram.structure.evaluation_order:
            if region is not None:
                yield f"{self.names[region]} = {self.region(self.diagram.region_by_name[region])}"

    def region(self, region: Region) -> str:
        inner = self.expression(region.name)
        if region.scale is not None:
            inner = f"{_as_factor(region.scale)} * {inner}"
        if region.causal is not None:
            query, key = (self.letters[leg] for leg in region.causal)
            inner = f'causal({inner}, query="{query}", key="{key}")'
        if region.function.name == "identity":
            return inner
        options = [f"{key}={value!r}" for key, value in region.function.options]
        if region.over:
            options.insert(0, f'over="{self.word(region.over)}"')
        return f"{region.function.name}({', '.join((inner, *options))})"

    def expression(self, region: str | None) -> str:
        """The einsum of one region."""
        structure = self.diagram.structure
        operands = structure.operands[region]
        legs = ",".join(self.word(operand.indices) for operand in operands)
        given = [self.operand(operand.name) for operand in operands]
        parts = self.diagram.convolution_by_name
        conditions = [self.condition(parts[name]) for name in structure.convolutions[region]]
        if conditions:
            given.append(f'where="{", ".join(conditions)}"')
        return f'einsum("{legs}->{self.word(structure.legs[region])}", {", ".join(given)})'

    def operand(self, name: str) -> str:
        if name in self.names:
            return self.names[name]
        node = self.diagram.node_by_name[name]
        if node.is_one_hot:
            return f"one_hot({self.stored(node)})"
        return self.stored(node)

    def stored(self, node: Node) -> str:
        if node.role is Role.CONSTANT:
            return f"{node.fill:g}"
        return node.source if node.rows is None else f"{node.source}[{node.rows[0]}:{node.rows[1]}]"

    def condition(self, part: Convolution) -> str:
        entering, kernel, leaving = (self.letters[leg] for leg in part.indices)
        stride = "" if part.stride == 1 else f"{part.stride}*"
        dilation = "" if part.dilation == 1 else f"{part.dilation}*"
        shift = f" - {part.padding[0]}" if part.padding[0] else ""
        mode = "" if part.padding_mode == "zeros" else f" ({part.padding_mode})"
        return f"{entering} = {stride}{leaving} + {dilation}{kernel}{shift}{mode}"

    def word(self, indices: tuple[str, ...]) -> str:
        return "".join(self.letters[index] for index in indices)


def _as_factor(scale: str) -> str:
    """The scale as a factor of a product: in parentheses if it is a sum."""
    tree = ast.parse(scale, mode="eval").body
    is_sum = isinstance(tree, ast.BinOp) and isinstance(tree.op, ast.Add | ast.Sub)
    return f"({scale})" if is_sum else scale
