"""The layers of softmax-free attention, token by token, for real numbers and for residues."""

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from rankscope.architectures.arithmetic import Arithmetic


class AttentionLayer(nn.Module):
    r"""The weights of multi-head attention without softmax, of degree 3 in its tokens.

    .. math:: y^i = \sum_h W^O_h \sum_j \langle W^Q_h x^i, W^K_h x^j \rangle\, W^V_h x^j

    `query`, `key` and `value` are (heads, head_size, width), `output` is (width, heads,
    head_size). They are drawn so that independent tokens of variance 1 give outputs of variance
    about 1.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        head_size: int,
        num_tokens: int,
        *,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        inner = (heads, head_size, width)
        self.query = nn.Parameter(normal(inner, width, generator))
        self.key = nn.Parameter(normal(inner, width, generator))
        self.value = nn.Parameter(normal(inner, width, generator))
        # A sum over the tokens of (score times value), which are partly aligned.
        summed = num_tokens * head_size * (1 + num_tokens / width)
        self.output = nn.Parameter(
            normal((width, heads, head_size), heads * head_size * summed, generator)
        )


class ChainLayer(nn.Module):
    r"""The weights of a layer of odd degree 2s + 1: `factors` are W_0, …, W_s, (width, width).

    .. math:: Y = W_0 (G W_1)(G W_2) \cdots (G W_s) X, \qquad G = X X^T
    """

    def __init__(
        self, width: int, degree: int, num_tokens: int, *, generator: torch.Generator | None = None
    ) -> None:
        super().__init__()
        summed = num_tokens * (num_tokens + width)  # the second moment of G times a unit vector
        self.factors = nn.ParameterList(
            normal((width, width), width * (summed if place else 1), generator)
            for place in range((degree + 1) // 2)
        )


def attend(
    numbers: Arithmetic, weights: Mapping[str, Tensor], prefix: str, tokens: Tensor
) -> Tensor:
    """The tokens (batch, tokens, width) after an `AttentionLayer`."""
    queries, keys, values = (
        numbers.contract("hak,btk->bhta", weights[f"{prefix}.{name}"], tokens)
        for name in ("query", "key", "value")
    )
    scores = numbers.contract("bhia,bhja->bhij", queries, keys)
    mixed = numbers.contract("bhij,bhja->bhia", scores, values)
    return numbers.contract("kha,bhia->bik", weights[f"{prefix}.output"], mixed)


def follow_chain(
    numbers: Arithmetic, weights: Mapping[str, Tensor], prefix: str, tokens: Tensor
) -> Tensor:
    """The tokens (batch, tokens, width) after a `ChainLayer`."""
    num_factors = sum(name.startswith(f"{prefix}.factors.") for name in weights)
    found = tokens
    for place in reversed(range(num_factors)):
        found = numbers.contract("kf,bif->bik", weights[f"{prefix}.factors.{place}"], found)
        if place:
            scores = numbers.contract("bik,bjk->bij", found, tokens)
            found = numbers.contract("bij,bjk->bik", scores, tokens)
    return found


def normal(
    shape: tuple[int, ...], inverse_variance: int | float, generator: torch.Generator | None
) -> Tensor:
    """Draw entries of mean 0."""
    device = None if generator is None else generator.device
    drawn = torch.randn(shape, generator=generator, device=device)
    return drawn / math.sqrt(inverse_variance)
