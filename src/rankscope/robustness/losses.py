"""What an attack tries to raise."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from rankscope.errors import RobustnessError
from rankscope.robustness.margins import margins


@dataclass(frozen=True)
class AttackLoss(ABC):
    """Grows as a sample comes nearer to another label. Subclasses are frozen."""

    @abstractmethod
    def __call__(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """(samples, classes) and (samples,) to (samples,)."""


@dataclass(frozen=True)
class CrossEntropy(AttackLoss):
    """The logarithm of the label's probability, negative."""

    def __call__(self, outputs: Tensor, labels: Tensor) -> Tensor:
        return functional.cross_entropy(outputs, labels, reduction="none")


@dataclass(frozen=True)
class Margin(AttackLoss):
    """The best other score minus the label's: positive exactly where the label is lost."""

    def __call__(self, outputs: Tensor, labels: Tensor) -> Tensor:
        return -margins(outputs, labels).amin(dim=1)


@dataclass(frozen=True)
class LogitsRatio(AttackLoss):
    """The margin over the distance of the best score to the third: no scale hides gradients.

    Raises:
        RobustnessError: if there are fewer than 3 classes.

    Reference:
        Croce & Hein (2020), arXiv:2003.01690, equation 6.
    """

    def __call__(self, outputs: Tensor, labels: Tensor) -> Tensor:
        if outputs.shape[1] < 3:
            raise RobustnessError(
                f"LogitsRatio needs at least 3 classes, got {outputs.shape[1]}; use Margin."
            )
        best = torch.topk(outputs, 3, dim=1).values
        spread = best[:, 0] - best[:, 2]
        return -margins(outputs, labels).amin(dim=1) / (spread + 1e-12)
