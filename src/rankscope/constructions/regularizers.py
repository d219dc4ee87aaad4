"""Regularizers from their formulas: penalties, weight decay, dropout, early stopping."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from rankscope.errors import ConstructionError


def l1_penalty(parameters: Sequence[Tensor]) -> Tensor:
    """The sum of absolute values; its slope does not fade near zero, so weights become zero."""
    return torch.stack([parameter.abs().sum() for parameter in parameters]).sum()


def l2_penalty(parameters: Sequence[Tensor]) -> Tensor:
    """Half the sum of squares, whose gradient is the parameters themselves."""
    return torch.stack([parameter.square().sum() for parameter in parameters]).sum() / 2


def soft_threshold(values: Tensor, threshold: float) -> Tensor:
    r"""Move towards zero by the threshold, and stop there.

    .. math:: \operatorname*{argmin}_w \tfrac12 \lVert w - v \rVert^2 + \lambda \lVert w \rVert_1

    which is how gradient descent with an L1 penalty makes weights exactly zero.

    Example:
        >>> soft_threshold(torch.tensor([-3.0, 0.5, 2.0]), 1.0).tolist()
        [-2.0, 0.0, 1.0]
    """
    return values.sign() * (values.abs() - threshold).clamp(min=0.0)


def decayed_step(parameter: Tensor, gradient: Tensor, *, rate: float, decay: float) -> Tensor:
    r"""Gradient descent with weight decay; the same as with the L2 penalty, step by step.

    .. math:: \theta_{t+1} = (1 - \eta \lambda)\, \theta_t - \eta \nabla C(\theta_t)

    With Adam the two differ: there the penalty's gradient is divided by the root of the second
    moment, and decay is not (AdamW).

    Reference:
        Loshchilov & Hutter (2019), Proposition 1, arXiv:1711.05101.
    """
    return (1 - rate * decay) * parameter - rate * gradient


def dropout(values: Tensor, is_kept: Tensor, *, probability: float) -> Tensor:
    """Zero what is dropped, and divide the rest by the share that is kept, so the mean stays.

    Args:
        values: any shape.
        is_kept: booleans of the same shape, each true with probability 1 - `probability`.
        probability: of being dropped.

    Raises:
        ConstructionError: if the probability is not in [0, 1), or the shapes differ.

    Reference:
        Srivastava et al. (2014), Journal of Machine Learning Research 15.
    """
    if not 0 <= probability < 1:
        raise ConstructionError(
            f"dropout needs a probability at least 0 and below 1, got {probability:g}."
        )
    if values.shape != is_kept.shape:
        raise ConstructionError(
            f"dropout needs a choice for each value, got shapes {tuple(is_kept.shape)} and "
            f"{tuple(values.shape)}."
        )
    return values * is_kept / (1 - probability)


@dataclass(frozen=True)
class EarlyStopping:
    """Stop when the held-out loss has not been lower for some steps, and take the best step.

    Args:
        patience: how many losses in a row may be no better than the best.

    Example:
        >>> EarlyStopping(2).best_step([5.0, 3.0, 4.0, 3.5, 1.0])
        1
        >>> EarlyStopping(3).best_step([5.0, 3.0, 4.0, 3.5, 1.0])
        4
    """

    patience: int

    def __post_init__(self) -> None:
        if self.patience < 1:
            raise ConstructionError(
                f"EarlyStopping needs a patience of 1 or more, got {self.patience}."
            )

    def best_step(self, losses: Sequence[float]) -> int:
        """Number of the best loss that was seen before patience ended.

        Raises:
            ConstructionError: if there is no loss.
        """
        if not losses:
            raise ConstructionError("EarlyStopping needs 1 or more losses, got 0.")
        best = 0
        for step, loss in enumerate(losses):
            if loss < losses[best]:
                best = step
            elif step - best >= self.patience:
                break
        return best
