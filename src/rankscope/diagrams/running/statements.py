"""Operations of a schedule as Python expressions."""

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import singledispatch

from rankscope.diagrams.network import Word
from rankscope.diagrams.parts import Convolution
from rankscope.diagrams.running import operations
from rankscope.diagrams.running.expressions import Expression, literal, number, word, written
from rankscope.diagrams.running.operations import Argument, Indices, Shape, Source
from rankscope.diagrams.sizes import letters
from rankscope.errors import SizeError

MAX_LETTERS = 52
# The shape of an input whose rows are read: whoever calls may give more rows, or more axes.
UNKNOWN: Shape = (-1,)
PAD_MODES = {
    "zeros": "constant",
    "circular": "circular",
    "reflect": "reflect",
    "replicate": "replicate",
}


@singledispatch
def expression(operation: operations.Operation, operands: tuple[Expression, ...]) -> Expression:
    """The code that carries out an operation on its sources."""
    raise NotImplementedError(type(operation).__name__)


@expression.register
def _(operation: operations.Read, operands: tuple[Expression, ...]) -> Expression:
    (array,) = operands
    if operation.rows is None:
        return array.reshaped(operation.shape)
    start, stop = operation.rows
    width = math.prod(operation.shape) // (stop - start)
    whole = array.whole
    if whole.shape == UNKNOWN or not whole.shape or math.prod(whole.shape[1:]) != width:
        whole = Expression(f"{whole.atom}.reshape(-1, {width})", (-1, width))
    shape = (stop - start, *whole.shape[1:])
    return Expression(f"{whole.atom}[{int(start)}:{int(stop)}]", shape).reshaped(operation.shape)


@expression.register
def _(operation: operations.Fill, operands: tuple[Expression, ...]) -> Expression:
    like = operands[0].code if operands else "self._like"
    value = str(int(operation.value)) if operation.is_integer else number(operation.value)
    return Expression(f"constant({value}, {like})", operation.shape, ())


@expression.register
def _(operation: operations.Multiply, operands: tuple[Expression, ...]) -> Expression:
    inputs, output = operation.inputs, operation.output
    sizes = sizes_of(inputs, operands)
    if len(inputs) == 1:
        return arranged(operands[0], inputs[0], single(output), sizes)
    if not operation.has_bias and is_elementwise(inputs, output):
        first, second = (
            broadcast(operand, indices, output, sizes)
            for operand, indices in zip(operands, inputs, strict=True)
        )
        return joined(first, " * ", second, operation.shape)
    operands = tuple(operand.whole for operand in operands)
    if operation.has_bias:
        return _linear(operation, operands, sizes)
    return (
        _matrix_product(operation, operands, sizes)
        or _tensor_product(operation, operands, sizes)
        or _einsum(operation, operands, sizes)
    )


@expression.register
def _(operation: operations.Spread, operands: tuple[Expression, ...]) -> Expression:
    (indices,) = operation.inputs
    held = broadcast(operands[0], indices, operation.output, sizes_of(operation.inputs, operands))
    held = replace(held, shape=operation.shape, held=held.actual)
    if operation.factor == 1.0:
        return held
    code = f"{held.atom} * {number(operation.factor)}"
    return replace(held, code=code, is_atom=False, origin=None)


