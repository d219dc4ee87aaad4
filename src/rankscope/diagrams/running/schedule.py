"""A drawable as a straight line of operations on numbered values.

This is what a contraction plan becomes before anything is written or run: constants are folded,
look-ups and convolutions are operations of their own. The cost counts what is alive along it,
`fusing.py` joins operations that PyTorch has one call for, and `source.py` writes the rest down.
Arrays are the values 0, 1, …; each operation makes one more, its `target`.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rankscope.diagrams.contraction import Contraction, RegionPlan, plan_contraction
from rankscope.diagrams.diagram import Diagram
from rankscope.diagrams.network import (
    Box,
    Call,
    Drawable,
    Reference,
    Step,
    Sum,
    flattened,
)
from rankscope.diagrams.network import Constant as NetworkConstant
from rankscope.diagrams.parts import Node, Role
from rankscope.diagrams.running.arrays import Array, arrays_of, reader_of
from rankscope.diagrams.running.normalizing import NormalizedTerms, batch_normalizations
from rankscope.diagrams.running.operations import (
    Add,
    Apply,
    Convolve,
    Fill,
    Indices,
    Invoke,
    Item,
    Mask,
    Multiply,
    Normalize,
    Operation,
    Pick,
    Read,
    Scale,
    Select,
    Shape,
    Source,
    Spread,
)
from rankscope.diagrams.search import AUTOMATIC, Method
from rankscope.diagrams.sizes import region_scale, resolved_sizes
from rankscope.errors import DiagramError


@dataclass(frozen=True)
class Schedule:
    """Operations in order.

    Args:
        arrays: inputs, then parameters.
        operations: what to do; a target is never written twice.
        labels: a name for every value, for people.
        results: the values to return.
        constants: arrays whose numbers are known.
    """

    name: str
    arrays: tuple[Array, ...]
    operations: tuple[Operation, ...]
    labels: tuple[str, ...]
    results: tuple[int, ...]
    constants: tuple[NetworkConstant, ...] = ()

    @property
    def inputs(self) -> tuple[Array, ...]:
        """The arrays that are given by the caller."""
        return tuple(array for array in self.arrays if array.is_input)

    @property
    def stored(self) -> tuple[Array, ...]:
        """The arrays that belong to a module: parameters, and what is kept beside them."""
        return tuple(array for array in self.arrays if not array.is_input)

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """Shape of every value; for arrays, the one they have unless another was given."""
        return (
            *(array.shape for array in self.arrays),
            *(operation.shape for operation in self.operations),
        )


@dataclass(frozen=True)
class Constant:
    """A tensor whose entries are all equal; it costs nothing until somebody needs its entries."""

    value: float
    is_integer: bool = False


Value = int | Constant


def schedule(drawable: Drawable, method: Method = AUTOMATIC) -> Schedule:
    """Plan every diagram of a drawable and put the moves in one line.

    Raises:
        SizeError: if sizes are missing or contradict each other.
        DiagramError: if a node can be given no values.
        ContractionError: if a region cannot be contracted.
    """
    writer = _Writer(drawable, method)
    network = flattened(drawable)
    for step in network.steps:
        writer.step(step)
    results = tuple(
        writer.made[name] if name in writer.made else writer.places[name]
        for name in network.results
    )
    return Schedule(
        drawable.name,
        writer.arrays,
        tuple(writer.operations),
        tuple(writer.labels),
        results,
        network.constants,
    )


class _Writer:
    """The lines written so far, and where values are wanted."""

    def __init__(self, drawable: Drawable, method: Method) -> None:
        self.method = method
        self.arrays = arrays_of(drawable)
        self.operations: list[Operation] = []
        self.labels = [array.name for array in self.arrays]
        self.made: dict[str, int] = {}
        self.places = {array.name: place for place, array in enumerate(self.arrays)}
        # Where a constant takes its precision from when it has no neighbour: parameters, or data.
        learned = [place for place, array in enumerate(self.arrays) if not array.is_input]
        given = [place for place, array in enumerate(self.arrays) if not array.is_integer]
        self.like = tuple((*learned, *given)[:1])
        self.views: dict[tuple[int, tuple[int, int] | None, Shape], int] = {}

    @property
    def next(self) -> int:
        """Number of the next value."""
        return len(self.labels)

    def write(self, operation: Operation, label: str) -> int:
        """Add a line."""
        self.operations.append(operation)
        self.labels.append(label)
        return operation.target

    def step(self, step: Step) -> None:
        """All lines of a step."""
        if isinstance(step.body, Call):
            for name, value in zip(step.arrays, self.call(step.body, step.name), strict=True):
                self.made[name] = value
        else:
            assert not isinstance(step.body, Box), "boxes are opened first"
            self.made[step.name] = self.body(step.body, step.name)

    def call(self, call: Call, label: str) -> list[int]:
        """The lines of a call: what it takes in the shapes it wants, and what it makes."""
        sources: list[int] = []

        def argument(value: Any) -> Any:  # recursive types are not checked at run time
            if isinstance(value, tuple):
                return tuple(argument(each) for each in value)
            if not isinstance(value, Reference):
                return value
            node = call.diagram.node_by_name[value.node]
            sources.append(self.view(node, None, value.shape))
            return Source(len(sources) - 1)

        arguments = tuple((name, argument(value)) for name, value in call.arguments)
        first, *others = call.shapes
        many = tuple(others) if others else None
        made = self.write(
            Invoke(self.next, tuple(sources), first, call.function, arguments, many), label
        )
        if not others:
            return [made]
        return [
            self.write(Item(self.next, (made,), shape, place), f"{label} {place}")
            for place, shape in enumerate(call.shapes)
        ]

    def body(self, body: Diagram | Sum, label: str) -> int:
        """All lines of a diagram or of a sum."""
        if not isinstance(body, Sum):
            return _DiagramWriter(self, body).write(label)
        normalized = batch_normalizations(body.terms)
        inside = {place for each in normalized.values() for place in each.used}
        first = body.terms[0].diagram
        shape = tuple(resolved_sizes(first)[leg] for leg in first.output)
        total, pending = -1, 1.0
        # Each term is added as soon as it is there, so that no more than two are ever kept.
        for place, term in enumerate(body.terms):
            if place in inside:
                continue
            name, coefficient = f"{label} {place}", float(term.coefficient)
            if place in normalized:
                value = self.normalize(normalized[place], name)
            else:
                value = _DiagramWriter(self, term.diagram).write(name)
            if total < 0:
                total, pending = value, coefficient
                continue
            coefficients = (pending, coefficient)
            total = self.write(Add(self.next, (total, value), shape, coefficients), label)
            pending = 1.0
        if pending != 1.0:
            return self.write(Add(self.next, (total,), shape, (pending,)), label)
        self.labels[total] = label
        return total

    def normalize(self, wanted: NormalizedTerms, label: str) -> int:
        """The lines of a batch normalization."""
        value = _DiagramWriter(self, wanted.value).write(label)
        sizes = resolved_sizes(wanted.value)
        shape = tuple(sizes[leg] for leg in wanted.value.output)
        own = tuple(shape[place] for place in wanted.positions)
        nodes = (wanted.mean, wanted.variance, wanted.scale, wanted.shift)
        sources = (value, *(self.view(node, node.rows, own) for node in nodes if node is not None))
        return self.write(
            Normalize(
                self.next,
                sources,
                shape,
                wanted.positions,
                wanted.eps,
                wanted.scale is not None,
                wanted.shift is not None,
            ),
            label,
        )

    def read(self, node: Node, sizes: Mapping[str, int]) -> int:
        """The line in which a node reads its array, or an earlier line that does just that."""
        reader = reader_of(node, sizes)
        return self.view(node, reader.rows, reader.shape)

    def view(self, node: Node, rows: tuple[int, int] | None, shape: Shape) -> int:
        """The line in which a node's array is looked at in a shape, or an earlier one."""
        is_made = node.role is Role.DATA and node.source in self.made
        source = self.made[node.source] if is_made else self.places[node.source]
        key = (source, rows, shape)
        if key not in self.views:
            self.views[key] = self.write(Read(self.next, (source,), shape, rows), node.name)
        return self.views[key]


