"""Sums, products and means of values."""

import math
import string
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from rankscope.diagrams.parts import Role
from rankscope.diagrams.reading.calls import Call
from rankscope.diagrams.reading.drafts import Draft, Letters, Operand
from rankscope.diagrams.reading.labels import fraction_label
from rankscope.diagrams.reading.notebook import axis_letters
from rankscope.diagrams.reading.sketch import unused
from rankscope.diagrams.reading.values import Piece, Value, scaled, size_of
from rankscope.errors import SizeError, UnsupportedModuleError

MAX_POWER = 8


def read_add(call: Call) -> Value:
    """Read a + alpha * b, where either may be a number."""
    return _weighted_sum(call, float(call.option("alpha", 1.0)))


def read_subtract(call: Call) -> Value:
    """Read a - alpha * b, where either may be a number."""
    return _weighted_sum(call, -float(call.option("alpha", 1.0)))


def _weighted_sum(call: Call, coefficient: float) -> Value:
    terms = [_operand(call, "input"), _operand(call, "other")]
    return call.notebook.add(call.name, terms, (1.0, coefficient))


def _operand(call: Call, argument: str) -> Value | float:
    given = call.arguments.get(argument)
    return float(given) if isinstance(given, int | float) else call.value(argument)


def read_negate(call: Call) -> Value:
    """Read -a."""
    return scaled(call.value("input"), -1.0)


def read_multiply(call: Call) -> Value:
    """Read a product entry by entry, or by a number."""
    first, second = _operand(call, "input"), _operand(call, "other")
    if isinstance(first, float):
        first, second = second, first
    assert isinstance(first, Value), "a call is traced only if a tensor takes part"
    if isinstance(second, float):
        return scaled(first, second)
    return call.notebook.multiply(call.name, (first, second))


def read_divide(call: Call) -> Value:
    """Read a division by a number."""
    divisor = _operand(call, "other")
    if call.arguments.get("rounding_mode") is not None:
        raise UnsupportedModuleError("a division that rounds is not a contraction")
    if isinstance(divisor, Value):
        raise UnsupportedModuleError("a division by a tensor is not a contraction")
    if divisor == 0.0:
        raise UnsupportedModuleError("a division by zero has no value")
    return scaled(call.value("input"), 1.0 / divisor)


def read_power(call: Call) -> Value:
    """Read a whole power, as a product of a value with itself."""
    exponent = call.arguments.get("exponent")
    count = int(exponent) if isinstance(exponent, int | float) else 0
    if count != exponent or not 1 <= count <= MAX_POWER:
        raise UnsupportedModuleError(
            f"the power {exponent!r} is not a product; it must be an integer from 1 to {MAX_POWER}"
        )
    value = call.value("input")
    return call.notebook.multiply(call.name, (value,) * count)


def read_square(call: Call) -> Value:
    """Read a square, as a product of a value with itself."""
    return call.notebook.multiply(call.name, (call.value("input"),) * 2)


def read_matrix_product(call: Call) -> Value:
    """Read a @ b; axes before the last two are broadcast."""
    first, second = call.value("input"), call.value("other")
    if not first.axes or not second.axes:
        raise SizeError(f"{call.name}: a matrix product needs axes on both sides.")
    order = max(len(first.axes), len(second.axes))

    def letters(value: Value, last: Letters) -> Letters:
        count = len(value.axes) - len(last)
        return (*(str(n) for n in range(order - 2 - count, order - 2)), *last)

    left = letters(first, ("row", "sum") if len(first.axes) > 1 else ("sum",))
    right = letters(second, ("sum", "column") if len(second.axes) > 1 else ("sum",))
    batch = max(left[:-2], right[:-2], key=len)
    output = (*batch, *(x for x in (*left[-2:], *right[-2:]) if x in ("row", "column")))
    names = _names((first, second))
    operands = (Operand(names[0], first, left), Operand(names[1], second, right))
    return call.notebook.compute(call.name, Draft(operands, output, broadcast=batch))


def _names(values: Sequence[Value]) -> list[str]:
    names: list[str] = []
    for value in values:
        names.append(unused("X" if value.role is Role.DATA else "P", names))
    return names


