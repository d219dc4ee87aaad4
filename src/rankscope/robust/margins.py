"""Margins of a classifier's scores, and what an attack tries to raise."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from rankscope.errors import RobustnessError


def require_labels(outputs: Tensor, labels: Tensor) -> None:
    """Refuse labels that do not belong to the outputs of a classifier.

    Raises:
        RobustnessError: if there is not one label for each row, or one is no class.
    """
    is_fitting = outputs.ndim == 2 and outputs.shape[1] > 1 and labels.shape == outputs.shape[:1]
    if not is_fitting or len(labels) == 0:
        raise RobustnessError(
            f"Wanted one score for each of at least 2 classes, (samples, classes), and one label "
            f"for each sample; got outputs of shape {tuple(outputs.shape)} and labels of shape "
            f"{tuple(labels.shape)}."
        )
    if int(labels.min()) < 0 or int(labels.max()) >= outputs.shape[1]:
        raise RobustnessError(
            f"Labels must be 0..{outputs.shape[1] - 1}, got {int(labels.min())} to "
            f"{int(labels.max())}."
        )
    if not torch.isfinite(outputs).all():
        wrong = int((~torch.isfinite(outputs)).sum())
        raise RobustnessError(
            f"{wrong:,} of {outputs.numel():,} outputs are not finite, so that nothing can be "
            "certified."
        )


def margins(outputs: Tensor, labels: Tensor) -> Tensor:
    """Margin of the label's score above each other one, (samples, classes - 1).

    Example:
        >>> margins(torch.tensor([[3.0, 1.0, 4.0]]), torch.tensor([0]))
        tensor([[ 2., -1.]])

    Raises:
        RobustnessError: if labels and outputs do not fit.
    """
    require_labels(outputs, labels)
    return outputs.gather(1, labels[:, None]) - outputs.gather(1, other_classes(outputs, labels))


def other_classes(outputs: Tensor, labels: Tensor) -> Tensor:
    """The classes that are not the label, in order, (samples, classes - 1)."""
    places = torch.arange(outputs.shape[1] - 1, device=labels.device).expand(len(labels), -1)
    return places + (places >= labels[:, None])


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
