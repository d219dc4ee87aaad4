"""Where an orthogonal convolution starts."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor, nn


class Initialization(ABC):
    """A choice of the rotation, and whether factors come in pairs that cancel.

    If :math:`U_l = Q U_r`, the left factor undoes the right one and the cascade is Q alone: the
    convolution starts as a 1x1 one. An even number of taps leaves one factor without a partner.
    """

    is_paired: bool = True

    @abstractmethod
    def rotation(self, size: int, generator: torch.Generator | None) -> Tensor:
        """An orthogonal (size, size), in float64."""


@dataclass(frozen=True)
class Permutation(Initialization):
    """Start by exchanging channels at random."""

    def rotation(self, size: int, generator: torch.Generator | None) -> Tensor:
        identity = torch.eye(size, dtype=torch.float64)
        return identity[torch.randperm(size, generator=generator)]


@dataclass(frozen=True)
class Identity(Initialization):
    """Start by handing on every channel."""

    def rotation(self, size: int, generator: torch.Generator | None) -> Tensor:
        del generator
        return torch.eye(size, dtype=torch.float64)


@dataclass(frozen=True)
class Uniform(Initialization):
    """Start anywhere: every matrix uniform on its own, no factor undoes another."""

    is_paired = False

    def rotation(self, size: int, generator: torch.Generator | None) -> Tensor:
        return random_rotation(size, generator)


def random_rotation(size: int, generator: torch.Generator | None) -> Tensor:
    """A uniformly distributed orthogonal matrix in float64."""
    matrix = torch.empty(size, size, dtype=torch.float64)
    return nn.init.orthogonal_(matrix, generator=generator)