def read_einsum(call: Call) -> Value:
    """Read an einsum of values."""
    equation, *given = call.arguments["operands"]
    if not isinstance(equation, str):
        raise UnsupportedModuleError("an einsum is read only when it is written as a string")
    if len(given) == 1 and isinstance(given[0], list | tuple):
        given = list(given[0])
    values = [_einsum_value(call, tensor) for tensor in given]
    inputs, output = _einsum_letters(call, equation, values)
    operands = tuple(
        Operand(name, value, letters)
        for name, value, letters in zip(_names(values), values, inputs, strict=True)
    )
    letters = tuple(letter for own in inputs for letter in own)
    return call.notebook.compute(call.name, Draft(operands, output, broadcast=letters))


def _einsum_value(call: Call, tensor: Any) -> Value:
    return replace(call, arguments={"operand": tensor}).value("operand")


def _einsum_letters(
    call: Call, equation: str, values: Sequence[Value]
) -> tuple[list[Letters], Letters]:
    """The letters of each operand and of the output; "..." stands for numbered axes."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    texts = left.split(",")
    if len(texts) != len(values):
        raise SizeError(
            f"{call.name}: the einsum {equation!r} has {len(texts)} operands, got {len(values)}."
        )
    inputs = [_expand(call, text, len(v.axes)) for text, v in zip(texts, values, strict=True)]
    dots = max((tuple(x for x in ls if x.isdigit()) for ls in inputs), key=len)
    if arrow:
        before, ellipsis, after = right.partition("...")
        return inputs, (*before, *(dots if ellipsis else ()), *after)
    flat = [letter for letters in inputs for letter in letters if not letter.isdigit()]
    once = [x for x in sorted(set(flat), key=string.ascii_letters.index) if flat.count(x) == 1]
    return inputs, (*dots, *once)


def _expand(call: Call, text: str, order: int) -> Letters:
    before, ellipsis, after = text.partition("...")
    count = order - len(before) - len(after)
    if count < 0 or (count and not ellipsis):
        raise SizeError(f"{call.name}: the einsum term {text!r} does not fit {order} axes.")
    # Numbered from the back, so that terms with fewer axes are broadcast.
    return (*before, *(str(n) for n in reversed(range(count))), *after)


def read_mean(call: Call) -> Value:
    """Read a mean over some axes: a sum against a constant."""
    value, axes = call.value("input"), _axes(call)
    weight = 1.0 / math.prod(value.shape[axis] for axis in axes)
    return _reduced(call, value, axes, weight)


def read_sum(call: Call) -> Value:
    """Read a sum over some axes: a sum against ones."""
    return _reduced(call, call.value("input"), _axes(call), 1.0)


def _axes(call: Call) -> tuple[int, ...]:
    value, given = call.value("input"), call.arguments.get("dim")
    if call.arguments.get("dtype") is not None:
        raise UnsupportedModuleError("its argument 'dtype' is not supported")
    if given is None:
        return tuple(range(len(value.axes)))
    chosen = (given,) if isinstance(given, int) else tuple(given)
    return tuple(value.position(axis) for axis in chosen)


def _reduced(call: Call, value: Value, axes: tuple[int, ...], weight: float) -> Value:
    # The constant holds the summed legs outside any barrier that the value is drawn with.
    letters = axis_letters(value)
    pieces = tuple(piece for axis in axes for piece in _one_piece(value, axis))
    shape = tuple((piece,) for piece in pieces)
    constant = Value("constant", pieces, shape, Role.CONSTANT, fill=weight)
    held = tuple(letters[axis] for axis in axes)
    operands = (
        Operand("X", value, letters),
        Operand("average", constant, held, fraction_label(weight)),
    )
    kept = tuple(letter for axis, letter in enumerate(letters) if axis not in axes)
    found = call.notebook.compute(call.name, Draft(operands, kept))
    if not call.arguments.get("keepdim"):
        return found
    kept_shape = [1 if axis in axes else size for axis, size in enumerate(value.shape)]
    return call.notebook.reshape(call.inner("copy"), found, kept_shape)


def _one_piece(value: Value, axis: int) -> tuple[Piece]:
    pieces = value.axes[axis]
    sort = pieces[0].sort if pieces else value.stored[0].sort
    return (Piece(size_of(pieces), sort),)