class _DiagramWriter:
    """The lines of one diagram."""

    def __init__(self, writer: _Writer, diagram: Diagram) -> None:
        self.writer, self.diagram = writer, diagram
        self.sizes = resolved_sizes(diagram)
        self.values: dict[str, Value] = {}

    def write(self, label: str) -> int:
        for region in plan_contraction(self.diagram, self.writer.method).regions:
            finished = self.region(region, label)
        return finished

    def region(self, plan: RegionPlan, label: str) -> int:
        held = {
            name: self.values[name] if name in self.values else self.node(name)
            for name in plan.operands
        }
        value = held[plan.operands[0]]
        for move in plan.contractions:
            name = plan.region or label
            is_last = move is plan.contractions[-1]
            value = held[move.result] = self.move(move, held, name if is_last else move.result)
        legs = self.diagram.structure.legs[plan.region]
        finished = self.filled(value, legs, (), plan.region or label)
        if plan.region is not None:
            finished = self.finish(plan.region, finished, legs)
            self.values[plan.region] = finished
        return finished

    def node(self, name: str) -> Value:
        node = self.diagram.node_by_name[name]
        if node.role is not Role.CONSTANT:
            return self.writer.read(node, self.sizes)
        count = self.sizes[node.indices[-1]] if node.is_one_hot else 0
        if node.is_one_hot and node.fill not in range(count):
            raise DiagramError(
                f"Constant one-hot node {name!r} picks entry {node.fill} along index "
                f"{node.indices[-1]!r}, which must be one of 0, …, {count - 1}."
            )
        return Constant(float(node.fill), node.is_one_hot)

    def move(self, move: Contraction, held: Mapping[str, Value], label: str) -> Value:
        operands = [held[name] for name in move.operands]
        if move.is_lookup:
            return self.pick(move, operands, label)
        if move.convolutions:
            return self.convolve(move, operands, label)
        constants = [value for value in operands if isinstance(value, Constant)]
        if constants:
            return self.spread(move, operands, label)
        sources = tuple(value for value in operands if isinstance(value, int))
        shape = self.shape(move.output)
        return self.writer.write(
            Multiply(self.writer.next, sources, shape, move.inputs, move.output), label
        )

    def spread(self, move: Contraction, operands: list[Value], label: str) -> Value:
        """A product with constants: the factor is their values times all that only they sum."""
        factor = math.prod(value.value for value in operands if isinstance(value, Constant))
        others = [place for place, value in enumerate(operands) if isinstance(value, int)]
        kept = {*move.output, *(index for place in others for index in move.inputs[place])}
        summed = dict.fromkeys(index for one in move.inputs for index in one if index not in kept)
        factor *= math.prod(self.sizes[index] for index in summed)
        if not others:
            return Constant(factor)
        source = operands[others[0]]
        assert isinstance(source, int)
        return self.writer.write(
            Spread(
                self.writer.next,
                (source,),
                self.shape(move.output),
                (move.inputs[others[0]],),
                move.output,
                factor,
            ),
            label,
        )

    def pick(self, move: Contraction, operands: list[Value], label: str) -> Value:
        integers, table = operands
        if isinstance(table, Constant):
            return Constant(table.value)
        along, shape = move.inputs[0][-1], self.shape(move.output)
        if isinstance(integers, Constant) and integers.is_integer:
            entry = int(integers.value)
            return self.writer.write(
                Select(
                    self.writer.next, (table,), shape, (move.inputs[1],), move.output, along, entry
                ),
                label,
            )
        chosen = self.filled(integers, move.inputs[0][:-1], (table,), move.operands[0])
        return self.writer.write(
            Pick(
                self.writer.next,
                (chosen, table),
                shape,
                (move.inputs[0][:-1], move.inputs[1]),
                move.output,
                along,
            ),
            label,
        )

    def convolve(self, move: Contraction, operands: list[Value], label: str) -> int:
        parts = tuple(self.diagram.convolution_by_name[name] for name in move.convolutions)
        # The operand with the inputs comes first, as in F.conv2d(input, weight).
        first = 0 if parts[0].input in move.inputs[0] else 1
        order = (first, 1 - first)
        like = tuple(value for value in operands if isinstance(value, int))[:1]
        sources = tuple(
            self.filled(operands[place], move.inputs[place], like, move.operands[place])
            for place in order
        )
        inputs = tuple(move.inputs[place] for place in order)
        return self.writer.write(
            Convolve(
                self.writer.next, sources, self.shape(move.output), inputs, move.output, parts
            ),
            label,
        )

    def filled(self, value: Value, indices: Indices, like: tuple[int, ...], label: str) -> int:
        """A value as numbers; constants are spelled out only here."""
        if isinstance(value, int):
            return value
        like = like or self.writer.like
        fill = Fill(self.writer.next, like, self.shape(indices), value.value, value.is_integer)
        return self.writer.write(fill, label)

    def finish(self, name: str, value: int, legs: Indices) -> int:
        """Scale, mask, function: a line each, so that no more than two of them are ever alive."""
        region, shape = self.diagram.region_by_name[name], self.shape(legs)
        scale = region_scale(self.diagram, name, self.sizes)
        if scale != 1.0:
            value = self.writer.write(Scale(self.writer.next, (value,), shape, scale), name)
        if region.causal is not None:
            query, key = (legs.index(leg) for leg in region.causal)
            value = self.writer.write(Mask(self.writer.next, (value,), shape, query, key), name)
        if region.function.name != "identity":
            value = self.apply(name, value, legs)
        return value

    def apply(self, name: str, value: int, legs: Indices) -> int:
        """A function; a normalization is quickest over the last positions."""
        region, own = self.diagram.region_by_name[name], legs
        if region.function.name in ("layer_norm", "rms_norm"):
            kept = tuple(leg for leg in legs if leg not in region.over)
            own = (*kept, *(leg for leg in legs if leg in region.over))
        over = tuple(sorted(own.index(leg) for leg in region.over))
        value = self.turned(value, legs, own, name)
        made = Apply(self.writer.next, (value,), self.shape(own), region.function, over)
        return self.turned(self.writer.write(made, name), own, legs, name)

    def turned(self, value: int, legs: Indices, wanted: Indices, label: str) -> int:
        """A value with its legs in another order: a view."""
        if legs == wanted:
            return value
        view = Multiply(self.writer.next, (value,), self.shape(wanted), (legs,), wanted)
        return self.writer.write(view, label)

    def shape(self, indices: Indices) -> Shape:
        return tuple(self.sizes[index] for index in indices)
