"""Ways from free numbers to orthogonal matrices; zero goes to the identity, all are differentiable.

Only the span of a frame enters a paraunitary factor, so a frame of r columns in n dimensions needs
r (n - r) numbers: the lower left block X of a skew-symmetric matrix that is zero elsewhere.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor


class Parametrization(ABC):
    """A smooth map from free numbers to orthogonal matrices."""

    @abstractmethod
    def rotation(self, free: Tensor) -> Tensor:
        """From (*batch, size, size) to rotations; only what is below the diagonal counts."""

    @abstractmethod
    def frame(self, free: Tensor) -> Tensor:
        """From (*batch, rest, columns) to orthonormal columns (*batch, rest + columns, columns)."""


@dataclass(frozen=True)
class Cayley(Parametrization):
    r"""The Cayley transform :math:`(I - S/2)^{-1} (I + S/2)`, the fastest of the three.

    A frame needs no more than an inverse as large as its number of columns: with
    :math:`M = I + X^T X / 4` it is :math:`(2 M^{-1} - I;\; X M^{-1})`.
    """

    def rotation(self, free: Tensor) -> Tensor:
        skew = _skew(free) / 2
        identity = torch.eye(skew.shape[-1], dtype=skew.dtype, device=skew.device)
        rotation: Tensor = torch.linalg.solve(identity - skew, identity + skew)
        return rotation

    def frame(self, free: Tensor) -> Tensor:
        identity = torch.eye(free.shape[-1], dtype=free.dtype, device=free.device)
        inverse = torch.linalg.inv(identity + free.mT @ free / 4)
        return torch.cat([2 * inverse - identity, free @ inverse], dim=-2)


@dataclass(frozen=True)
class MatrixExponential(Parametrization):
    """The exponential of a skew-symmetric matrix: reaches every rotation."""

    def rotation(self, free: Tensor) -> Tensor:
        return torch.matrix_exp(_skew(free))

    def frame(self, free: Tensor) -> Tensor:
        rest, columns = free.shape[-2:]
        skew = torch.nn.functional.pad(free, (0, rest, columns, 0))
        exponential: Tensor = torch.matrix_exp(skew - skew.mT)
        return exponential[..., :columns]


@dataclass(frozen=True)
class Householder(Parametrization):
    """A product of reflections, one for each column."""

    def rotation(self, free: Tensor) -> Tensor:
        return _reflections(torch.tril(free, diagonal=-1))

    def frame(self, free: Tensor) -> Tensor:
        return _reflections(torch.nn.functional.pad(free, (0, 0, free.shape[-1], 0)))


def _skew(free: Tensor) -> Tensor:
    lower = torch.tril(free, diagonal=-1)
    return lower - lower.mT


def _reflections(below: Tensor) -> Tensor:
    """The product of the reflections along the columns with ones on the diagonal, times -1."""
    columns = below.shape[-1]
    identity = torch.eye(below.shape[-2], columns, dtype=below.dtype, device=below.device)
    scales = 2 / (1 + below.square().sum(dim=-2))
    # Each reflection turns its own basis vector round, so the product at 0 is minus the identity.
    product: Tensor = -torch.linalg.householder_product(below + identity, scales)
    return product
