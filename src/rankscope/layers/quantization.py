"""Numbers in 8 or 4 bits: integers and the scales that give them back.

Symmetric, without an offset: code = round(number / scale). In 8 bits one scale serves a row (first
position) of the tensor; in 4 bits, where 15 levels must do, one scale serves 32 neighbours of a
row, and two codes share a byte. 32 because its scale costs one bit for each number in float32 (half
a bit in 16 bits), and a larger group would be as wide as most cores of small layers.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from rankscope.errors import LayerError

BITS = (8, 4)
GROUP_SIZE = 32
_LEVELS = {8: 127, 4: 7}  # the largest code; the smallest is its negative
_OFFSET = 8  # a code of 4 bits is stored as 1 to 15


@dataclass(frozen=True, eq=False)
class Quantized:
    """A tensor in few bits.

    Args:
        codes: int8 of the tensor's shape, or uint8 (rows, bytes of a row) with two codes each.
        scales: (rows,) for 8 bits, (rows, groups) for 4; of the dtype of the tensor.
        shape: of the tensor.
    """

    codes: Tensor
    scales: Tensor
    shape: tuple[int, ...]

    @property
    def bits(self) -> int:
        """Of each code."""
        return 4 if self.codes.dtype == torch.uint8 else 8

    @property
    def num_bytes(self) -> int:
        """Everything that is stored: codes, what fills up the last byte of a row, and scales."""
        return self.codes.numel() + self.scales.numel() * self.scales.element_size()

    def dequantize(self) -> Tensor:
        """The tensor again, each entry at most half a scale from what it was."""
        return dequantize(self.codes, self.scales, self.shape)


def dequantize(codes: Tensor, scales: Tensor, shape: tuple[int, ...]) -> Tensor:
    """The tensor again, from the parts of a `Quantized` (which compilers cannot look into)."""
    rows = shape[0]
    if codes.dtype == torch.int8:
        return (codes.reshape(rows, -1) * scales[:, None]).reshape(shape)
    # In floating point, where bytes are exact: ONNX runtimes do not shift single bytes, and would
    # store scales that are repeated for every number.
    packed = codes.to(scales.dtype)
    high = (packed / 16).floor()
    steps = torch.stack([packed - 16 * high, high], dim=2).reshape(rows, -1) - _OFFSET
    filled = functional.pad(steps, (0, -steps.shape[1] % GROUP_SIZE))
    numbers = filled.reshape(rows, -1, GROUP_SIZE) * scales[..., None]
    return numbers.reshape(rows, -1)[:, : math.prod(shape[1:])].reshape(shape)


def quantize(tensor: Tensor, bits: int) -> Quantized:
    r"""Write a tensor in few bits.

    With m the largest absolute value that shares a scale and n the largest code (127, 7),

    .. math:: \text{scale} = m / n, \qquad c = \mathrm{round}(x / \text{scale}),
              \qquad |x - c \cdot \text{scale}| \le \text{scale} / 2

    up to the rounding of the dtype that holds the scale and the product.

    Example:
        >>> quantize(torch.tensor([[127.0, -2.2]]), 8).codes
        tensor([[127,  -2]], dtype=torch.int8)

    Raises:
        LayerError: if `bits` is neither 8 nor 4, or the tensor has no rows of finite real numbers.
    """
    _check(tensor, bits)
    rows = tensor.detach().reshape(tensor.shape[0], -1)
    if bits == 8:
        codes, scales = _codes(rows, bits)
        return Quantized(codes.reshape(tensor.shape), scales, tuple(tensor.shape))
    columns = rows.shape[1]
    filled = functional.pad(rows, (0, -columns % GROUP_SIZE))
    codes, scales = _codes(filled.reshape(len(rows), -1, GROUP_SIZE), bits)
    nibbles = (codes.reshape(len(rows), -1)[:, : columns + columns % 2] + _OFFSET).to(torch.uint8)
    packed = nibbles[:, 0::2] | (nibbles[:, 1::2] << 4)
    return Quantized(packed, scales, tuple(tensor.shape))


def quantized_bytes(shape: Sequence[int], bits: int, dtype: torch.dtype) -> int:
    """What `quantize` would store for a tensor of this shape and dtype, in bytes.

    Example:
        >>> quantized_bytes((64, 40), 4, torch.float32)
        1792
    """
    rows, columns = shape[0], math.prod(shape[1:])
    if bits == 8:
        return rows * (columns + dtype.itemsize)
    return rows * (-(-columns // 2) + -(-columns // GROUP_SIZE) * dtype.itemsize)


def _codes(numbers: Tensor, bits: int) -> tuple[Tensor, Tensor]:
    """Codes and scales; the last position shares a scale."""
    precise = numbers.double()
    largest = precise.abs().amax(dim=-1)
    scales = (largest / _LEVELS[bits]).to(numbers.dtype)
    # A scale that underflows would lose everything: the smallest normal number is as good.
    scales = torch.where(largest > 0, scales.clamp_min(torch.finfo(numbers.dtype).tiny), scales)
    steps = torch.where(scales > 0, scales, 1).double()
    return (precise / steps[..., None]).round().to(torch.int8), scales


def _check(tensor: Tensor, bits: int) -> None:
    if bits not in BITS:
        raise LayerError(f"quantize: bits must be 8 or 4, got {bits}.")
    if tensor.ndim == 0 or tensor.numel() == 0 or not tensor.dtype.is_floating_point:
        raise LayerError(
            "quantize needs a tensor of real floating-point numbers with rows, got shape "
            f"{tuple(tensor.shape)} and {tensor.dtype}."
        )
    if not bool(tensor.isfinite().all()):
        count = int((~tensor.isfinite()).sum())
        raise LayerError(f"quantize: {count:,} of {tensor.numel():,} entries are not finite.")
