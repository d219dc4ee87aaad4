"""A network in few bits: one of finitely many, whose number is counted honestly.

quantization = fixed_scales(model, bits=2)      # before any sample is seen
fit(model, QuantizedCrossEntropy(quantization), data, recipe)
quantize_network(model, quantization)           # what was trained, and what the bound is for
"""

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from rankscope.errors import GeneralizationError
from rankscope.generalize.bounds import GeneralizationBound
from rankscope.generalize.layer_trace import CPModule
from rankscope.networks.batches import Batch
from rankscope.theorem import Theorem

SCALE_LIMIT = 127  # scales are 2^(e/4) for e from -127 to 127
_TRIED_SCALES = 9
_UNUSED = "num_batches_tracked"


@dataclass(frozen=True)
class Quantization:
    """The rounding of every number of a network.

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
        """Number of codes."""
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
    clone = _smallest(copy.deepcopy(model).eval().requires_grad_(requires_grad=False))
    histogram = torch.zeros(quantization.num_values, dtype=torch.long)
    num_parameters = num_tensors = 0
    for name, tensor in _numbers(clone):
        scale = quantization.scale_of(name, tensor)
        codes = quantization.codes(tensor, scale)
        tensor.copy_(codes * scale)
        places = (codes.long() + quantization.largest_code).flatten()
        histogram += torch.bincount(places, minlength=quantization.num_values)
        num_parameters += tensor.numel()
        num_tensors += 1
    num_scales = num_tensors if quantization.scales is None else 0
    return QuantizedNetwork(clone, quantization, num_parameters, num_scales, histogram)


def _smallest(model: nn.Module) -> nn.Module:
    """Write every factorized layer dense that has more numbers than its weight."""
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


# --- Training for the few bits that it will be counted in -----------------------------------------


def fixed_scales(model: nn.Module, *, bits: int) -> Quantization:
    """The scales that suit a network's initial weights best: they know nothing of any sample.

    Args:
        model: before it is trained.
        bits: of a number.

    Raises:
        GeneralizationError: if a tensor is all zero, so that it has no scale yet.
    """
    free = Quantization(bits)
    for name, weight in model.named_parameters():
        if not bool(weight.detach().any()):
            raise GeneralizationError(
                f"fixed_scales: all {weight.numel():,} numbers of {name} are zero, which says "
                "nothing of their scale; start them elsewhere, or leave them out."
            )
    scales = {
        name: free.scale_of(name, weight.detach()) for name, weight in model.named_parameters()
    }
    return Quantization(bits, scales)


@dataclass(frozen=True)
class QuantizedCrossEntropy:
    r"""Cross-entropy of the rounded network; gradients go straight through the rounding.

    With q(w) the rounded weights, :math:`\partial q / \partial w` is taken to be 1 where w is
    within half a step of the codes, and 0 outside, so that weights do not drift away.

    Args:
        quantization: with fixed scales.

    Reference:
        Bengio, Léonard & Courville (2013), Sec. 4, arXiv:1308.3432.
    """

    quantization: Quantization

    def __call__(self, model: nn.Module, batch: Batch) -> Tensor:
        """The loss of a batch."""
        rounded = {name: self._rounded(name, weight) for name, weight in model.named_parameters()}
        logits = torch.func.functional_call(model, rounded, (batch.inputs,))
        assert batch.targets is not None, "a classifier is trained on labels"
        return nn.functional.cross_entropy(logits, batch.targets)

    def _rounded(self, name: str, weight: Tensor) -> Tensor:
        scale = self.quantization.scale_of(name, weight.detach())
        limit = (self.quantization.largest_code + 0.5) * scale
        inside = weight.clamp(-limit, limit)
        codes = self.quantization.codes(weight.detach(), scale)
        return inside + (codes * scale - inside).detach()


# --- A bound that holds as it stands --------------------------------------------------------------


_BISECTIONS = 100


@dataclass(frozen=True)
class Concentration(ABC):
    """How far the error of one fixed classifier is above that on a sample."""

    theorem: ClassVar[Theorem]

    @abstractmethod
    def error(self, empirical: float, nats: float, size: int) -> float:
        """The largest true error that is not excluded with probability above exp(-nats)."""


_ASSUMPTIONS = (
    "samples are drawn independently from one distribution",
    "the network's shape and everything counted as fixed were fixed before the sample was seen",
    "bounds the quantized compressed network g, not f",
)


@dataclass(frozen=True)
class Hoeffding(Concentration):
    r""":math:`\hat L + \sqrt{\text{nats} / 2m}`.

    Example:
        >>> Hoeffding().error(0.25, 2.0, 16)
        0.5
    """

    theorem: ClassVar[Theorem] = Theorem(
        "Finite class", "Hoeffding (1963), Thm 1, and a union bound", None, _ASSUMPTIONS
    )

    def error(self, empirical: float, nats: float, size: int) -> float:
        return empirical + math.sqrt(nats / (2 * size))


@dataclass(frozen=True)
class Chernoff(Concentration):
    r"""The largest L with :math:`\mathrm{kl}(\hat L \,\|\, L) \le \text{nats} / m`.

    Never above Hoeffding's, and much below where the error on the sample is small.

    Example:
        >>> round(Chernoff().error(0.0, 10 * math.log(2), 10), 6)
        0.5
    """

    theorem: ClassVar[Theorem] = Theorem(
        "Finite class",
        "Chernoff (1952), with relative entropy, and a union bound",
        None,
        _ASSUMPTIONS,
    )

    def error(self, empirical: float, nats: float, size: int) -> float:
        low, high = empirical, 1.0
        for _ in range(_BISECTIONS):
            middle = (low + high) / 2
            low, high = (
                (middle, high)
                if relative_entropy(empirical, middle) <= nats / size
                else (low, middle)
            )
        return high


def relative_entropy(first: float, second: float) -> float:
    r""":math:`\mathrm{kl}(p \| q) = p \ln \frac pq + (1 - p) \ln \frac{1 - p}{1 - q}`.

    Example:
        >>> relative_entropy(0.5, 0.5), relative_entropy(0.5, 1.0)
        (0.0, inf)
    """
    total = 0.0
    for own, other in ((first, second), (1 - first, 1 - second)):
        if own > 0:
            total += own * math.log(own / other) if other > 0 else math.inf
    return total


def rigorous_bound(  # noqa: PLR0913 - what is counted, all by name
    network: QuantizedNetwork,
    empirical: float,
    size: int,
    *,
    layer_ranks: Sequence[int] = (),
    num_settings: int = 1,
    chance: float = 0.05,
    concentration: Concentration | None = None,
) -> GeneralizationBound:
    r"""Bound the true error of a quantized network by its error on the sample it was made from.

    .. math:: L_0(g) \le \hat L_0(g) + \sqrt{\frac{\ln |G| + \sum_k \ln (R^{(k)} + 1)
              + \ln N + \ln (1 / \delta)}{2 m}}

    with probability at least 1 - δ over samples, whatever was done to find g: ln |G| counts every
    network that can be described as g is, ranks chosen from the data cost their logarithm (with
    one choice more, "dense"), and so does having tried N settings.

    Args:
        network: g.
        empirical: its error on the sample, at margin 0.
        size: of the sample, m.
        layer_ranks: the rank of each layer before ranks were chosen; none if they were fixed.
        num_settings: N, how many settings (margins, bits, forms) were tried on this sample.
        chance: δ.
        concentration: `Hoeffding` unless given, or `Chernoff`; fixed beforehand.

    Raises:
        GeneralizationError: if an error or a chance is no probability, or a count is below 1.

    Reference:
        Arora, Ge, Neyshabur & Zhang (2018), Thm 2.1 (with constants), arXiv:1802.05296.
    """
    if not (0 <= empirical <= 1 and 0 < chance < 1 and size >= 1 and num_settings >= 1):
        raise GeneralizationError(
            f"rigorous_bound: wanted an error in 0..1, a chance between 0 and 1, and counts of at "
            f"least 1; got error {empirical}, chance {chance}, {size} samples and {num_settings} "
            "settings."
        )
    chosen = concentration or Hoeffding()
    ranks = math.fsum(math.log(rank + 1) for rank in layer_ranks)
    nats = network.log_size + ranks + math.log(num_settings) - math.log(chance)
    constants = (
        ("samples", float(size)),
        ("parameters", float(network.num_parameters)),
        ("bits", float(network.quantization.bits)),
        ("scales counted", float(network.num_scales)),
        ("nats of the network", network.log_size),
        ("nats of the ranks", ranks),
        ("settings tried", float(num_settings)),
        ("chance", chance),
    )
    value = chosen.error(empirical, nats, size)
    return GeneralizationBound(
        "rigorous", value, empirical, chosen.theorem, is_rigorous=True, constants=constants
    )
