"""Properties of a CP layer's weights: how far each number of components can stretch.

With j of the components of a layer kept, largest first: the tensorization factor t_j bounds the
norm of what is kept, the tensor noise bound ξ_j that of what is dropped. Both come in two forms,
from the triangle inequality over components, or exactly, over frequencies.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import torch
from torch import Tensor

from rankscope.errors import GeneralizationError
from rankscope.factorize.frequency_blocks import Torus, frequency_blocks
from rankscope.generalize.layer_trace import CPLayer


def kernel_spectra(layer: CPLayer) -> Tensor:
    r"""Absolute values of the Fourier transforms of all kernels, (frequencies, components).

    Circular convolutions are looked at on images of their own size, those with zeros around the
    image on the circle that has space for the zeros. Of two opposite frequencies one is enough.
    """
    if layer.torus is None:
        return layer.components.kernels.reshape(1, -1).abs()
    torus = layer.torus
    alone = Torus(torus.sizes, (1,) * len(torus.sizes), torus.dilation, groups=layer.rank)
    pieces = frequency_blocks(layer.components.kernels[:, None], alone)
    return torch.cat([blocks.flatten(1).abs() for blocks, _ in pieces])


@dataclass(frozen=True, eq=False)
class Properties(ABC):
    """Tensorization factors and noise bounds of one layer, for ranks from 1 to all."""

    layer: CPLayer

    @property
    @abstractmethod
    def ranks(self) -> tuple[int, ...]:
        """The ranks that a search looks at, ascending; the last is all components."""

    @abstractmethod
    def factor(self, rank: int) -> float:
        """t: at least the operator norm of the layer with its first components only."""

    @abstractmethod
    def noise(self, rank: int) -> float:
        """ξ: at least the operator norm of the other components; 0 if there are none."""


@dataclass(frozen=True)
class Form(ABC):
    """The bounds on operator norms that are used."""

    name: ClassVar[str]

    @abstractmethod
    def of(self, layer: CPLayer) -> Properties:
        """The properties of a layer."""


@dataclass(frozen=True)
class Triangle(Form):
    r"""Sums over components, with :math:`\alpha_r = \max_f |\hat C_r(f)|`.

    .. math:: t_j = \sum_{r \le j} \lambda_r \alpha_r, \qquad
              \xi_j = \sum_{r > j} \lambda_r \alpha_r

    Reference:
        Li, Sun, Su, Suzuki & Huang (2020), Sec. 4 (as recalled), arXiv:2001.05070.
    """

    name: ClassVar[str] = "triangle"

    def of(self, layer: CPLayer) -> "TriangleProperties":
        return TriangleProperties(layer)


@dataclass(frozen=True)
class Exact(Form):
    r"""The largest singular value over all frequencies: never above the triangle form.

    .. math:: t_j = \max_f \sigma_{\max} \sum_{r \le j} \lambda_r \hat C_r(f) \, b_r a_r^T

    and :math:`\xi_j` the same over :math:`r > j`. Each takes singular values, so that only some
    ranks are looked at, and of those only the ones that a search asks for.

    Args:
        num_ranks: how many at most, evenly spaced.
        is_monotone: t is replaced by its largest value so far, so that ranks found fall with the
            margin; it stays below the triangle form.

    Raises:
        GeneralizationError: if there is no rank to look at.
    """

    num_ranks: int = 32
    is_monotone: bool = False
    name: ClassVar[str] = "exact"

    def __post_init__(self) -> None:
        if self.num_ranks < 1:
            raise GeneralizationError(f"Exact: num_ranks must be at least 1, got {self.num_ranks}.")

    def of(self, layer: CPLayer) -> "ExactProperties":
        return ExactProperties(layer, self, {})


@dataclass(frozen=True, eq=False)
class TriangleProperties(Properties):
    """Properties at all ranks at once; see `Triangle` and `fourier_factors`."""

    @property
    def ranks(self) -> tuple[int, ...]:
        return tuple(range(1, self.layer.rank + 1))

    def factor(self, rank: int) -> float:
        return float(self.factors[rank - 1])

    def noise(self, rank: int) -> float:
        return float(self.noises[rank - 1])

    @cached_property
    def spectra(self) -> Tensor:
        """See `kernel_spectra`."""
        return kernel_spectra(self.layer)

    @cached_property
    def factors(self) -> Tensor:
        """T for every rank from 1, (components)."""
        return self._norms.cumsum(0)

    @cached_property
    def noises(self) -> Tensor:
        """ξ for every rank from 1, (components); the last is exactly zero."""
        tails = self._norms.flip(0).cumsum(0).flip(0)
        return torch.cat([tails[1:], tails.new_zeros(1)])

    @cached_property
    def _norms(self) -> Tensor:
        return self.layer.components.weights * self.spectra.amax(dim=0)


@dataclass(frozen=True, eq=False)
class FourierFactors:
    """The slides' properties, for every rank from 1, each (components).

    Args:
        factors: t with t² = Σ λ² over what is kept.
        noises: ξ with ξ² = Σ λ² over what is dropped.
        etas: η = max over frequencies of Σ |Ĉ|² over what is kept.
        thetas: θ, the same over what is dropped.
    """

    factors: Tensor
    noises: Tensor
    etas: Tensor
    thetas: Tensor


def fourier_factors(properties: TriangleProperties) -> FourierFactors:
    r"""Norms bounded by Cauchy and Schwarz over components instead of the triangle inequality.

    .. math:: \lVert M_j \rVert \le t_j \sqrt{\eta_j}, \qquad
              \lVert M - M_j \rVert \le \xi_j \sqrt{\theta_j}

    The slides name these four without a definition; this one makes the slides' formula true.

    Reference:
        Li, Sun, Su, Suzuki & Huang (2020), Sec. 4 (reconstructed), arXiv:2001.05070.
    """
    squares = properties.layer.components.weights.square()
    powers = properties.spectra.square()
    return FourierFactors(
        squares.cumsum(0).sqrt(),
        _tail_sums(squares).sqrt(),
        powers.cumsum(1).amax(dim=0),
        _tail_sums(powers).amax(dim=0),
    )


def _tail_sums(numbers: Tensor) -> Tensor:
    """Sum of all later entries, along the last axis."""
    tails = numbers.flip(-1).cumsum(-1).flip(-1)
    return torch.cat([tails[..., 1:], torch.zeros_like(tails[..., :1])], dim=-1)


@dataclass(frozen=True, eq=False)
class ExactProperties(Properties):
    """Computed when asked for, and kept; see `Exact`."""

    form: Exact
    known: dict[tuple[int, int], float]

    @property
    def ranks(self) -> tuple[int, ...]:
        count = min(self.form.num_ranks, self.layer.rank)
        return tuple(-(-self.layer.rank * place // count) for place in range(1, count + 1))

    def factor(self, rank: int) -> float:
        if not self.form.is_monotone:
            return self._norm(0, rank)
        return max(self._norm(0, earlier) for earlier in (*self.ranks, rank) if earlier <= rank)

    def noise(self, rank: int) -> float:
        return self._norm(rank, self.layer.rank)

    def _norm(self, start: int, stop: int) -> float:
        """Operator norm of the components from `start` to before `stop`."""
        if start == stop:
            return 0.0
        if (start, stop) not in self.known:
            weight = self.layer.components.taken(slice(start, stop)).to_dense()
            self.known[start, stop] = _operator_norm(weight, self.layer.torus)
        return self.known[start, stop]


def _operator_norm(weight: Tensor, torus: Torus | None) -> float:
    if torus is None:
        return float(torch.linalg.matrix_norm(weight, 2))
    return max(
        float(torch.linalg.matrix_norm(blocks, 2).max())
        for blocks, _ in frequency_blocks(weight, torus)
    )
