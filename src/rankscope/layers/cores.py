"""The cores of a layer: parameters that train, or integers in 8 or 4 bits that do not."""

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from rankscope.errors import LayerError
from rankscope.layers.formats.format import Format, Ranks, WeightShape
from rankscope.layers.quantization import dequantize, quantize

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
        """Of everything stored, scales included."""
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
