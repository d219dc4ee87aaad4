"""Norms that perturbations are measured in: what attacks and certificates need of them."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from rankscope.robust.rounding import lengths_above

# Attacks stay this far inside of a ball, so that rounding does not carry them out of it.
_INSIDE = 1 - 1e-5


def along(lengths: Tensor, like: Tensor) -> Tensor:
    """(batch,) shaped so that it multiplies (batch, …)."""
    return lengths.reshape(-1, *[1] * (like.ndim - 1))


@dataclass(frozen=True)
class Norm(ABC):
    """A norm of each sample of a batch. Subclasses are frozen."""

    @property
    @abstractmethod
    def name(self) -> str:
        """Name of the norm on the command line."""

    @abstractmethod
    def lengths(self, changes: Tensor) -> Tensor:
        """(batch, …) to the norm of each sample, (batch,)."""

    @abstractmethod
    def dual_lengths(self, weights: Tensor, *, axes: int) -> Tensor:
        """The most that a change of norm 1 adds to weights · change, over the last axes."""

    @abstractmethod
    def steepest(self, gradients: Tensor) -> Tensor:
        """The change of norm 1 of each sample that goes furthest along a gradient."""

    @abstractmethod
    def projected(self, changes: Tensor, radius: float) -> Tensor:
        """The nearest changes with a norm below the radius."""

    def random(self, like: Tensor, radius: float, generator: torch.Generator) -> Tensor:
        """Random changes with a norm of at most the radius."""
        drawn = torch.rand(like.shape, generator=generator).to(like) * 2 - 1
        return self.projected(drawn * radius, radius)

    @abstractmethod
    def euclidean(self, size: int) -> float:
        """The largest Euclidean norm of a change of `size` numbers and norm 1."""


@dataclass(frozen=True)
class L2(Norm):
    """The Euclidean norm."""

    @property
    def name(self) -> str:
        return "l2"

    def lengths(self, changes: Tensor) -> Tensor:
        lengths: Tensor = torch.linalg.vector_norm(changes.flatten(1), dim=1)
        return lengths

    def dual_lengths(self, weights: Tensor, *, axes: int) -> Tensor:
        return lengths_above(weights.flatten(-axes))

    def steepest(self, gradients: Tensor) -> Tensor:
        lengths = self.lengths(gradients)
        return gradients / along(lengths.where(lengths > 0, lengths.new_ones(())), gradients)

    def projected(self, changes: Tensor, radius: float) -> Tensor:
        lengths = self.lengths(changes)
        allowed = radius * _INSIDE
        shrink = torch.where(lengths > allowed, allowed / lengths.clamp(min=1e-30), 1.0)
        return changes * along(shrink, changes)

    def euclidean(self, size: int) -> float:
        del size
        return 1.0


@dataclass(frozen=True)
class Linf(Norm):
    """The largest change of an entry."""

    @property
    def name(self) -> str:
        return "linf"

    def lengths(self, changes: Tensor) -> Tensor:
        return changes.flatten(1).abs().amax(dim=1)

    def dual_lengths(self, weights: Tensor, *, axes: int) -> Tensor:
        return weights.abs().sum(dim=tuple(range(-axes, 0)))

    def steepest(self, gradients: Tensor) -> Tensor:
        return gradients.sign()

    def projected(self, changes: Tensor, radius: float) -> Tensor:
        return changes.clamp(-radius * _INSIDE, radius * _INSIDE)

    def euclidean(self, size: int) -> float:
        return math.sqrt(size)
