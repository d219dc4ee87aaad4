"""Multi-head attention whose projections are written as small tensors."""

from collections.abc import Mapping

from torch import Tensor, nn

from rankscope.layers.formats.format import Format, Ranks
from rankscope.layers.linear import FactorizedLinear, check_names, dense_linear
from rankscope.layers.projected_attention import (
    PROJECTIONS,
    AttentionOptions,
    Maps,
    Mixed,
    MixingSketch,
    ProjectedAttention,
    Projections,
    attend,
    head_indices,
    join_projections,
    split_projections,
)


class FactorizedMultiheadAttention(ProjectedAttention):
    r"""Multi-head attention with each projection dense or factorized.

    .. math:: S_{bhnm} = \sum_d q_{bnhd} k_{bmhd} / \sqrt D, \qquad
              o_{bnhd} = \sum_m \operatorname{softmax}_m(S)_{bhnm} v_{bmhd}

    with q, k, v and the output o projected by `query`, `key`, `value` and `out`.

    Example:
        >>> from rankscope.layers.formats.catalogue import FORMATS
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
