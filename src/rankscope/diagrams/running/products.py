"""Products that have been lowered, carried out in PyTorch."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from rankscope.diagrams.running import lowering
from rankscope.diagrams.running.axes import Reduce, Shape

CONVOLVE = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}


def reduced(value: Tensor, reduce: Reduce) -> Tensor:
    """Diagonals, sums, order and shape, in this order."""
    for first, second in reduce.diagonals:
        value = value.diagonal(dim1=first, dim2=second)
    if reduce.sums:
        value = value.sum(reduce.sums)
    if reduce.permutation is not None:
        value = value.permute(reduce.permutation)
    return value if reduce.shape is None else value.reshape(reduce.shape)


@dataclass(frozen=True)
class Reducing:
    """One operand."""

    reduce: Reduce | None

    def __call__(self, value: Tensor) -> Tensor:
        return value if self.reduce is None else reduced(value, self.reduce)


@dataclass(frozen=True)
class Multiplying:
    """Two operands without a common sum."""

    lowered: lowering.Elementwise

    def __call__(self, left: Tensor, right: Tensor) -> Tensor:
        if self.lowered.left is not None:
            left = reduced(left, self.lowered.left)
        if self.lowered.right is not None:
            right = reduced(right, self.lowered.right)
        return left * right


@dataclass(frozen=True)
class MatrixMultiplying:
    """Two operands with a common sum."""

    lowered: lowering.MatrixProduct

    def __call__(self, left: Tensor, right: Tensor) -> Tensor:
        lowered = self.lowered
        if lowered.is_swapped:
            left, right = right, left
        left, right = _matrix(left, lowered.left), _matrix(right, lowered.right)
        value = torch.bmm(left, right) if lowered.is_batched else torch.mm(left, right)
        if lowered.shape is not None:
            value = value.view(lowered.shape)
        return value if lowered.permutation is None else value.permute(lowered.permutation)


def _matrix(value: Tensor, factor: lowering.Factor) -> Tensor:
    if factor.reduce is not None:
        value = reduced(value, factor.reduce)
    return value.mT if factor.is_transposed else value


@dataclass(frozen=True)
class Spreading:
    """An operand times a constant tensor; copies along new indices take no memory."""

    reduce: Reduce | None
    factor: float
    shape: Shape

    def __call__(self, value: Tensor) -> Tensor:
        if self.reduce is not None:
            value = reduced(value, self.reduce)
        if self.factor != 1.0:
            value = value * self.factor
        return value.expand(self.shape)


@dataclass(frozen=True)
class Convolving:
    """An operand with inputs, and one with kernels."""

    lowered: lowering.ConvolutionProduct

    def __call__(self, value: Tensor, weight: Tensor) -> Tensor:
        lowered = self.lowered
        if lowered.input is not None:
            value = reduced(value, lowered.input)
        if lowered.kernel is not None:
            weight = reduced(weight, lowered.kernel)
        for padded in lowered.paddings:
            value = F.pad(value, padded.amounts, mode=padded.mode)
        value = CONVOLVE[len(lowered.stride)](
            value, weight, None, lowered.stride, lowered.padding, lowered.dilation, lowered.groups
        )
        value = value.reshape(lowered.shape)
        return value if lowered.result is None else reduced(value, lowered.result)


@dataclass(frozen=True)
class Picking:
    """Integers that choose from a table; PyTorch refuses those that are not in range."""

    lowered: lowering.Picking

    def __call__(self, integers: Tensor, table: Tensor) -> Tensor:
        lowered = self.lowered
        if lowered.integers is not None:
            integers = reduced(integers, lowered.integers)
        if lowered.table is not None:
            table = reduced(table, lowered.table)
        if lowered.has_shared:
            wanted = integers.long().unsqueeze(2).expand(-1, -1, table.shape[2])
            value = torch.gather(table, 1, wanted)
        else:
            value = torch.index_select(table, 0, integers)
        value = value.reshape(lowered.shape)
        return value if lowered.permutation is None else value.permute(lowered.permutation)
