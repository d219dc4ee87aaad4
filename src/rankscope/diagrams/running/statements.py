"""Operations of a schedule as Python statements."""

import math
import re
from dataclasses import dataclass
from functools import singledispatch
from typing import Any

from rankscope.diagrams.letters import letters
from rankscope.diagrams.network import Word
from rankscope.diagrams.running import schedule
from rankscope.diagrams.running.axes import Indices, Reduce, Shape
from rankscope.diagrams.running.lowering import lower_broadcast, lower_convolution, lower_pick
from rankscope.errors import EinsumError

MAX_LETTERS = 52


@dataclass(frozen=True)
class Names:
    """What an operation may write: its target, its sources, and their shapes."""

    target: str
    sources: tuple[str, ...]
    shapes: tuple[Shape, ...]

    def assign(self, expression: str) -> str:
        """A line that gives the target its value."""
        return f"{self.target} = {expression}"

    def sizes(self, inputs: tuple[Indices, ...]) -> dict[str, int]:
        """Sizes of the indices of the sources."""
        return {
            index: size
            for indices, shape in zip(inputs, self.shapes, strict=True)
            for index, size in zip(indices, shape, strict=True)
        }


@singledispatch
def statements(operation: schedule.Operation, names: Names) -> tuple[str, ...]:
    """The lines that carry out an operation; the last one assigns the target."""
    raise NotImplementedError(type(operation).__name__)


@statements.register
def _(operation: schedule.Read, names: Names) -> tuple[str, ...]:
    if operation.rows is None:
        return (names.assign(f"{names.sources[0]}.reshape{_shape(operation.shape)}"),)
    start, stop = operation.rows
    width = math.prod(operation.shape) // (stop - start)
    rows = f"{names.sources[0]}.reshape(-1, {width})[{start}:{stop}]"
    return (names.assign(f"{rows}.reshape{_shape(operation.shape)}"),)


@statements.register
def _(operation: schedule.Fill, names: Names) -> tuple[str, ...]:
    options = ""
    if names.sources:
        precision = "" if operation.is_integer else f", dtype={names.sources[0]}.dtype"
        options = f"{precision}, device={names.sources[0]}.device"
    value = str(int(operation.value)) if operation.is_integer else number(operation.value)
    filled = f"torch.full((), {value}{options})"
    return (names.assign(f"{filled}.expand{_shape(operation.shape)}"),)


@statements.register
def _(operation: schedule.Multiply, names: Names) -> tuple[str, ...]:
    equation = einsum_equation(operation.inputs, operation.output)
    return (names.assign(f'torch.einsum("{equation}", {", ".join(names.sources)})'),)


@statements.register
def _(operation: schedule.Spread, names: Names) -> tuple[str, ...]:
    sizes = names.sizes(operation.inputs)
    value = _reduced(
        names.sources[0], lower_broadcast(operation.inputs[0], operation.output, sizes)
    )
    if operation.factor != 1.0:
        value = f"({value} * {number(operation.factor)})"
    return (names.assign(f"{value}.expand{_shape(operation.shape)}"),)


@statements.register
def _(operation: schedule.Convolve, names: Names) -> tuple[str, ...]:
    sizes = names.sizes(operation.inputs)
    lowered = lower_convolution(operation.inputs, operation.output, operation.convolutions, sizes)
    lines = [
        f"image = {_reduced(names.sources[0], lowered.input)}",
        f"kernel = {_reduced(names.sources[1], lowered.kernel)}",
    ]
    lines.extend(
        f'image = F.pad(image, {padded.amounts}, mode="{padded.mode}")'
        for padded in lowered.paddings
    )
    options = "".join(
        f", {key}={value}"
        for key, value, usual in (
            ("stride", lowered.stride, 1),
            ("padding", lowered.padding, 0),
            ("dilation", lowered.dilation, 1),
        )
        if any(each != usual for each in value)
    )
    if lowered.groups != 1:
        options += f", groups={lowered.groups}"
    made = f"F.conv{len(lowered.stride)}d(image, kernel{options}).reshape{_shape(lowered.shape)}"
    lines.append(names.assign(_reduced(made, lowered.result)))
    return tuple(lines)