@expression.register
def _(operation: operations.Convolve, operands: tuple[Expression, ...]) -> Expression:
    operands = tuple(operand.whole for operand in operands)
    sizes = sizes_of(operation.inputs, operands)
    parts = operation.convolutions
    sizes |= {
        part.output: part.output_size(sizes[part.input], sizes[part.kernel]) for part in parts
    }
    batch, groups, made, channels = convolution_axes(operation)
    space, kernel = [part.input for part in parts], [part.kernel for part in parts]
    image = arranged(
        operands[0], operation.inputs[0], (batch, (*groups, *channels), *single(space)), sizes
    )
    weight = arranged(
        operands[1], operation.inputs[1], ((*groups, *made), channels, *single(kernel)), sizes
    )
    given, padding = _padded(image.code, parts, sizes)
    options = [
        f"{name}={literal(values)}"
        for name, values, usual in (
            ("stride", tuple(part.stride for part in parts), 1),
            ("padding", padding, 0),
            ("dilation", tuple(part.dilation for part in parts), 1),
        )
        if any(value != usual for value in values)
    ]
    num_groups = math.prod(sizes[index] for index in groups)
    if num_groups != 1:
        options.append(f"groups={num_groups}")
    bias = [each.reshaped((math.prod(each.shape),)).code for each in operands[2:]]
    arguments = ", ".join((given, weight.code, *bias, *options))
    natural = (*batch, *groups, *made, *(part.output for part in parts))
    merged = ((*batch,), (*groups, *made), *single([part.output for part in parts]))
    shape = tuple(math.prod(sizes[index] for index in group) for group in merged)
    value = Expression(f"F.conv{len(parts)}d({arguments})", shape)
    # An output that nobody needs is summed at once.
    value = value.reshaped(tuple(sizes[index] for index in natural))
    return arranged(value, natural, single(operation.output), sizes)


@expression.register
def _(operation: operations.Pick, operands: tuple[Expression, ...]) -> Expression:
    chosen, held = operation.inputs
    operands = tuple(operand.whole for operand in operands)
    sizes = sizes_of(operation.inputs, operands)
    own = without_repeats(chosen, chosen)
    table = without_repeats(held, held)
    shared = tuple(index for index in own if index in table)
    own = tuple(index for index in own if index not in shared)
    rest = tuple(index for index in table if index not in (*shared, operation.along))
    natural = (*shared, *own, *rest)
    shape = tuple(sizes[index] for index in natural)
    if shared:
        rows = arranged(operands[1], held, (shared, (operation.along,), rest), sizes)
        places = arranged(operands[0], chosen, (shared, own), sizes)
        width = (*places.shape, rows.shape[2])
        wide = f"{places.atom}.long().unsqueeze(2).expand{written(width)}"
        value = Expression(f"torch.gather({rows.code}, 1, {wide})", width)
    else:
        rows = arranged(operands[1], held, ((operation.along,), rest), sizes)
        places = arranged(operands[0], chosen, single(own), sizes)
        value = Expression(
            f"F.embedding({places.code}, {rows.code})", (*places.shape, rows.shape[1])
        )
    return arranged(value.reshaped(shape), natural, single(operation.output), sizes)


@expression.register
def _(operation: operations.Select, operands: tuple[Expression, ...]) -> Expression:
    (indices,) = operation.inputs
    place = indices.index(operation.along)
    whole = operands[0].whole
    code = f"{whole.atom}.select({place}, {int(operation.entry)})"
    left = (*indices[:place], *indices[place + 1 :])
    value = Expression(code, (*whole.shape[:place], *whole.shape[place + 1 :]))
    held = broadcast(value, left, operation.output, sizes_of((left,), (value,)))
    return replace(held, shape=operation.shape, held=held.actual)


@expression.register
def _(operation: operations.Scale, operands: tuple[Expression, ...]) -> Expression:
    (value,) = operands
    code = f"{value.atom} * {number(operation.factor)}"
    return replace(value, code=code, is_atom=False, origin=None)


@expression.register
def _(operation: operations.Mask, operands: tuple[Expression, ...]) -> Expression:
    code = f"causal_mask({operands[0].whole.code}, {operation.query}, {operation.key})"
    return Expression(code, operation.shape)


