"""What an operation needs besides its inputs, and how it is run on batches of any length.

Parameters and whatever depends on the length of a batch only are computed in the model's own
floats; operations then run in these, or on the same numbers in float64.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from rankscope.reading.trace import Operation, Trace, Value, is_random


class FixedValues:
    """Parameters, and what depends on the length of a batch only, for batches of any length.

    They are computed in the model's own floats, whatever they are used in.
    """

    def __init__(self, read: Trace, *, precise: bool, is_mapped: bool) -> None:
        self.precise, self.is_mapped = precise, is_mapped
        self._arrays = read.arrays
        self._start = read.inputs[0]
        self._values = set(read.arrays)
        self._operations: list[Operation] = []
        for operation in read.operations:
            if operation.kind == "sym_size" or (
                self._values.issuperset(operation.inputs) and not is_random(operation)
            ):
                self._operations.append(operation)
                self._values.update(operation.outputs)
        self._known: dict[int, Mapping[Value, Any]] = {}
        if precise and not self._operations:
            self._arrays = _in_long_floats(self._arrays)

    def __contains__(self, value: Value) -> bool:
        return value in self._values

    def __call__(self, length: int) -> Mapping[Value, Any]:
        """All of them for a batch of some samples."""
        if not self._operations:
            return self._arrays
        if length not in self._known:
            known: dict[Value, Any] = dict(self._arrays)
            for operation in self._operations:
                if operation.kind == "sym_size":
                    value, axis = operation["self"], operation["dim"]
                    is_batch = value.sizes[axis] == self._start.sizes[0]
                    known[operation.output] = length if is_batch else value.shape[axis]
                else:
                    known.update(zip(operation.outputs, operation.run(known), strict=False))
            self._known[length] = _in_long_floats(known) if self.precise else known
        return self._known[length]


def _in_long_floats(known: Mapping[Value, Any]) -> dict[Value, Any]:
    return {
        value: part.double() if isinstance(part, Tensor) and part.is_floating_point() else part
        for value, part in known.items()
    }


def fill_arguments(operation: Operation, same: Mapping[Value, Value], fixed: FixedValues) -> Any:
    """Arguments with tensors and numbers in the place of fixed values, for one sample."""

    def fill(part: Any) -> Any:
        if isinstance(part, Value):
            return fixed(1)[part] if part in fixed else same.get(part, part)
        return [fill(each) for each in part] if isinstance(part, (list, tuple)) else part

    return MappingProxyType({name: fill(part) for name, part in operation.arguments.items()})


def run_one(operation: Operation, fixed: FixedValues, number: int, *inputs: Tensor) -> Tensor:
    """An operation on batches of any length, one tensor for each value that is not fixed."""
    known, given = fixed(len(inputs[0])), iter(inputs)

    def fill(part: Any) -> Any:
        if isinstance(part, Value):
            return known[part] if part in fixed else next(given)
        return [fill(each) for each in part] if isinstance(part, (list, tuple)) else part

    arguments = {name: fill(part) for name, part in operation.arguments.items()}
    if fixed.precise:
        arguments = {name: _long(part) for name, part in arguments.items()}
    match operation.kind:
        case "view":
            # Not every tensor that comes here lies in memory as it did when it was traced, and the
            # length of the batch may have been fixed.
            shape = operation.output.shape
            return torch.reshape(
                inputs[0], shape if fixed.is_mapped else (len(inputs[0]), *shape[1:])
            )
        case "batch_norm":
            # The exported operation has no rule for batches of gradients.
            return functional.batch_norm(
                arguments["input"],
                arguments["running_mean"],
                arguments["running_var"],
                arguments["weight"],
                arguments["bias"],
                eps=arguments["eps"],
            )
    result = operation.target(**arguments)
    outputs: Tensor = result if isinstance(result, Tensor) else result[number]
    return outputs


def run_all(
    group: Sequence[Operation],
    fixed: FixedValues,
    same: Mapping[Value, Value],
    start: Tensor,
) -> Tensor:
    """Operations one after the other, from one tensor to what the last of them makes."""
    known: dict[Value, Tensor] = {}
    for operation in group:
        values = (same.get(v, v) for v in operation.inputs if v not in fixed)
        made = run_one(operation, fixed, 0, *(known.get(value, start) for value in values))
        known[operation.output] = made
    return known[group[-1].output]


def _long(part: Any) -> Any:
    """float64 where an operation names another floating-point format."""
    is_float = isinstance(part, torch.dtype) and part.is_floating_point
    return torch.float64 if is_float else part
