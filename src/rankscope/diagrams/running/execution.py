"""Carries out a schedule: every operation is prepared once, then run in a thin loop."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import singledispatch
from typing import Any

import torch
from torch import Tensor

from rankscope.diagrams.functions import Function
from rankscope.diagrams.network import Word
from rankscope.diagrams.running import schedule
from rankscope.diagrams.running.activations import apply_function, causal_mask
from rankscope.diagrams.running.axes import Indices, Shape, grouped, single
from rankscope.diagrams.running.lowering import (
    Elementwise,
    lower_broadcast,
    lower_convolution,
    lower_pick,
    lower_product,
)
from rankscope.diagrams.running.products import (
    Convolving,
    MatrixMultiplying,
    Multiplying,
    Picking,
    Reducing,
    Spreading,
)

Run = Callable[..., Tensor]
Shapes = tuple[Shape, ...]


@dataclass(frozen=True)
class Line:
    """A prepared operation: what to call, on which values, and what to forget afterwards."""

    run: Run
    sources: tuple[int, ...]
    target: int
    last_uses: tuple[int, ...]


def prepare(planned: schedule.Schedule) -> tuple[Line, ...]:
    """Every operation of a schedule as something to call.

    A constant in a diagram without any array reads a value after all others, for its precision.

    Raises:
        SizeError: if a padding reaches further than its mode can.
    """
    shapes = planned.shapes
    lines = []
    for operation, last_uses in zip(planned.operations, planned.last_uses, strict=True):
        run = prepared(operation, tuple(shapes[source] for source in operation.sources))
        sources = operation.sources or (planned.num_values,)
        lines.append(Line(run, sources, operation.target, last_uses))
    return tuple(lines)


def carry_out(
    lines: Sequence[Line], values: list[Tensor | None], results: tuple[int, ...]
) -> tuple[Tensor, ...]:
    """Carry out prepared operations on a list that starts with the arrays.

    Values are dropped right after their last use, so that no more is alive than was planned.
    """
    for line in lines:
        values[line.target] = line.run(*[values[source] for source in line.sources])
        for value in line.last_uses:
            values[value] = None
    finished = tuple(value for value in (values[result] for result in results) if value is not None)
    assert len(finished) == len(results), "results are never dropped"
    return finished


@singledispatch
def prepared(operation: schedule.Operation, shapes: Shapes) -> Run:
    """One operation as something to call on tensors of these shapes."""
    raise NotImplementedError(type(operation).__name__)


@dataclass(frozen=True)
class Reading:
    """A node's view of its array."""

    rows: tuple[int, int] | None
    shape: Shape

    def __call__(self, array: Tensor) -> Tensor:
        if self.rows is not None:
            start, stop = self.rows
            array = array.reshape(-1, math.prod(self.shape) // (stop - start))[start:stop]
        return array if array.shape == self.shape else array.reshape(self.shape)


@dataclass(frozen=True)
class Filling:
    """A constant tensor on the device of `like`; one number is stored, and expanded."""

    value: float
    is_integer: bool
    shape: Shape

    def __call__(self, like: Tensor) -> Tensor:
        if self.is_integer:
            return torch.full((), int(self.value), device=like.device).expand(self.shape)
        # Rounding 0.5 to the integers of an input would be silent and wrong.
        dtype = like.dtype if like.is_floating_point() else None
        return torch.full((), self.value, dtype=dtype, device=like.device).expand(self.shape)


@dataclass(frozen=True)
class Scaling:
    """A value times a number."""

    factor: float

    def __call__(self, value: Tensor) -> Tensor:
        return value * self.factor


@dataclass(frozen=True)
class Masking:
    """The causal mask."""

    query: int
    key: int

    def __call__(self, value: Tensor) -> Tensor:
        return causal_mask(value, self.query, self.key)


@dataclass(frozen=True)
class Applying:
    """A barrier's function."""

    function: Function
    over: Shape

    def __call__(self, value: Tensor) -> Tensor:
        return apply_function(self.function, value, self.over)


@dataclass(frozen=True)
class Adding:
    """A sum with coefficients."""

    coefficients: tuple[float, ...]

    def __call__(self, *values: Tensor) -> Tensor:
        first = self.coefficients[0]
        total = values[0] if first == 1.0 else first * values[0]
        for coefficient, value in zip(self.coefficients[1:], values[1:], strict=True):
            total = torch.add(total, value, alpha=coefficient)
        return total


@prepared.register
def _(operation: schedule.Read, shapes: Shapes) -> Run:
    return Reading(operation.rows, operation.shape)


@prepared.register
def _(operation: schedule.Fill, shapes: Shapes) -> Run:
    return Filling(operation.value, operation.is_integer, operation.shape)


@prepared.register
def _(operation: schedule.Multiply, shapes: Shapes) -> Run:
    inputs, output, sizes = operation.inputs, operation.output, _sizes(operation.inputs, shapes)
    if len(inputs) == 1:
        return Reducing(grouped(inputs[0], single(output), sizes))
    lowered = lower_product(inputs, output, sizes)
    return Multiplying(lowered) if isinstance(lowered, Elementwise) else MatrixMultiplying(lowered)


@prepared.register
def _(operation: schedule.Spread, shapes: Shapes) -> Run:
    sizes = _sizes(operation.inputs, shapes)
    reduce = lower_broadcast(operation.inputs[0], operation.output, sizes)
    return Spreading(reduce, operation.factor, operation.shape)


@prepared.register
def _(operation: schedule.Convolve, shapes: Shapes) -> Run:
    sizes = _sizes(operation.inputs, shapes)
    return Convolving(
        lower_convolution(operation.inputs, operation.output, operation.convolutions, sizes)
    )


@prepared.register
def _(operation: schedule.Pick, shapes: Shapes) -> Run:
    sizes = _sizes(operation.inputs, shapes)
    return Picking(lower_pick(operation.inputs, operation.output, operation.along, sizes))


@prepared.register
def _(operation: schedule.Scale, shapes: Shapes) -> Run:
    return Scaling(operation.factor)


@prepared.register
def _(operation: schedule.Mask, shapes: Shapes) -> Run:
    return Masking(operation.query, operation.key)


@prepared.register
def _(operation: schedule.Apply, shapes: Shapes) -> Run:
    return Applying(operation.function, operation.over)


@prepared.register
def _(operation: schedule.Add, shapes: Shapes) -> Run:
    return Adding(operation.coefficients)


@dataclass(frozen=True)
class Invoking:
    """An operator of PyTorch on tensors and plain values."""

    function: Callable[..., Any]
    arguments: tuple[tuple[str, schedule.Argument], ...]

    def __call__(self, *sources: Tensor) -> Any:
        def given(value: Any) -> Any:
            match value:
                case schedule.Source(place=place):
                    return sources[place]
                case Word():
                    return named(value)
                case tuple():
                    return [given(each) for each in value]
                case _:
                    return value

        return self.function(**{name: given(value) for name, value in self.arguments})


def named(word: Word) -> Any:
    """What a name of PyTorch stands for."""
    return torch.device(word.text) if word.kind == "device" else getattr(torch, word.text)


@dataclass(frozen=True)
class Taking:
    """One of several results."""

    place: int

    def __call__(self, values: Any) -> Any:
        return values[self.place]


@prepared.register
def _(operation: schedule.Invoke, shapes: Shapes) -> Run:
    function: Any = torch.ops
    for word in operation.function.split(".")[2:]:
        function = getattr(function, word)
    return Invoking(function, operation.arguments)


@prepared.register
def _(operation: schedule.Item, shapes: Shapes) -> Run:
    return Taking(operation.place)


def _sizes(inputs: tuple[Indices, ...], shapes: Shapes) -> dict[str, int]:
    return {
        index: size
        for indices, shape in zip(inputs, shapes, strict=True)
        for index, size in zip(indices, shape, strict=True)
    }
