"""Multiplications, convolutions and look-ups in the terms PyTorch has, as plain data.

The module runs these and the source writer prints some of them, so both do the same.
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from rankscope.diagrams.parts import Convolution
from rankscope.diagrams.running.axes import (
    Indices,
    Reduce,
    Shape,
    grouped,
    shape_of,
    single,
    without_repeats,
)
from rankscope.errors import SizeError

PAD_MODES = {
    "zeros": "constant",
    "circular": "circular",
    "reflect": "reflect",
    "replicate": "replicate",
}


@dataclass(frozen=True)
class Elementwise:
    """Two operands without a common sum: multiply with broadcasting."""

    left: Reduce | None
    right: Reduce | None


@dataclass(frozen=True)
class Factor:
    """One side of a matrix product: how to make it a matrix, which may then be transposed."""

    reduce: Reduce | None
    is_transposed: bool


@dataclass(frozen=True)
class MatrixProduct:
    """Two operands with a common sum: one matrix product, batched along what both keep.

    `is_swapped` when the second operand is the left factor.
    """

    left: Factor
    right: Factor
    is_batched: bool
    is_swapped: bool
    shape: Shape | None
    permutation: Shape | None


@dataclass(frozen=True)
class Padded:
    """Amounts in F.pad's order (last axis first), in one of its modes."""

    amounts: Shape
    mode: str


@dataclass(frozen=True)
class ConvolutionProduct:
    """Input as (batch, groups x channels, space…), kernel as (groups x made, channels, kernel…)."""

    input: Reduce | None
    kernel: Reduce | None
    paddings: tuple[Padded, ...]
    stride: Shape
    padding: Shape
    dilation: Shape
    groups: int
    shape: Shape
    result: Reduce | None


@dataclass(frozen=True)
class Picking:
    """Integers as (shared, own), table as (shared, choices, rest), result (shared, own, rest)."""

    integers: Reduce | None
    table: Reduce | None
    has_shared: bool
    shape: Shape
    permutation: Shape | None


def lower_broadcast(indices: Indices, output: Indices, sizes: Mapping[str, int]) -> Reduce | None:
    """An operand in the order of the output, with axes of size one where it has no index."""
    return grouped(indices, [(index,) if index in indices else () for index in output], sizes)


def lower_product(
    inputs: tuple[Indices, ...], output: Indices, sizes: Mapping[str, int]
) -> Elementwise | MatrixProduct:
    """The product of two operands, summed over everything that is not in `output`."""
    left = without_repeats(inputs[0], (*output, *inputs[1]))
    right = without_repeats(inputs[1], (*output, *inputs[0]))
    shared = tuple(index for index in left if index in right)
    summed = tuple(index for index in shared if index not in output)
    if not summed:
        return Elementwise(
            lower_broadcast(inputs[0], output, sizes), lower_broadcast(inputs[1], output, sizes)
        )
    is_swapped = is_product_swapped(inputs, output, sizes)
    if is_swapped:
        inputs, left, right = inputs[::-1], right, left
    # The larger operand keeps its order, so that it is the smaller one that may be copied.
    if math.prod(shape_of(right, sizes)) > math.prod(shape_of(left, sizes)):
        summed = tuple(index for index in right if index in summed)
    else:
        summed = tuple(index for index in left if index in summed)
    batch = tuple(index for index in output if index in shared)
    rows = tuple(index for index in left if index not in shared)
    columns = tuple(index for index in right if index not in shared)
    natural = (*batch, *rows, *columns)
    is_flat = len(batch) <= 1 and len(rows) == len(columns) == 1
    return MatrixProduct(
        _factor(inputs[0], (batch, rows, summed), sizes),
        _factor(inputs[1], (batch, summed, columns), sizes),
        bool(batch),
        is_swapped,
        None if is_flat else shape_of(natural, sizes),
        _permutation(natural, output),
    )


def is_product_swapped(
    inputs: tuple[Indices, ...], output: Collection[str], sizes: Mapping[str, int]
) -> bool:
    """Whether the second operand makes the better left factor.

    A matrix product is quickest when the larger operand is not transposed: it should be on the
    left if its last index is summed, else on the right.
    """
    left = without_repeats(inputs[0], (*output, *inputs[1]))
    right = without_repeats(inputs[1], (*output, *inputs[0]))
    is_second_larger = math.prod(shape_of(right, sizes)) > math.prod(shape_of(left, sizes))
    larger, other = (right, left) if is_second_larger else (left, right)
    is_own_last = bool(larger) and larger[-1] not in other
    return is_second_larger != is_own_last


