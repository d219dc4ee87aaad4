"""A rule: how an operation of a trace becomes views and steps.

It turns an operation into contractions, sums and regions, or returns None where the operation is
not one of these with its arguments; then the operation is called as it is.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from rankscope.diagrams.network import Word
from rankscope.diagrams.parts import Role
from rankscope.reading.drafting import Drafting, Known, unused
from rankscope.reading.trace import Operation, Value
from rankscope.reading.views import (
    ArrayView,
    guess,
    whole,
)


@dataclass
class Reading:
    """What is known while a trace is read: a view of every value, and the steps so far.

    Args:
        drafting: the steps.
        views: of values that were read.
        tensors: numbers of the values that no input has a part in and no parameter.
        linear_sizes: for the result of each linear map, how many features it makes; rows of them
            are rows of its weight.
        constants: numbers that belong to the network, by name.
    """

    drafting: Drafting
    views: dict[Value, ArrayView] = field(default_factory=dict)
    tensors: dict[Value, Tensor] = field(default_factory=dict)
    linear_sizes: dict[str, int] = field(default_factory=dict)
    constants: dict[str, Tensor] = field(default_factory=dict)

    def constant(self, name: str, numbers: Tensor) -> ArrayView:
        """A view of numbers that belong to the network."""
        free = unused(name, self.drafting.reserved)
        self.drafting.reserved.add(free)
        self.constants[free] = numbers
        shape = tuple(numbers.shape)
        return whole(free, shape, guess(len(shape)), Role.BUFFER)


@dataclass(frozen=True)
class Rule:
    """An operation that is being read.

    Args:
        reading: what is known.
        operation: of the trace.
        name: for the step that it becomes.
    """

    reading: Reading
    operation: Operation
    name: str

    @property
    def drafting(self) -> Drafting:
        """The steps so far."""
        return self.reading.drafting

    def argument(self, name: str) -> Any:
        """An argument as the trace has it."""
        return self.operation.arguments.get(name)

    def view(self, name: str) -> ArrayView:
        """An argument that is a tensor."""
        return self.reading.views[self.argument(name)]

    def optional(self, name: str) -> ArrayView | None:
        """An argument that is a tensor or None."""
        return None if self.argument(name) is None else self.view(name)

    def known(self, name: str) -> Tensor | None:
        """The numbers of an argument that is the same for every input, or None."""
        return self.reading.tensors.get(self.argument(name))

    @property
    def copy(self) -> str:
        """Name for a copy that only the layout needs."""
        return f"{self.name}.copy"

    @property
    def output(self) -> Value:
        """What the operation makes, or the first of several."""
        return self.operation.output

    def call(self, known: Known | None) -> tuple[ArrayView, ...]:
        """The operation called as it is; opaque if nothing is known about it."""
        target = self.operation.target
        if not isinstance(target, torch._ops.OpOverload):
            raise self.operation.refusal("from_module", "it is no operator of PyTorch")
        usual = {
            argument.name: argument.default_value
            for argument in target._schema.arguments
            if argument.has_default_value()
        }
        arguments = [
            (name, self._given(part))
            for name, part in self.operation.arguments.items()
            if name not in usual or isinstance(part, Value | list) or part != usual[name]
        ]
        return self.drafting.call(
            self.name,
            f"torch.ops.{target}",
            arguments,
            [output.shape for output in self.operation.outputs],
            known,
        )

    def _given(self, part: Any) -> Any:
        if isinstance(part, list | tuple):
            return [self._given(each) for each in part]
        if isinstance(part, torch.dtype | torch.layout | torch.memory_format | torch.device):
            return Word(type(part).__name__, str(part).removeprefix("torch."))
        return self.reading.views[part] if isinstance(part, Value) else part

    def reshape(self, view: ArrayView, shape: Sequence[int]) -> ArrayView:
        """A view in another shape."""
        return self.drafting.reshape(self.copy, view, shape)

    def axis(self, name: str, order: int) -> int:
        """An argument that is an axis, counted from the front."""
        axis = int(self.argument(name))
        return axis + order if axis < 0 else axis


Result = ArrayView | tuple[ArrayView, ...] | None
Reader = Callable[[Rule], Result]