@expression.register
def _(operation: operations.Apply, operands: tuple[Expression, ...]) -> Expression:
    value, *scales = (operand.whole.code for operand in operands)
    function, over, shape = operation.function, operation.over, operation.shape
    options = {key: literal(function.option(key)) for key, _ in function.recipe.options}
    source = function.recipe.source
    if function.name in ("softmax", "log_softmax") and over == _run(over):
        merged = (*shape[: over[0]], math.prod(shape[place] for place in over))
        flat = operands[0].whole.reshaped((*merged, *shape[over[-1] + 1 :]))
        made = f"torch.{function.name}({flat.code}, {over[0]})"
        return Expression(made, flat.shape).reshaped(shape)
    if function.name in ("layer_norm", "rms_norm") and over == last_positions(operation):
        sizes = literal(tuple(shape[place] for place in over))
        given = "".join(f", {scale}" for scale in scales)
        source = f"F.{function.name}(value, {sizes}{given}, eps={options['eps']})"
    elif operation.in_place and operands[0].actual == operands[0].shape:
        source = f"{source.removesuffix(')')}, inplace=True)"
    code = re.sub(r"\bvalue\b", lambda _: value, source.format(over=literal(over), **options))
    return Expression(code, shape)


@expression.register
def _(operation: operations.Add, operands: tuple[Expression, ...]) -> Expression:
    total: Expression | None = None
    for coefficient, operand in zip(operation.coefficients, operands, strict=True):
        term = operand if coefficient in (1.0, -1.0) else _scaled(operand, coefficient)
        if total is None:
            total = _scaled(operand, -1.0) if coefficient == -1.0 else term
        else:
            sign = " - " if coefficient == -1.0 else " + "
            total = joined(total, sign, term, operation.shape)
    assert total is not None, "a sum has terms"
    return total


@expression.register
def _(operation: operations.Attend, operands: tuple[Expression, ...]) -> Expression:
    given = ", ".join(operand.whole.code for operand in operands)
    causal = ", is_causal=True" if operation.is_causal else ""
    code = f"F.scaled_dot_product_attention({given}{causal}, scale={number(operation.scale)})"
    return Expression(code, operation.shape)


@expression.register
def _(operation: operations.Normalize, operands: tuple[Expression, ...]) -> Expression:
    shape, first = operation.shape, operation.positions[0]
    size = math.prod(shape[place] for place in operation.positions)
    after = shape[first + len(operation.positions) :]
    value = operands[0].whole.reshaped((math.prod(shape[:first]), size, *after))
    mean, variance, *rest = (operand.whole.reshaped((size,)).code for operand in operands[1:])
    names = ["weight"] * operation.has_scale + ["bias"] * operation.has_shift
    given = [value.code, mean, variance]
    given += [f"{name}={code}" for name, code in zip(names, rest, strict=True)]
    code = f"F.batch_norm({', '.join(given)}, eps={number(operation.eps)})"
    return Expression(code, value.shape).reshaped(shape)


@expression.register
def _(operation: operations.Invoke, operands: tuple[Expression, ...]) -> Expression:
    def written_out(value: Argument) -> str:
        match value:
            case Source(place=place):
                code = operands[place].whole.code
            case Word(kind="device", text=text):
                code = f"torch.device({literal(text)})"
            case Word(text=text):
                code = f"torch.{word(text)}"
            case tuple():
                code = f"[{', '.join(written_out(each) for each in value)}]"
            case _:
                code = literal(value)
        return code

    given = ", ".join(f"{name}={written_out(value)}" for name, value in operation.arguments)
    return Expression(f"{operation.function}({given})", operation.shape)


@expression.register
def _(operation: operations.Item, operands: tuple[Expression, ...]) -> Expression:
    return Expression(f"{operands[0].atom}[{int(operation.place)}]", operation.shape)


def sizes_of(inputs: tuple[Indices, ...], operands: tuple[Expression, ...]) -> dict[str, int]:
    """Sizes of the indices of some operands."""
    return {
        index: size
        for indices, operand in zip(inputs, operands, strict=False)
        for index, size in zip(indices, operand.shape, strict=True)
    }


def single(indices: Sequence[str]) -> tuple[Indices, ...]:
    """Each index as a group of its own."""
    return tuple((index,) for index in indices)