def _factor(
    indices: Indices, groups: tuple[Indices, Indices, Indices], sizes: Mapping[str, int]
) -> Factor:
    """Bring an operand to a matrix, or to its transpose if that leaves the last axis in place.

    Copies that keep the last axis are several times quicker, and a transpose costs nothing.
    """
    batch, first, second = groups
    is_transposed = bool(indices) and indices[-1] in first
    matrix = (second, first) if is_transposed else (first, second)
    return Factor(grouped(indices, (batch, *matrix) if batch else matrix, sizes), is_transposed)


def lower_convolution(
    inputs: tuple[Indices, ...],
    output: Indices,
    convolutions: tuple[Convolution, ...],
    sizes: Mapping[str, int],
) -> ConvolutionProduct:
    """A product with convolutions: what both hold is groups if it is kept, else channels.

    Raises:
        SizeError: if a padding reaches further than its mode can.
    """
    space = tuple(convolution.input for convolution in convolutions)
    kernel = tuple(convolution.kernel for convolution in convolutions)
    value = without_repeats(inputs[0], (*output, *inputs[1]))
    weight = without_repeats(inputs[1], (*output, *inputs[0]))
    shared = tuple(index for index in value if index in weight)
    groups = tuple(index for index in shared if index in output)
    channels = tuple(index for index in shared if index not in output)
    batch = tuple(index for index in value if index not in shared)
    made = tuple(index for index in weight if index not in shared)
    leaving = {c.output: c.output_size(sizes[c.input], sizes[c.kernel]) for c in convolutions}
    natural = (*batch, *groups, *made, *leaving)
    sizes = {**sizes, **leaving}
    padding, paddings = _paddings(convolutions, sizes)
    return ConvolutionProduct(
        grouped(inputs[0], (batch, (*groups, *channels), *single(space)), sizes),
        grouped(inputs[1], ((*groups, *made), channels, *single(kernel)), sizes),
        paddings,
        tuple(convolution.stride for convolution in convolutions),
        padding,
        tuple(convolution.dilation for convolution in convolutions),
        math.prod(shape_of(groups, sizes)),
        shape_of(natural, sizes),
        # An output that nobody needs is summed at once.
        grouped(natural, single(output), sizes),
    )


def lower_pick(
    inputs: tuple[Indices, ...], output: Indices, along: str, sizes: Mapping[str, int]
) -> Picking:
    """A look-up; `inputs` are the indices of the integers and of the table."""
    held = without_repeats(inputs[0], inputs[0])
    table = without_repeats(inputs[1], inputs[1])
    shared = tuple(index for index in held if index in table)
    own = tuple(index for index in held if index not in shared)
    rest = tuple(index for index in table if index not in (*shared, along))
    outer = (shared,) if shared else ()
    natural = (*shared, *own, *rest)
    return Picking(
        grouped(inputs[0], (*outer, own), sizes),
        grouped(inputs[1], (*outer, (along,), rest), sizes),
        bool(shared),
        shape_of(natural, sizes),
        _permutation(natural, output),
    )


def _permutation(natural: Indices, output: Indices) -> Shape | None:
    return None if natural == output else tuple(natural.index(index) for index in output)


def _paddings(
    convolutions: tuple[Convolution, ...], sizes: Mapping[str, int]
) -> tuple[Shape, tuple[Padded, ...]]:
    """What the convolution pads by itself, and what F.pad has to do before."""
    for convolution in convolutions:
        _check_padding(convolution, sizes[convolution.input])
    if all(c.padding_mode == "zeros" and c.padding[0] == c.padding[1] >= 0 for c in convolutions):
        return tuple(convolution.padding[0] for convolution in convolutions), ()
    found = []
    for place, convolution in enumerate(convolutions):
        later = len(convolutions) - 1 - place
        amounts = (0, 0) * later + convolution.padding + (0, 0) * place
        if convolution.padding != (0, 0):
            found.append(Padded(amounts, PAD_MODES[convolution.padding_mode]))
    return (0,) * len(convolutions), tuple(found)


def _check_padding(convolution: Convolution, size: int) -> None:
    furthest = {"circular": size, "reflect": size - 1}.get(convolution.padding_mode)
    is_negative = min(convolution.padding) < 0 and convolution.padding_mode != "zeros"
    if is_negative or (furthest is not None and max(convolution.padding) > furthest):
        limit = "" if furthest is None else f" to {furthest}"
        raise SizeError(
            f"Convolution {convolution.name!r}: {convolution.padding_mode} padding of an input of "
            f"size {size} must be from 0{limit}, got {convolution.padding}."
        )
