"""A bound that holds as it stands: one quantized network out of finitely many."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from rankscope.errors import GeneralizationError
from rankscope.generalization.bounds import GeneralizationBound
from rankscope.generalization.finite_class import QuantizedNetwork
from rankscope.theorem import Theorem

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