def without_repeats(indices: Indices, keep: Collection[str]) -> Indices:
    """The indices left, in order, after `arranged` has taken diagonals and sums."""
    _, left = _diagonals(indices)
    return tuple(index for index in left if index in keep)


def arranged(
    value: Expression, indices: Indices, groups: Sequence[Indices], sizes: Mapping[str, int]
) -> Expression:
    """A tensor with one axis per group of indices.

    Repeated indices become diagonals, and indices in no group are summed.

    Example:
        >>> value = Expression("x", (2, 3, 4))
        >>> arranged(value, ("i", "j", "k"), (("k", "i"), ()), {"i": 2, "j": 3, "k": 4}).code
        'x.sum((1,)).mT.reshape(8, 1)'
    """
    wanted = tuple(index for group in groups for index in group)
    diagonals, left = _diagonals(indices)
    sums = tuple(place for place, index in enumerate(left) if index not in wanted)
    kept = tuple(index for index in left if index in wanted)
    if diagonals or sums:
        code = value.whole.atom
        for first, second in diagonals:
            code += f".diagonal(dim1={first}, dim2={second})"
        code += f".sum({literal(sums)})" if sums else ""
        value = Expression(code, tuple(sizes[index] for index in kept))
    if kept != wanted:
        value = value.permuted(tuple(kept.index(index) for index in wanted))
    shape = tuple(math.prod(sizes[index] for index in group) for group in groups)
    return value if value.shape == shape else value.reshaped(shape)


def broadcast(
    value: Expression, indices: Indices, output: Indices, sizes: Mapping[str, int]
) -> Expression:
    """A tensor in the order of the output, with axes of size one where it has no index.

    Axes of size one before its first index are left out.
    """
    held = [index for index in output if index in indices]
    first = output.index(held[0]) if held else len(output)
    groups = [(index,) if index in indices else () for index in output[first:]]
    return arranged(value, indices, groups, sizes)


def joined(first: Expression, sign: str, second: Expression, shape: Shape) -> Expression:
    """Two operands of a product or a sum, broadcast to each other."""
    shapes = (first.actual, second.actual)
    order = max(map(len, shapes))
    padded = [(1,) * (order - len(each)) + each for each in shapes]
    held = tuple(max(sizes) for sizes in zip(*padded, strict=True))
    left = first.atom if sign == " * " else first.code
    right = second.code if sign == " + " else second.atom
    return Expression(f"{left}{sign}{right}", shape, None if held == shape else held, is_atom=False)


def is_elementwise(inputs: tuple[Indices, ...], output: Indices) -> bool:
    """Whether two operands have no common sum."""
    if len(inputs) != 2:
        return False
    return all(index in output for index in inputs[0] if index in inputs[1])


def convolution_axes(operation: operations.Convolve) -> tuple[Indices, Indices, Indices, Indices]:
    """Batch, groups, what the kernel brings, and channels.

    What both operands hold is groups if the output has it, else channels.
    """
    inputs, output = operation.inputs, operation.output
    space = {leg for part in operation.convolutions for leg in (part.input, part.kernel)}
    value = without_repeats(inputs[0], {*output, *inputs[1]} - space)
    weight = without_repeats(inputs[1], {*output, *inputs[0]} - space)
    shared = tuple(index for index in value if index in weight)
    groups = tuple(index for index in shared if index in output)
    channels = tuple(index for index in shared if index not in output)
    batch = tuple(index for index in value if index not in shared)
    made = tuple(index for index in weight if index not in shared)
    return batch, groups, made, channels


def _run(positions: Shape) -> Shape:
    """As many positions, one after another from the first."""
    return tuple(range(positions[0], positions[0] + len(positions)))


def last_positions(operation: operations.Apply) -> Shape:
    """As many positions as the function normalizes, at the end."""
    order = len(operation.shape)
    return tuple(range(order - len(operation.over), order))


