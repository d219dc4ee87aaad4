"""Functions that look at a value in another way: transposes, reshapes, slices."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor

from rankscope.diagrams.reading.arrays import is_causal_mask
from rankscope.diagrams.reading.calls import Call, Result
from rankscope.diagrams.reading.sorts import GENERIC
from rankscope.diagrams.reading.values import (
    Piece,
    Value,
    expanded,
    permuted,
    squeezed,
    unsqueezed,
)
from rankscope.errors import SizeError, UnsupportedModuleError


def flat_sizes(given: Any) -> tuple[int, ...]:
    """Sizes given one by one, or as one sequence."""
    if len(given) == 1 and not isinstance(given[0], int):
        given = given[0]
    return tuple(int(size) for size in given)


def read_same(call: Call) -> Value:
    """Read a function that changes no number."""
    return call.value("input")


def read_clone(call: Call) -> Value:
    """Read a copy: the same numbers, which do not change with the original."""
    return replace(call.value("input"), memory=object())


def read_reshape(call: Call) -> Value:
    """Read `reshape` and `view`."""
    sizes = call.arguments.get("shape", ())
    if any(not isinstance(size, int | Sequence) for size in sizes):
        raise UnsupportedModuleError("a view as another dtype is not a contraction")
    return call.notebook.reshape(call.inner("copy"), call.value("input"), flat_sizes(sizes))


def read_permute(call: Call) -> Value:
    """Read `permute`."""
    value = call.value("input")
    order = [value.position(axis) for axis in flat_sizes(call.arguments["dims"])]
    if sorted(order) != list(range(len(value.axes))):
        raise SizeError(
            f"{call.name}: the order {order} is not one of the {len(value.axes)} axes of an input "
            f"of shape {value.shape}."
        )
    return permuted(value, order)


def read_transpose(call: Call) -> Value:
    """Read the exchange of two axes, by default the last two."""
    value = call.value("input")
    order = list(range(len(value.axes)))
    first, second = (
        value.position(call.option(name, usual)) for name, usual in (("dim0", -2), ("dim1", -1))
    )
    if len(order) > 1:
        order[first], order[second] = order[second], order[first]
    return permuted(value, order)


def read_matrix_transpose(call: Call) -> Value:
    """Read the transpose of a matrix."""
    value = call.value("input")
    if len(value.axes) > 2:
        raise UnsupportedModuleError(
            f"`T` is for matrices, got an input of shape {value.shape}; use `transpose`"
        )
    return permuted(value, range(len(value.axes))[::-1])


def read_unsqueeze(call: Call) -> Value:
    """Read a new axis of size 1."""
    return unsqueezed(call.value("input"), int(call.arguments["dim"]))


def read_squeeze(call: Call) -> Value:
    """Read the loss of one axis of size 1, or of all."""
    value, given = call.value("input"), call.arguments.get("dim")
    if given is None:
        axes = [axis for axis, size in enumerate(value.shape) if size == 1]
    else:
        axes = [value.position(axis) for axis in ((given,) if isinstance(given, int) else given)]
    for axis in sorted(axes, reverse=True):
        value = squeezed(value, axis)
    return value


def read_expand(call: Call) -> Value:
    """Read axes of size 1 repeated to other sizes."""
    value = call.value("input")
    sizes = flat_sizes(call.arguments["sizes"])
    for _ in range(len(sizes) - len(value.axes)):
        value = unsqueezed(value, 0)
    for axis, size in enumerate(sizes):
        if size in (-1, value.shape[axis]):
            continue
        if value.shape[axis] != 1:
            raise SizeError(
                f"{call.name}: axis {axis} of an input of shape {value.shape} cannot be "
                f"expanded to {size}."
            )
        value = expanded(value, axis, Piece(size, GENERIC))
    return value


def read_item(call: Call) -> Value:
    """Read `value[index]` for integers, slices, None and an ellipsis."""
    value, given = call.value("input"), call.arguments["index"]
    parts = list(given) if isinstance(given, tuple) else [given]
    used = sum(1 for part in parts if part is not None and part is not Ellipsis)
    full = [slice(None)] * (len(value.axes) - used)
    if Ellipsis in [part for part in parts if not isinstance(part, Value | Tensor)]:
        place = parts.index(Ellipsis)
        parts[place : place + 1] = full
    axis = 0
    for part in parts:
        value, axis = _indexed(call, value, axis, part)
    return value


def _indexed(call: Call, value: Value, axis: int, part: Any) -> tuple[Value, int]:
    """Apply one part of an index; gives the value and the axis that the next part is for."""
    name = call.inner("copy")
    match part:
        case None:
            return unsqueezed(value, axis), axis + 1
        case bool():
            raise UnsupportedModuleError("an index by booleans is not a contraction")
        case int():
            start = part + value.shape[axis] if part < 0 else part
            found = call.notebook.narrow(name, value, axis, (start, start + 1))
            return squeezed(found, axis), axis
        case slice():
            start, stop, step = part.indices(value.shape[axis])
            if step != 1 or stop <= start:
                raise UnsupportedModuleError(f"the slice {part} is not a run of positions")
            return call.notebook.narrow(name, value, axis, (start, stop)), axis + 1
        case _:
            raise UnsupportedModuleError("an index by a tensor is not a contraction")


def read_narrow(call: Call) -> Value:
    """Read a run of positions of one axis."""
    value = call.value("input")
    start, length = int(call.arguments["start"]), int(call.arguments["length"])
    axis = value.position(int(call.arguments["dim"]))
    return call.notebook.narrow(call.inner("copy"), value, axis, (start, start + length))


def read_select(call: Call) -> Value:
    """Read one position of one axis."""
    value = call.value("input")
    axis = value.position(int(call.arguments["dim"]))
    found, _ = _indexed(call, value, axis, int(call.arguments["index"]))
    return found


def read_chunk(call: Call) -> Result:
    """Read parts of equal size; the last may be smaller."""
    value = call.value("input")
    axis = value.position(call.option("dim", 0))
    size = -(-value.shape[axis] // int(call.arguments["chunks"]))
    return _parts(call, value, axis, size)


def read_split(call: Call) -> Result:
    """Read parts of one size, or of a list of sizes."""
    value = call.value("input")
    axis = value.position(call.option("dim", 0))
    return _parts(call, value, axis, call.arguments["split_size_or_sections"])


def read_unbind(call: Call) -> Result:
    """Read every position of one axis apart."""
    value = call.value("input")
    axis = value.position(call.option("dim", 0))
    return tuple(_indexed(call, value, axis, n)[0] for n in range(value.shape[axis]))


def _parts(call: Call, value: Value, axis: int, sizes: int | Sequence[int]) -> Result:
    total = value.shape[axis]
    if isinstance(sizes, int):
        sizes = [min(sizes, total - start) for start in range(0, total, sizes)]
    if sum(sizes) != total:
        raise SizeError(
            f"{call.name}: parts of sizes {list(sizes)} do not add up to {total}, the size of "
            f"axis {axis} of an input of shape {value.shape}."
        )
    found, start = [], 0
    for size in sizes:
        span = (start, start + size)
        found.append(call.notebook.narrow(call.inner("copy"), value, axis, span))
        start += size
    return tuple(found)


def read_masked_fill(call: Call) -> Value:
    """Read the causal mask: minus infinity wherever the key is after the query."""
    value, mask = call.value("input"), call.arguments.get("mask")
    if float(call.arguments["value"]) != -float("inf"):
        raise UnsupportedModuleError("a mask is read only when it fills in minus infinity")
    if not isinstance(mask, Tensor) or mask.shape[-2:] != value.shape[-2:]:
        raise UnsupportedModuleError("its mask must be a fixed tensor over the last two axes")
    if not is_causal_mask(mask.bool(), true_is_kept=False):
        raise UnsupportedModuleError("a mask is read only when it is the causal mask")
    return masked(call, value)


def masked(call: Call, value: Value) -> Value:
    """A value over (query, key) whose entries with a later key are minus infinity."""
    for axis in (-2, -1):
        value = call.notebook.with_whole_axis(call.inner("copy"), value, value.position(axis))
    return replace(value, causal=(value.axes[-2][0], value.axes[-1][0]))
