"""The cores of a layer: parameters that train, or integers in 8 or 4 bits that do not."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from rankscope.errors import LayerError
from rankscope.factorize.formats.format import Format, Ranks, WeightShape

# --- Numbers in 8 or 4 bits: integers and the scales that give them back --------------------------


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
        """Bits of each code."""
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
    if not tensor.is_meta and not bool(tensor.isfinite().all()):
        count = int((~tensor.isfinite()).sum())
        raise LayerError(f"quantize: {count:,} of {tensor.numel():,} entries are not finite.")


_CODES, _SCALES = "_codes", "_scales"


class CoreStore(nn.Module):
    """Named tensors, in the order given.

    They are parameters until `quantize` makes them buffers: `NAME_codes` and `NAME_scales`, read
    back whenever `tensors` is called. A quantized store loads only state of the same bits.

    Example:
        >>> store = CoreStore({"right": torch.ones(2, 3), "left": torch.ones(4, 2)})
        >>> store.quantize(8)
        >>> sorted(store.state_dict())
        ['left_codes', 'left_scales', 'right_codes', 'right_scales']
    """

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        super().__init__()
        self.bits: int | None = None
        self.shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
        for name, tensor in tensors.items():
            self.register_parameter(name, nn.Parameter(tensor.detach().clone()))

    def tensors(self) -> dict[str, Tensor]:
        """The cores by name; of a quantized store, computed from its integers."""
        if self.bits is None:
            # Not `get_parameter`: `torch.func.functional_call` puts plain tensors in their places.
            return {name: getattr(self, name) for name in self.shapes}
        return {
            name: dequantize(self.get_buffer(name + _CODES), self.get_buffer(name + _SCALES), shape)
            for name, shape in self.shapes.items()
        }

    def quantize(self, bits: int) -> None:
        """Keep the cores as integers; they no longer train.

        Raises:
            LayerError: if `bits` is neither 8 nor 4, or they are integers already.
        """
        if self.bits is not None:
            raise LayerError(f"The cores are already quantized in {self.bits} bits, got {bits}.")
        stored = {name: quantize(self.get_parameter(name), bits) for name in self.shapes}
        for name, quantized in stored.items():
            delattr(self, name)
            self.register_buffer(name + _CODES, quantized.codes)
            self.register_buffer(name + _SCALES, quantized.scales)
        self.bits = bits

    @property
    def num_bytes(self) -> int:
        """Bytes of everything stored, scales included."""
        held = (*self.parameters(), *self.buffers())
        return sum(tensor.numel() * tensor.element_size() for tensor in held)

    @property
    def num_parameters(self) -> int:
        """How many numbers the cores stand for, quantized or not."""
        return sum(math.prod(shape) for shape in self.shapes.values())

    def extra_repr(self) -> str:
        """The shape of each core, and the bits if they are few."""
        shapes = ", ".join(f"{name} {shape}" for name, shape in self.shapes.items())
        return shapes if self.bits is None else f"{shapes}, {self.bits} bits"


def random_cores(
    format: Format,
    shape: WeightShape,
    ranks: Ranks,
    *,
    groups: int = 1,
    device: torch.device | str | None = None,
    dtype: torch.dtype | None = None,
) -> dict[str, Tensor]:
    r"""Cores to train from scratch: the weight has the variance of PyTorch's own start.

    Each of the n cores is normal with the same variance, and the weight sums prod(ranks) products,
    one number of each core: with a wanted variance of 1 / (3 fan_in),

    .. math:: \sigma^{2n} \prod_i r_i = \frac{1}{3 \, \text{in\_size} \prod \text{kernel}}

    Raises:
        LayerError: if the format refuses the shape, or the ranks do not fit.
    """
    format.check(shape, ranks)
    sizes = format.core_shapes(shape, ranks)
    variance = 1 / (3 * shape.in_size * math.prod(shape.kernel))
    deviation = (variance / math.prod(ranks)) ** (0.5 / len(sizes))
    return {
        name: torch.randn(groups * first, *rest, device=device, dtype=dtype) * deviation
        for name, (first, *rest) in sizes.items()
    }


def checked_cores(
    format: Format,
    shape: WeightShape,
    ranks: Ranks,
    cores: Mapping[str, Tensor],
    *,
    groups: int = 1,
) -> dict[str, Tensor]:
    """The cores in the format's order, if they are those that it asks for.

    Raises:
        LayerError: if the ranks do not fit, a core is missing, or one has another shape.
    """
    format.check(shape, ranks)
    wanted = {
        name: (groups * first, *rest)
        for name, (first, *rest) in format.core_shapes(shape, ranks).items()
    }
    given = {name: tuple(core.shape) for name, core in cores.items()}
    if given != wanted:
        raise LayerError(
            f"{format.name}: a weight of shape {shape.sizes} at ranks {ranks} in {groups} group(s) "
            f"needs the cores {wanted}, got {given}."
        )
    return {name: cores[name] for name in wanted}
