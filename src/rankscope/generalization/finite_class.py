"""A network in few bits: one of finitely many, whose number is counted honestly."""

import copy
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from rankscope.errors import GeneralizationError
from rankscope.generalization.walk import CPModule

SCALE_LIMIT = 127  # scales are 2^(e/4) for e from -127 to 127
_TRIED_SCALES = 9
_UNUSED = "num_batches_tracked"


@dataclass(frozen=True)
class Quantization:
    """How every number of a network is rounded.

    Args:
        bits: of a number; codes are -n..n with n = 2^(bits - 1) - 1, so 3 at 2 bits.
        scales: of each tensor by name, fixed before the sample was seen; None: the best of 2^(e/4)
            with |e| <= 127 for each tensor, counted at ln 255.

    Raises:
        GeneralizationError: if there are too few or too many bits, or a scale is not positive.
    """

    bits: int = 8
    scales: Mapping[str, float] | None = None

    def __post_init__(self) -> None:
        if not 2 <= self.bits <= 16:
            raise GeneralizationError(f"Quantization: bits must be 2..16, got {self.bits}.")
        for name, scale in (self.scales or {}).items():
            if not (math.isfinite(scale) and scale > 0):
                raise GeneralizationError(
                    f"Quantization: the scale of {name} must be positive, got {scale}."
                )

    @property
    def largest_code(self) -> int:
        """n, where codes are -n..n."""
        return int(2 ** (self.bits - 1)) - 1

    @property
    def num_values(self) -> int:
        """How many codes there are."""
        return 2 * self.largest_code + 1

    def codes(self, tensor: Tensor, scale: float) -> Tensor:
        """The nearest codes, of the tensor's dtype."""
        return (tensor / scale).round().clamp(-self.largest_code, self.largest_code)

    def scale_of(self, name: str, tensor: Tensor) -> float:
        """The one fixed beforehand, or the one with the smallest squared error.

        Raises:
            GeneralizationError: if scales were fixed, but not for this tensor.
        """
        if self.scales is not None:
            if name not in self.scales:
                raise GeneralizationError(
                    f"Quantization: no scale was fixed for {name}, only for "
                    f"{', '.join(self.scales) or 'nothing'}."
                )
            return self.scales[name]
        largest = float(tensor.abs().max()) if tensor.numel() else 0.0
        if largest == 0:
            return 1.0
        top = math.ceil(4 * math.log2(largest / self.largest_code))
        tried = (max(-SCALE_LIMIT, min(SCALE_LIMIT, top - step)) for step in range(_TRIED_SCALES))
        precise = tensor.double()
        return min((2 ** (e / 4) for e in tried), key=lambda scale: self._error(precise, scale))

    def _error(self, tensor: Tensor, scale: float) -> float:
        return float((self.codes(tensor, scale) * scale - tensor).square().sum())


@dataclass(frozen=True, eq=False)
class QuantizedNetwork:
    """A network whose numbers are all codes times scales.

    Args:
        model: in inference mode, with the rounded numbers.
        quantization: how.
        num_parameters: how many numbers it has, those that are not trained included.
        num_scales: how many scales were chosen after looking, and are counted.
        histogram: how often each code is used, from the smallest, (num_values).
    """

    model: nn.Module
    quantization: Quantization
    num_parameters: int
    num_scales: int
    histogram: Tensor

    @property
    def log_size(self) -> float:
        """Ln of how many networks could have been described with as many bits.

        The shorter of two codes: every number by itself, or first how often each code is used and
        then which of the arrangements it is. One bit says which.
        """
        plain = self.num_parameters * math.log(self.quantization.num_values)
        return min(plain, self._log_arrangements()) + math.log(2) + self._log_scales()

    def _log_scales(self) -> float:
        return self.num_scales * math.log(2 * SCALE_LIMIT + 1)

    def _log_arrangements(self) -> float:
        count, values = self.num_parameters, self.quantization.num_values
        used = sum(math.lgamma(times + 1) for times in self.histogram.tolist())
        counts = math.lgamma(count + values) - math.lgamma(values) - math.lgamma(count + 1)
        return math.lgamma(count + 1) - used + counts


def quantize_network(model: nn.Module, quantization: Quantization) -> QuantizedNetwork:
    """Round every number of a copy: parameters, and what normalizations keep beside them.

    A factorized layer whose cores hold more numbers than its weight is written dense first.

    Raises:
        GeneralizationError: if a scale is missing, or the model holds integers that matter.
    """
    twin = _smallest(copy.deepcopy(model).eval().requires_grad_(requires_grad=False))
    histogram = torch.zeros(quantization.num_values, dtype=torch.long)
    num_parameters = num_tensors = 0
    for name, tensor in _numbers(twin):
        scale = quantization.scale_of(name, tensor)
        codes = quantization.codes(tensor, scale)
        tensor.copy_(codes * scale)
        places = (codes.long() + quantization.largest_code).flatten()
        histogram += torch.bincount(places, minlength=quantization.num_values)
        num_parameters += tensor.numel()
        num_tensors += 1
    num_scales = num_tensors if quantization.scales is None else 0
    return QuantizedNetwork(twin, quantization, num_parameters, num_scales, histogram)


def _smallest(model: nn.Module) -> nn.Module:
    """With every factorized layer written dense that has more numbers than its weight."""
    if isinstance(model, CPModule):
        return _smaller(model)
    for name, module in list(model.named_modules()):
        if isinstance(module, CPModule):
            parent, _, own = name.rpartition(".")
            setattr(model.get_submodule(parent), own, _smaller(module))
    return model


def _smaller(module: CPModule) -> nn.Module:
    groups = 1 if not module.shape.kernel else getattr(module, "settings").groups  # noqa: B009
    if module.cores.num_parameters < groups * module.shape.num_parameters:
        return module
    return module.to_dense().requires_grad_(requires_grad=False)


def _numbers(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    yield from model.named_parameters()
    for name, buffer in model.named_buffers():
        if buffer.is_floating_point():
            yield name, buffer
        elif not name.endswith(_UNUSED):
            raise GeneralizationError(
                f"quantize_network: {name} holds {buffer.numel():,} integers ({buffer.dtype}), "
                "which are not counted; give the network before it was quantized."
            )
