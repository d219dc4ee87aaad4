"""A labelled sample, the margins of a classifier on it, and what a margin allows."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from rankscope.errors import GeneralizationError


@dataclass(frozen=True, eq=False)
class Sample:
    """Inputs with labels: the S of the bounds, drawn independently from one distribution.

    Args:
        inputs: (samples, …), as the network takes them.
        labels: (samples), numbers of classes.

    Raises:
        GeneralizationError: if it is empty, an input is not finite, or labels do not fit.
    """

    inputs: Tensor
    labels: Tensor

    def __post_init__(self) -> None:
        is_fitting = (
            self.inputs.ndim > 1
            and self.labels.ndim == 1
            and not self.labels.is_floating_point()
            and len(self.inputs) == len(self.labels) > 0
        )
        if not is_fitting:
            raise GeneralizationError(
                "Sample: wanted inputs (samples, …) and one integer label for each, at least 1; "
                f"got inputs of shape {tuple(self.inputs.shape)} and labels of shape "
                f"{tuple(self.labels.shape)} ({self.labels.dtype})."
            )
        wrong = len(self.inputs) - int(torch.isfinite(self.inputs).flatten(1).all(dim=1).sum())
        if wrong:
            raise GeneralizationError(
                f"Sample: {wrong:,} of {len(self.inputs):,} inputs hold numbers that are not "
                "finite."
            )

    def __len__(self) -> int:
        return len(self.labels)

    def require_classes(self, count: int) -> None:
        """Refuse labels that are no classes of a network with so many outputs.

        Raises:
            GeneralizationError: with the smallest and the largest label.
        """
        low, high = int(self.labels.min()), int(self.labels.max())
        if count < 2 or low < 0 or high >= count:
            raise GeneralizationError(
                f"Sample: the network gives {count} scores, so that labels must be 0..{count - 1} "
                f"(of at least 2 classes), got {low} to {high}."
            )


def margins(outputs: Tensor, labels: Tensor) -> Tensor:
    r"""Margin of the label's score above the best other one, (samples).

    .. math:: f(x)_y - \max_{i \ne y} f(x)_i

    Example:
        >>> margins(torch.tensor([[3.0, 1.0, 4.0]]), torch.tensor([2]))
        tensor([1.])
    """
    own = outputs.gather(1, labels[:, None])
    others = outputs.scatter(1, labels[:, None], -math.inf)
    return (own - others.amax(dim=1, keepdim=True)).squeeze(1)


def margin_loss(outputs: Tensor, labels: Tensor, margin: float) -> float:
    """The share of samples whose margin is at most `margin`; at 0 it is the error.

    Example:
        >>> margin_loss(torch.tensor([[3.0, 1.0], [0.5, 0.0]]), torch.tensor([0, 0]), 1.0)
        0.5
    """
    return float((margins(outputs, labels) <= margin).double().mean())


def require_margin(margin: float) -> None:
    """Refuse a margin that no bound is for.

    Raises:
        GeneralizationError: if it is zero, negative or not finite.
    """
    if not (math.isfinite(margin) and margin > 0):
        raise GeneralizationError(f"The margin must be positive and finite, got {margin}.")


@dataclass(frozen=True)
class Tolerance(ABC):
    """How near g must be to f for a margin γ, and what is then known of their classes."""

    name: ClassVar[str]

    @abstractmethod
    def allowed(self, margin: float) -> float:
        """The largest Euclidean distance of outputs that is allowed."""

    @abstractmethod
    def lost(self, deviations: Tensor) -> Tensor:
        """The most that a margin can have lost, (samples), given f - g (samples, classes)."""

    def threshold(self, margin: float) -> float:
        """Above this margin of f, f and g give the same class if `allowed` is kept."""
        return margin


@dataclass(frozen=True)
class LargestEntry(Tolerance):
    r""":math:`|f - g|_\infty \le \gamma / 2`: a margin is a difference of two entries."""

    name: ClassVar[str] = "inf"

    def allowed(self, margin: float) -> float:
        return margin / 2

    def lost(self, deviations: Tensor) -> Tensor:
        return 2 * deviations.abs().amax(dim=1)


@dataclass(frozen=True)
class Euclidean(Tolerance):
    r""":math:`\lVert f - g \rVert_2 \le \gamma / \sqrt 2`, which (*) bounds directly."""

    name: ClassVar[str] = "l2"

    def allowed(self, margin: float) -> float:
        return margin / math.sqrt(2)

    def lost(self, deviations: Tensor) -> Tensor:
        lengths: Tensor = torch.linalg.vector_norm(deviations, dim=1)
        return math.sqrt(2) * lengths


@dataclass(frozen=True)
class AsPublished(Tolerance):
    r""":math:`|f - g|_\infty \le \gamma`, as on the slides, which loses up to 2γ of a margin."""

    name: ClassVar[str] = "paper"

    def allowed(self, margin: float) -> float:
        return margin

    def lost(self, deviations: Tensor) -> Tensor:
        return 2 * deviations.abs().amax(dim=1)

    def threshold(self, margin: float) -> float:
        return 2 * margin
