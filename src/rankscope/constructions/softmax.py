"""Softmax and its four properties."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from rankscope.errors import ConstructionError


def softmax(scores: Tensor, *, axis: int = -1) -> Tensor:
    r"""Exponentials that are divided by their sum, along one axis.

    .. math:: \mathrm{softmax}(x)_i = \frac{e^{x_i}}{\sum_j e^{x_j}}

    The largest score is subtracted first: that changes nothing (property 3), and no exponential
    overflows.

    Example:
        >>> softmax(torch.tensor([1000.0, 1000.0])).tolist()
        [0.5, 0.5]

    Reference:
        Diehl (2023), "Building blocks of modern machine learning", section 2.1.
    """
    powers = torch.exp(scores - scores.amax(dim=axis, keepdim=True))
    return powers / powers.sum(dim=axis, keepdim=True)


@dataclass(frozen=True)
class SoftmaxProperties:
    """The four properties of Lemma 2.1, measured at one vector.

    Args:
        smallest: least weight; 1. says that it is positive.
        largest: greatest weight; 1. says that it is at most 1 (below 1 unless there is one score).
        sum_error: 2. says that the sum is 1.
        shift_error: 3. says that a constant added to all scores changes nothing.
        distance: L1 distance of softmax(sharpness x) from the one-hot vector of the maximum.
        bound: 4. in numbers, 2 (n - 1) exp(-sharpness gap), which tends to 0.
    """

    smallest: float
    largest: float
    sum_error: float
    shift_error: float
    distance: float
    bound: float


def softmax_properties(
    scores: Tensor, *, shift: float = 10.0, sharpness: float = 1.0
) -> SoftmaxProperties:
    """Measure the four properties at a vector with one greatest score, in float64.

    Raises:
        ConstructionError: if it is no vector, or the greatest score is there twice.
    """
    if scores.ndim != 1 or not len(scores):
        raise ConstructionError(
            f"softmax_properties takes a vector of scores, got shape {tuple(scores.shape)}."
        )
    numbers = scores.double()
    weights = softmax(numbers)
    best = numbers.argmax()
    wanted = torch.nn.functional.one_hot(best, len(numbers)).double()
    return SoftmaxProperties(
        smallest=float(weights.min()),
        largest=float(weights.max()),
        sum_error=abs(float(weights.sum()) - 1),
        shift_error=float((softmax(numbers + shift) - weights).abs().max()),
        distance=float((softmax(sharpness * numbers) - wanted).abs().sum()),
        bound=concentration_bound(numbers, sharpness=sharpness),
    )


def concentration_bound(scores: Tensor, *, sharpness: float) -> float:
    r"""How far softmax(λ x) can be from the one-hot vector of the greatest score, in L1.

    .. math:: \lVert \mathrm{softmax}(\lambda x) - e_{\hat\imath} \rVert_1
              = 2 \sum_{i \ne \hat\imath} \mathrm{softmax}(\lambda x)_i
              \le 2 (n - 1)\, e^{-\lambda (x_{\hat\imath} - \max_{i \ne \hat\imath} x_i)}

    Raises:
        ConstructionError: if the greatest score is there twice.
    """
    ordered = scores.double().sort(descending=True).values
    if len(ordered) == 1:
        return 0.0
    gap = float(ordered[0] - ordered[1])
    if not gap:
        raise ConstructionError(
            f"softmax tends to one place only if one score is greatest, got {float(ordered[0]):g} "
            "twice."
        )
    return 2 * (len(ordered) - 1) * math.exp(-sharpness * gap)
