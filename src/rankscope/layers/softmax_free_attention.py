"""Multi-head attention without a softmax: the polynomial that separation ranks are about."""

import math

import torch
from torch import Tensor

from rankscope.diagrams.functions import Function
from rankscope.errors import LayerError
from rankscope.layers.projected_attention import (
    AttentionOptions,
    Maps,
    Mixed,
    MixingSketch,
    ProjectedAttention,
    Projections,
    head_indices,
    join_heads,
    split_heads,
)


class SoftmaxFreeAttention(ProjectedAttention):
    r"""Heads whose scores are the weights themselves, averaged over the keys in sight.

    .. math:: o_{bnhd} = \frac{1}{|m|} \sum_m \frac{1}{\sqrt D}
              \Bigl(\sum_c q_{bnhc} k_{bmhc}\Bigr) v_{bmhd}

    The average keeps outputs of one size for sequences of any length. Without masks it divides by
    a constant, which changes no separation rank.

    Args:
        projections: "query", "key", "value" and "out".
        num_heads: H; must divide the channels.
        options: layout; dropout and extra keys are for maps of positive weights, and refused.

    Raises:
        LayerError: if heads do not share the channels evenly, or an option does not fit.

    Reference:
        Levine et al. (2020), eq. 7.6 of the 2022 book chapter, arXiv:2006.12467.
    """

    def __init__(
        self, projections: Projections, num_heads: int, options: AttentionOptions | None = None
    ) -> None:
        super().__init__(projections, num_heads, options)
        channels = self.query.out_features
        if channels % num_heads:
            raise LayerError(
                f"SoftmaxFreeAttention: {num_heads} heads cannot share {channels} channels evenly."
            )
        if self.dropout or self.add_zero_attn or self.bias_k is not None:
            raise LayerError(
                "SoftmaxFreeAttention takes no dropout of maps and no extra keys, got dropout="
                f"{self.dropout}, add_zero_attn={self.add_zero_attn}, "
                f"bias_k={self.bias_k is not None}."
            )
        self.num_heads = num_heads

    def _sketch(self) -> MixingSketch:
        indices = head_indices(self.num_heads, self.query.out_features // self.num_heads)
        return MixingSketch(
            indices, ("h", "d"), ("h", "c"), scale="D**-0.5/M", function=Function("identity")
        )

    def _mix(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, maps: Maps
    ) -> Mixed:
        queries, keys = split_heads(query, self.num_heads), split_heads(key, self.num_heads)
        scores = (queries / math.sqrt(queries.shape[-1])) @ keys.mT
        weights = scores / scores.shape[-1] if mask is None else _averaged(scores, mask)
        mixed = join_heads(weights @ split_heads(value, self.num_heads))
        if maps is Maps.NONE:
            return mixed, None
        return mixed, weights.mean(1) if maps is Maps.AVERAGED else weights


def _averaged(scores: Tensor, mask: Tensor) -> Tensor:
    """Scores over the number of keys in sight, 0 for the others and for queries that see none."""
    in_sight = mask == 0
    if not bool((in_sight | (mask == -math.inf)).all()):
        raise LayerError(
            "SoftmaxFreeAttention: a mask can only hide keys (True or -inf), but this one adds "
            f"other numbers, such as {float(mask[~in_sight & (mask != -math.inf)][0]):g}."
        )
    counts = in_sight.sum(-1, keepdim=True).clamp(min=1)
    return torch.where(in_sight, scores, 0.0) / counts
