"""Attention in CP form: every channel is a head of its own."""

from torch import Tensor, nn

from rankscope.errors import LayerError
from rankscope.layers.projected_attention import (
    AttentionOptions,
    Maps,
    Mixed,
    MixingSketch,
    ProjectedAttention,
    Projections,
    attend,
    fresh_projections,
    rank_index,
    split_projections,
)


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
