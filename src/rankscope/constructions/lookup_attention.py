"""Attention as a lookup table that can be differentiated."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from rankscope.constructions.softmax import softmax
from rankscope.errors import ConstructionError


def lookup(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    r"""Values added up, each as often as its key matches: linear in each of the three.

    .. math:: \mathrm{lookup}(q) = \sum_i \langle q, k_i \rangle v_i

    With basis vectors as keys, a basis vector as query gives exactly one value.

    Example:
        >>> values = torch.tensor([[1.0, 0.0], [5.0, 2.0], [7.0, 7.0]])
        >>> lookup(torch.tensor([0.0, 1.0, 0.0]), torch.eye(3), values).tolist()
        [5.0, 2.0]

    Raises:
        ConstructionError: if the shapes do not fit.

    Reference:
        Diehl (2023), "Building blocks of modern machine learning", Example 2.3.
    """
    _require_table("lookup", query[None] if query.ndim == 1 else query, keys, values)
    return (query @ keys.T) @ values


@dataclass(frozen=True, eq=False)
class Attended:
    """Attention with what is on its way.

    Args:
        scores: inner products of queries (rows) and keys (columns).
        scaled: the same, divided by the scale.
        weights: their softmax along the keys.
        outputs: values, mixed by the weights.
    """

    scores: Tensor
    scaled: Tensor
    weights: Tensor
    outputs: Tensor


def attend(queries: Tensor, keys: Tensor, values: Tensor, *, scale: float = 1.0) -> Attended:
    r"""Softmax of scores, times values.

    .. math:: \mathrm{softmax}\!\left(\frac{Q K^\top}{\mathrm{scale}}\right) V

    Args:
        queries: queries x features.
        keys: keys x features.
        values: keys x value features.
        scale: 1 in the lecture, the root of the number of features in transformers.

    Raises:
        ConstructionError: if the shapes do not fit.

    Reference:
        Diehl (2023), section 2.2, with the transpose where it belongs; Vaswani et al. (2017),
        equation (1), arXiv:1706.03762.
    """
    _require_table("attend", queries, keys, values)
    if scale <= 0:
        raise ConstructionError(f"attend divides by a positive scale, got {scale:g}.")
    scores = queries @ keys.T
    scaled = scores / scale
    weights = softmax(scaled)
    return Attended(scores, scaled, weights, weights @ values)


def transformer_scale(num_features: int) -> float:
    """The root of the number of features.

    Example:
        >>> transformer_scale(64)
        8.0
    """
    return math.sqrt(num_features)


def worked_example() -> Attended:
    """The query of "Thinking" at the keys of "Thinking" and "Machines", with 64 features.

    The scores are 112 and 96, so 14 and 12 after the division by 8, and the weights are 0.88 and
    0.12. Only the scores are given in the source; these are the flattest vectors that have them,
    and basis vectors as values, so that the output shows the weights.

    Example:
        >>> found = worked_example()
        >>> found.scores.tolist(), found.scaled.tolist()
        ([[112.0, 96.0]], [[14.0, 12.0]])
        >>> [f"{weight:.2f}" for weight in found.weights[0].tolist()]
        ['0.88', '0.12']

    Reference:
        Levine et al. (2022), Tensors for deep learning theory, section 7.3.1.
    """
    ones = torch.ones(1, 64, dtype=torch.float64)
    keys = torch.cat([ones * 112 / 64, ones * 96 / 64])
    return attend(ones, keys, torch.eye(2, dtype=torch.float64), scale=transformer_scale(64))


def _require_table(who: str, queries: Tensor, keys: Tensor, values: Tensor) -> None:
    shapes = [tuple(tensor.shape) for tensor in (queries, keys, values)]
    if any(len(shape) != 2 for shape in shapes):
        raise ConstructionError(
            f"{who} takes matrices of queries, keys and values, got shapes {shapes}."
        )
    if shapes[0][1] != shapes[1][1] or shapes[1][0] != shapes[2][0]:
        raise ConstructionError(
            f"{who}: queries and keys must have the same features, keys and values the same "
            f"count, got shapes {shapes}."
        )
