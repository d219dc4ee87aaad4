"""Rank search: the components that each layer needs for outputs within a margin."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from rankscope.errors import GeneralizationError
from rankscope.factorize.cp_layers import cp_unit
from rankscope.factorize.formats.format import WeightShape
from rankscope.generalize.layer_trace import Activations, LayerTrace
from rankscope.generalize.properties import Form, Properties, Triangle
from rankscope.generalize.sample import LargestEntry, Tolerance, require_margin


@dataclass(frozen=True)
class ChosenRank:
    """A layer with some of its components.

    Args:
        name: of the layer.
        shape: of its weight.
        rank: how many components it has.
        kept_rank: how many it keeps.
        factor: t at the rank kept.
        noise: ξ at the rank kept.
        gain: by how much a change behind the layer can grow until the output.
    """

    name: str
    shape: WeightShape
    rank: int
    kept_rank: int
    factor: float
    noise: float
    gain: float

    @property
    def num_parameters(self) -> int:
        """Entries of the kept components, or of the dense weight if fewer; without a bias."""
        return min(self.kept_rank * cp_unit(self.shape), self.shape.num_parameters)


@dataclass(frozen=True)
class RankChoice:
    """A rank for every layer, in the order in which layers run."""

    layers: tuple[ChosenRank, ...]

    @property
    def ranks(self) -> tuple[int, ...]:
        """Number of components kept of each layer."""
        return tuple(layer.kept_rank for layer in self.layers)

    def error_bounds(self, activations: Activations) -> Tensor:
        r"""How far the compressed network can be from the network, for each sample.

        .. math:: \lVert \hat M(x) - M(x) \rVert \le
                  \sum_k \xi^{(k)} \lVert X^{(k)}(x) \rVert \prod_{i > k} t^{(i)}

        where in networks that are no chains the product becomes a sum over paths. This is (*).

        Reference:
            Li, Sun, Su, Suzuki & Huang (2020), Sec. 4, arXiv:2001.05070 (proved here,
            docs/proofs.md, section 33).
        """
        # What nothing was dropped from adds nothing, even where later factors overflow.
        weights = [layer.noise * layer.gain if layer.noise else 0.0 for layer in self.layers]
        return activations.inputs @ torch.tensor(weights, dtype=torch.float64)


@dataclass(frozen=True)
class Mode(ABC):
    """The rule by which the allowed distance is divided among the layers."""

    name: ClassVar[str]

    @abstractmethod
    def limits(self, trace: LayerTrace, activations: Activations, allowed: float) -> list[float]:
        """The largest noise times gain that each layer is allowed."""


@dataclass(frozen=True)
class Direct(Mode):
    r"""Measured norms of inputs: each summand of (*) gets an equal share on every sample.

    .. math:: \xi^{(k)} \prod_{i > k} t^{(i)} \le \frac{\varepsilon}{n \max_x \lVert X^{(k)} \rVert}
    """

    name: ClassVar[str] = "direct"

    def limits(self, trace: LayerTrace, activations: Activations, allowed: float) -> list[float]:
        longest = activations.inputs.amax(dim=0).tolist()
        share = allowed / len(trace.layers)
        return [share / length if length > 0 else math.inf for length in longest]


@dataclass(frozen=True)
class CushionLimits(Mode):
    r"""Cushions instead of norms of inputs; never allows more than `Direct`.

    .. math:: \xi^{(k)} \prod_{i > k} t^{(i)} \le \frac{\varepsilon}{n \max_x \lVert M(x) \rVert}
              \prod_{i \ge k} \zeta^{(i)} \lVert M^{(i)} \rVert_F

    A layer that sends a sample to zero is refused by name: its cushion is 0, and so is the limit.

    Reference:
        Li, Sun, Su, Suzuki & Huang (2020), Sec. 4 (as recalled), arXiv:2001.05070.
    """

    name: ClassVar[str] = "paper"

    def limits(self, trace: LayerTrace, activations: Activations, allowed: float) -> list[float]:
        growths = activations.growths
        for layer, growth, after in zip(
            trace.layers, growths.tolist(), activations.lengths.T[1:], strict=True
        ):
            if growth == 0:
                dead = int((after == 0).sum())
                raise GeneralizationError(
                    f"{layer.name} is dead on {dead:,} of {len(after):,} samples: what comes after "
                    "it is zero, so that its cushion is 0 and no rank is allowed. Use Direct(), or "
                    "leave these samples out."
                )
        longest = activations.largest_output
        # Zero only where every input of the network is zero.
        share = allowed / (len(trace.layers) * longest) if longest > 0 else math.inf
        products = growths.flip(0).cumprod(0).flip(0)
        return [share * product for product in products.tolist()]


@dataclass(frozen=True)
class Search:
    """Options of the rank search: `Direct` or `CushionLimits`, `Triangle` or `Exact`, tolerance."""

    mode: Mode = field(default_factory=Direct)
    form: Form = field(default_factory=Triangle)
    tolerance: Tolerance = field(default_factory=LargestEntry)


def find_ranks(
    trace: LayerTrace, activations: Activations, margin: float, search: Search | None = None
) -> RankChoice:
    """The fewest components of each layer, from the last to the first, that keep the margin.

    The outputs of the compressed network are then within `tolerance.allowed(margin)` of those of
    the network on every sample, by (*).

    Args:
        trace: the network.
        activations: of the network on the sample.
        margin: γ.
        search: how; `Search()` unless given.

    Raises:
        GeneralizationError: if the margin is not positive, or a layer is dead in paper mode.

    Reference:
        Li, Sun, Su, Suzuki & Huang (2020), Alg. 1 (as recalled), arXiv:2001.05070.
    """
    require_margin(margin)
    how = search or Search()
    limits = how.mode.limits(trace, activations, how.tolerance.allowed(margin))
    properties = [how.form.of(layer) for layer in trace.layers]
    chosen: dict[int, int] = {}

    def factor(number: int, gain: float) -> float:
        chosen[number] = _fewest(properties[number], gain, limits[number])
        return properties[number].factor(chosen[number])

    gains = trace.gains(factor)
    return _choice(properties, [chosen[number] for number in range(len(gains))], gains)


def choose_ranks(
    trace: LayerTrace, ranks: Sequence[int], *, form: Form | None = None
) -> RankChoice:
    """Given ranks, with what (*) needs to know about them.

    Raises:
        GeneralizationError: if there is not one rank for each layer, from 1 to all components.
    """
    wanted = [layer.rank for layer in trace.layers]
    is_fitting = len(ranks) == len(wanted) and all(
        1 <= rank <= most for rank, most in zip(ranks, wanted, strict=True)
    )
    if not is_fitting:
        raise GeneralizationError(
            f"choose_ranks: wanted {len(wanted)} ranks from 1 to {wanted}, got {list(ranks)}."
        )
    properties = [(form or Triangle()).of(layer) for layer in trace.layers]
    gains = trace.gains(lambda number, _: properties[number].factor(ranks[number]))
    return _choice(properties, ranks, gains)


def _choice(
    properties: Sequence[Properties], ranks: Sequence[int], gains: Sequence[float]
) -> RankChoice:
    layers = (
        ChosenRank(
            of.layer.name,
            of.layer.shape,
            of.layer.rank,
            rank,
            of.factor(rank),
            of.noise(rank),
            gain,
        )
        for of, rank, gain in zip(properties, ranks, gains, strict=True)
    )
    return RankChoice(tuple(layers))


def _fewest(properties: Properties, gain: float, limit: float) -> int:
    *smaller, every = properties.ranks
    for rank in smaller:
        if properties.noise(rank) * gain <= limit:
            return rank
    return every