@statements.register
def _(operation: schedule.Pick, names: Names) -> tuple[str, ...]:
    sizes = names.sizes(operation.inputs)
    lowered = lower_pick(operation.inputs, operation.output, operation.along, sizes)
    integers = _reduced(names.sources[0], lowered.integers)
    table = _reduced(names.sources[1], lowered.table)
    lines = [f"rows = {table}", f"place = {integers}"]
    made = "torch.index_select(rows, 0, place)"
    if lowered.has_shared:
        lines.append("place = place.long().unsqueeze(2).expand(-1, -1, rows.shape[2])")
        made = "torch.gather(rows, 1, place)"
    lines.append(names.assign(_arranged(made, lowered.shape, lowered.permutation)))
    return tuple(lines)


@statements.register
def _(operation: schedule.Scale, names: Names) -> tuple[str, ...]:
    return (names.assign(f"{names.sources[0]} * {number(operation.factor)}"),)


@statements.register
def _(operation: schedule.Mask, names: Names) -> tuple[str, ...]:
    made = f"causal_mask({names.sources[0]}, {operation.query}, {operation.key})"
    return (names.assign(made),)


@statements.register
def _(operation: schedule.Apply, names: Names) -> tuple[str, ...]:
    function = operation.function
    options = {key: literal(function.option(key)) for key, _ in function.recipe.options}
    template = re.sub(r"\bvalue\b", names.sources[0], function.recipe.source)
    return (names.assign(template.format(over=operation.over, **options)),)


@statements.register
def _(operation: schedule.Add, names: Names) -> tuple[str, ...]:
    terms = [
        name if coefficient == 1.0 else f"{number(coefficient)} * {name}"
        for coefficient, name in zip(operation.coefficients, names.sources, strict=True)
    ]
    return (names.assign(" + ".join(terms)),)


@statements.register
def _(operation: schedule.Invoke, names: Names) -> tuple[str, ...]:
    def written(value: Any) -> str:
        if isinstance(value, schedule.Source):
            return names.sources[value.place]
        if isinstance(value, Word):
            is_device = value.kind == "device"
            return f"torch.device({value.text!r})" if is_device else f"torch.{value.text}"
        if isinstance(value, tuple):
            return f"[{', '.join(map(written, value))}]"
        return number(value) if isinstance(value, float) else repr(value)

    given = ", ".join(f"{name}={written(value)}" for name, value in operation.arguments)
    return (names.assign(f"{operation.function}({given})"),)


@statements.register
def _(operation: schedule.Item, names: Names) -> tuple[str, ...]:
    return (names.assign(f"{names.sources[0]}[{operation.place}]"),)


def einsum_equation(inputs: tuple[Indices, ...], output: Indices) -> str:
    """An equation for `torch.einsum`.

    Raises:
        EinsumError: if there are more indices than letters.
    """
    chosen = letters(index for indices in (*inputs, output) for index in indices)
    if len(chosen) > MAX_LETTERS:
        raise EinsumError(
            f"One move of this contraction has {len(chosen)} indices, but torch.einsum takes at "
            f"most {MAX_LETTERS}; use to_module, which needs no letters."
        )
    words = ["".join(chosen[index] for index in indices) for indices in inputs]
    return f"{','.join(words)}->{''.join(chosen[index] for index in output)}"


def number(value: float) -> str:
    """A number as Python reads it back."""
    return repr(float(value)) if math.isfinite(value) else f'float("{value}")'


def literal(value: float | str) -> str:
    """An option as Python reads it back."""
    return repr(value) if isinstance(value, str) else number(value)


def _shape(shape: Shape) -> str:
    return f"({', '.join(map(str, shape))})" if shape else "(())"


def _reduced(name: str, reduce: Reduce | None) -> str:
    if reduce is None:
        return name
    for first, second in reduce.diagonals:
        name += f".diagonal(dim1={first}, dim2={second})"
    if reduce.sums:
        name += f".sum({reduce.sums})"
    if reduce.permutation is not None:
        name += f".permute{_shape(reduce.permutation)}"
    return name if reduce.shape is None else f"{name}.reshape{_shape(reduce.shape)}"


def _arranged(made: str, shape: Shape, permutation: Shape | None) -> str:
    made = f"{made}.reshape{_shape(shape)}"
    return made if permutation is None else f"{made}.permute{_shape(permutation)}"
