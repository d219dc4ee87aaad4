"""Multi-head attention whose projections are written as small tensors."""

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from rankscope.diagrams.parts import Function
from rankscope.errors import LayerError
from rankscope.factorize.formats.format import Format, Ranks
from rankscope.factorize.linear import FactorizedLinear, check_names, dense_linear
from rankscope.factorize.projected_attention import (
    PROJECTIONS,
    AttentionOptions,
    Maps,
    Mixed,
    MixingSketch,
    ProjectedAttention,
    Projections,
    attend,
    fresh_projections,
    head_indices,
    join_heads,
    join_projections,
    rank_index,
    split_heads,
    split_projections,
)


class FactorizedMultiheadAttention(ProjectedAttention):
    r"""Multi-head attention with each projection dense or factorized.

    .. math:: S_{bhnm} = \sum_d q_{bnhd} k_{bmhd} / \sqrt D, \qquad
              o_{bnhd} = \sum_m \operatorname{softmax}_m(S)_{bhnm} v_{bmhd}

    with q, k, v and the output o projected by `query`, `key`, `value` and `out`.

    Example:
        >>> from rankscope.factorize.formats.catalogue import FORMATS
        >>> dense = nn.MultiheadAttention(8, 2, batch_first=True)
        >>> small = FactorizedMultiheadAttention.from_dense(
        ...     dense, {"query": (FORMATS["svd"], (2,))}
        ... )
        >>> type(small.query).__name__, type(small.key).__name__
        ('FactorizedLinear', 'Linear')
    """

    def __init__(
        self, projections: Projections, num_heads: int, options: AttentionOptions | None = None
    ) -> None:
        super().__init__(projections, num_heads, options)
        self.num_heads = num_heads

    @classmethod
    def of(
        cls, attention: nn.MultiheadAttention, projections: Projections | None = None
    ) -> "FactorizedMultiheadAttention":
        """The same attention with some projections replaced; the others are dense copies.

        Raises:
            LayerError: if a name is none of the four.
        """
        given = dict(projections or {})
        check_names("FactorizedMultiheadAttention", given, PROJECTIONS)
        parts = {**split_projections(attention), **given}
        own = cls(parts, attention.num_heads, AttentionOptions.of(attention))
        return own.train(attention.training)

    @classmethod
    def from_dense(
        cls,
        attention: nn.MultiheadAttention,
        choices: Mapping[str, tuple[Format, Ranks]],
        *,
        seed: int = 0,
    ) -> "FactorizedMultiheadAttention":
        """Decompose the projections that are named; the others stay dense.

        Args:
            attention: the dense layer, left as it is.
            choices: format and ranks by "query", "key", "value" or "out".
            seed: for formats whose decomposition starts at random.

        Raises:
            LayerError: if a name is none of the four, or a format does not take the matrix.
        """
        check_names("FactorizedMultiheadAttention", choices, PROJECTIONS)
        dense = split_projections(attention)
        parts = {
            name: FactorizedLinear.from_dense(dense[name], format, ranks, seed=seed)
            for name, (format, ranks) in choices.items()
        }
        return cls.of(attention, parts)

    def to_dense(self) -> nn.MultiheadAttention:
        """The dense attention that this one stands for."""
        linears = {name: dense_linear(module) for name, module in self.projections.items()}
        dense = join_projections(linears, self.options, num_heads=self.num_heads)
        return dense.train(self.training)

    def _sketch(self) -> MixingSketch:
        indices = head_indices(self.num_heads, self.query.out_features // self.num_heads)
        return MixingSketch(indices, ("h", "d"), ("h", "c"), scale="D**-0.5")

    def _mix(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, maps: Maps
    ) -> Mixed:
        dropout = self.dropout if self.training else 0.0
        return attend(query, key, value, mask, num_heads=self.num_heads, dropout=dropout, maps=maps)


# --- Attention in CP form: every channel is a head of its own -------------------------------------


class CPAttention(ProjectedAttention):
    r"""Tunable attention with the identity as its core: R heads of size 1.

    .. math:: S_{brnm} = q_{bnr} k_{bmr}, \qquad
              o_{bnr} = \sum_m \operatorname{softmax}_m(S)_{brnm} v_{bmr}

    It holds 4 F R weights, and never builds the maps unless they are asked for. It is smaller, not
    as expressive as heads of size D > 1 at R = H, nor more so at R = D H: scores of a head of size
    1 are a product of two numbers, so that over all queries its largest weight falls on one of at
    most two keys (that with the largest k, or the smallest), while a head of size 2 can pick any of
    eight keys on a circle.

    Args:
        projections: "query", "key", "value" (F -> R) and "out" (R -> F).
        num_channels: R.
        options: dropout, layout and extra keys.

    Reference:
        Liu, Su & Huang (2022), Tuformer (ICLR), where it is called heads-only.
    """

    def __init__(
        self, projections: Projections, num_channels: int, options: AttentionOptions | None = None
    ) -> None:
        super().__init__(projections, num_channels, options)
        self.num_channels = num_channels

    @classmethod
    def from_sizes(
        cls,
        num_features: int,
        num_channels: int,
        *,
        kdim: int | None = None,
        vdim: int | None = None,
        bias: bool = True,
        options: AttentionOptions | None = None,
    ) -> "CPAttention":
        """A layer to be trained from scratch.

        Example:
            >>> CPAttention.from_sizes(512, 8, bias=False).num_parameters
            16384
        """
        parts = fresh_projections(num_features, num_channels, kdim=kdim, vdim=vdim, bias=bias)
        return cls(parts, num_channels, options)

    @classmethod
    def from_multihead(cls, attention: nn.MultiheadAttention) -> "CPAttention":
        """The same function, for heads of size 1 only.

        Raises:
            LayerError: if heads are larger.
        """
        if attention.head_dim != 1:
            raise LayerError(
                f"CPAttention has heads of size 1 and cannot compute {attention.num_heads} heads "
                f"of size {attention.head_dim}; use TunableAttention.from_multihead."
            )
        parts, options = split_projections(attention), AttentionOptions.of(attention)
        return cls(parts, attention.num_heads, options).train(attention.training)

    def _sketch(self) -> MixingSketch:
        return MixingSketch((rank_index("r", self.num_channels),), ("r",), ("r",))

    def _mix(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, maps: Maps
    ) -> Mixed:
        dropout = self.dropout if self.training else 0.0
        return attend(
            query, key, value, mask, num_heads=self.num_channels, dropout=dropout, maps=maps
        )


# --- Multi-head attention without a softmax: the polynomial that separation ranks are about -------


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
        weights = scores / scores.shape[-1] if mask is None else _average(scores, mask)
        mixed = join_heads(weights @ split_heads(value, self.num_heads))
        if maps is Maps.NONE:
            return mixed, None
        return mixed, weights.mean(1) if maps is Maps.AVERAGED else weights


def _average(scores: Tensor, mask: Tensor) -> Tensor:
    """Scores over the number of keys in sight, 0 for the others and for queries that see none."""
    in_sight = mask == 0
    # While torch traces, there are no numbers to look at.
    if not torch.compiler.is_compiling() and not bool((in_sight | (mask == -math.inf)).all()):
        raise LayerError(
            "SoftmaxFreeAttention: a mask can only hide keys (True or -inf), but this one adds "
            f"other numbers, such as {float(mask[~in_sight & (mask != -math.inf)][0]):g}."
        )
    counts = in_sight.sum(-1, keepdim=True).clamp(min=1)
    return torch.where(in_sight, scores, 0.0) / counts
