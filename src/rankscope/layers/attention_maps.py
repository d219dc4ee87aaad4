"""From scores to outputs: the softmax over keys, dropout, and the sum of the values."""

import math
from enum import Enum, auto

import torch
from torch import Tensor
from torch.nn import functional


class Maps(Enum):
    """Which attention maps a call returns."""

    NONE = auto()
    AVERAGED = auto()
    EACH = auto()


Mixed = tuple[Tensor, Tensor | None]


def split_heads(tensor: Tensor, num_heads: int) -> Tensor:
    """(batch, length, heads * size) as (batch, heads, length, size)."""
    return tensor.reshape(*tensor.shape[:2], num_heads, -1).transpose(1, 2)


def join_heads(tensor: Tensor) -> Tensor:
    """(batch, heads, length, size) as (batch, length, heads * size)."""
    return tensor.transpose(1, 2).flatten(2)


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    *,
    num_heads: int,
    dropout: float,
    maps: Maps,
) -> Mixed:
    """Multi-head attention of projected inputs (batch, length, heads * size)."""
    queries, keys = split_heads(query, num_heads), split_heads(key, num_heads)
    if maps is Maps.NONE:
        values = split_heads(value, num_heads)
        mixed = functional.scaled_dot_product_attention(queries, keys, values, mask, dropout)
        return join_heads(mixed), None
    scores = (queries / math.sqrt(queries.shape[-1])) @ keys.mT
    return mix_values(scores, value, mask, dropout=dropout, maps=maps)


def mix_values(
    scores: Tensor, value: Tensor, mask: Tensor | None, *, dropout: float, maps: Maps
) -> Mixed:
    """Values (batch, keys, channels) by scores (batch, maps, queries, keys).

    Neighbouring channels share a map if there are fewer maps. Maps are returned as PyTorch does:
    after dropout.
    """
    weights = torch.softmax(scores if mask is None else scores + mask, -1)
    weights = functional.dropout(weights, dropout)
    mixed = join_heads(weights @ split_heads(value, scores.shape[1]))
    if maps is Maps.NONE:
        return mixed, None
    return mixed, weights.mean(1) if maps is Maps.AVERAGED else weights