def linear_axes(
    value: Indices, weight: Indices, output: Indices
) -> tuple[Indices, Indices, Indices] | None:
    """What a linear map keeps, sums and makes; None if the weight is no matrix in its own order."""
    summed = tuple(index for index in weight if index in value)
    made = tuple(index for index in weight if index not in value)
    kept = tuple(index for index in output if index in value)
    is_plain = (
        len({*value}) == len(value) == len(summed) + len(kept)
        and len({*weight}) == len(weight)
        and summed
        and not {*summed} & {*output}
        and {*output} == {*kept, *made}
    )
    is_matrix = weight in ((*made, *summed), (*summed, *made))
    return (kept, summed, made) if is_plain and is_matrix else None


def _linear(
    operation: operations.Multiply, operands: tuple[Expression, ...], sizes: Mapping[str, int]
) -> Expression:
    """A product with a weight, and a bias."""
    value, weight = operation.inputs
    axes = linear_axes(value, weight, operation.output)
    assert axes is not None, "only linear maps get a bias"
    kept, summed, made = axes
    given = arranged(operands[0], value, (*single(kept), summed), sizes)
    rows, columns = (made, summed) if weight == (*made, *summed) else (summed, made)
    matrix = arranged(operands[1], weight, (rows, columns), sizes)
    turned = matrix if rows == made else matrix.permuted((1, 0))
    size = math.prod(sizes[index] for index in made)
    bias = operands[2].reshaped((size,))
    value_shape = (*(sizes[index] for index in kept), size)
    made_value = Expression(f"F.linear({given.code}, {turned.code}, {bias.code})", value_shape)
    natural = (*kept, *made)
    shaped = made_value.reshaped(tuple(sizes[index] for index in natural))
    return arranged(shaped, natural, single(operation.output), sizes)


def _matrix_product(
    operation: operations.Multiply, operands: tuple[Expression, ...], sizes: Mapping[str, int]
) -> Expression | None:
    """A product that PyTorch's matrix product gives without moving any axis, if it is one."""
    for first, second in ((0, 1), (1, 0)):
        value, weight = operation.inputs[first], operation.inputs[second]
        axes = linear_axes(value, weight, operation.output)
        if axes is None:
            continue
        kept, summed, made = axes
        if value != (*kept, *summed) or operation.output != (*kept, *made):
            continue
        left = arranged(operands[first], value, (*single(kept), summed), sizes)
        ends = (made,) if made else ()
        shape = tuple(
            math.prod(sizes[index] for index in group) for group in (*single(kept), *ends)
        )
        if weight == (*summed, *made):
            right = arranged(operands[second], weight, (summed, *ends), sizes)
            code, is_atom = f"{left.atom} @ {right.atom}", False
        else:
            right = arranged(operands[second], weight, (*ends, summed), sizes)
            code, is_atom = f"F.linear({left.code}, {right.code})", True
        return Expression(code, shape, is_atom=is_atom).reshaped(operation.shape)
    return None


def _tensor_product(
    operation: operations.Multiply, operands: tuple[Expression, ...], sizes: Mapping[str, int]
) -> Expression | None:
    """A sum over several indices at once: einsum would copy the larger operand in any order."""
    first, second = operation.inputs
    summed = [index for index in first if index in second]
    kept = [index for index in (*first, *second) if index not in summed]
    is_plain = len({*first}) == len(first) and len({*second}) == len(second)
    if not is_plain or len(summed) < 2 or sorted(kept) != sorted(operation.output):
        return None
    # A matrix product is quickest when the larger operand is not transposed: it should be on the
    # left if its last index is summed, else on the right.
    is_second_larger = math.prod(operands[1].shape) > math.prod(operands[0].shape)
    larger = second if is_second_larger else first
    order = (1, 0) if is_second_larger != (larger[-1] not in summed) else (0, 1)
    left, right = (operation.inputs[place] for place in order)
    ordered = [index for index in larger if index in summed]
    places = tuple(tuple(one.index(index) for index in ordered) for one in (left, right))
    given = ", ".join(operands[place].code for place in order)
    natural = tuple(index for index in (*left, *right) if index not in summed)
    shape = tuple(sizes[index] for index in natural)
    value = Expression(f"torch.tensordot({given}, {literal(places)})", shape)
    return arranged(value, natural, single(operation.output), sizes)


def _einsum(
    operation: operations.Multiply, operands: tuple[Expression, ...], sizes: Mapping[str, int]
) -> Expression:
    """Any product, by letters."""
    inputs, output = operation.inputs, operation.output
    chosen = letters(index for indices in (*inputs, output) for index in indices)
    if len(chosen) > MAX_LETTERS:
        return _merged_product(operation, operands, sizes)
    words = ["".join(chosen[index] for index in indices) for indices in inputs]
    equation = f"{','.join(words)}->{''.join(chosen[index] for index in output)}"
    given = ", ".join(operand.code for operand in operands)
    return Expression(f'torch.einsum("{equation}", {given})', operation.shape)


def _merged_product(
    operation: operations.Multiply, operands: tuple[Expression, ...], sizes: Mapping[str, int]
) -> Expression:
    """A product with more indices than einsum has letters: as one product of matrices."""
    inputs, output = operation.inputs, operation.output
    left = without_repeats(inputs[0], (*output, *inputs[1]))
    right = without_repeats(inputs[1], (*output, *inputs[0]))
    shared = tuple(index for index in left if index in right)
    summed = tuple(index for index in shared if index not in output)
    batch = tuple(index for index in output if index in shared)
    rows = tuple(index for index in left if index not in shared)
    columns = tuple(index for index in right if index not in shared)
    first = arranged(operands[0], inputs[0], (batch, rows, summed), sizes)
    second = arranged(operands[1], inputs[1], (batch, summed, columns), sizes)
    shape = (*first.shape[:2], second.shape[2])
    value = Expression(f"{first.atom} @ {second.atom}", shape, is_atom=False)
    natural = (*batch, *rows, *columns)
    shaped = value.reshaped(tuple(sizes[index] for index in natural))
    return arranged(shaped, natural, single(output), sizes)


def _diagonals(indices: Indices) -> tuple[tuple[tuple[int, int], ...], Indices]:
    left, diagonals = list(indices), []
    for index in dict.fromkeys(indices):
        while left.count(index) > 1:
            first = left.index(index)
            second = left.index(index, first + 1)
            diagonals.append((first, second))
            left = [*left[:first], *left[first + 1 : second], *left[second + 1 :], index]
    return tuple(diagonals), tuple(left)


def _scaled(value: Expression, coefficient: float) -> Expression:
    code = f"{number(coefficient)} * {value.atom}"
    return replace(value, code=code, is_atom=False, origin=None)


def _padded(
    code: str, parts: tuple[Convolution, ...], sizes: Mapping[str, int]
) -> tuple[str, Shape]:
    """The image with what F.pad has to add, and what the convolution pads by itself."""
    for part in parts:
        _check_padding(part, sizes[part.input])
    if all(
        part.padding_mode == "zeros" and part.padding[0] == part.padding[1] >= 0 for part in parts
    ):
        return code, tuple(part.padding[0] for part in parts)
    for place, part in enumerate(parts):
        # F.pad counts the last axis first.
        amounts = (0, 0) * (len(parts) - 1 - place) + part.padding + (0, 0) * place
        if part.padding != (0, 0):
            code = f'F.pad({code}, {literal(amounts)}, mode="{PAD_MODES[part.padding_mode]}")'
    return code, (0,) * len(parts)


def _check_padding(part: Convolution, size: int) -> None:
    furthest = {"circular": size, "reflect": size - 1}.get(part.padding_mode)
    is_negative = min(part.padding) < 0 and part.padding_mode != "zeros"
    if is_negative or (furthest is not None and max(part.padding) > furthest):
        limit = "" if furthest is None else f" to {furthest}"
        raise SizeError(
            f"Convolution {part.name!r}: {part.padding_mode} padding of an input of "
            f"size {size} must be from 0{limit}, got {part.padding}."
        )
