"""Attention with a core matrix between score channels and value channels."""

from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from rankscope.errors import LayerError, TooLargeError
from rankscope.layers.attention_cores import CoreMatrix, DenseCore
from rankscope.layers.attention_diagram import MixingSketch
from rankscope.layers.attention_maps import Maps, Mixed, mix_values
from rankscope.layers.attention_projections import (
    AttentionOptions,
    Projections,
    fresh_projections,
    split_projections,
)
from rankscope.layers.projected_attention import ProjectedAttention

MAX_MAP_ENTRIES = 2**24  # of maps that are given back, unless the caller says otherwise
# Entries of a block over those of the projected queries: with 4, training takes twice the memory of
# multi-head attention that never builds its maps (`python -m benchmarks tunable_attention`).
_BLOCK_SHARE = 3
_SMALL = 2**15  # entries that are never cut into blocks: an eighth of a megabyte


class TunableAttention(ProjectedAttention):
    r"""Attention whose heads are a matrix that can be learned.

    .. math:: S_{btnm} = s \sum_r C_{tr} q_{bnr} k_{bmr}, \qquad
              o_{bnt} = \sum_m \operatorname{softmax}_m(S)_{btnm} v_{bmt}

    with q, k, v of R channels each, the `core` C of R x R and the `scale` s. Multi-head attention
    is the core that is 1 where t and r are in one head and 0 elsewhere (`from_multihead`, exact).
    Weights are 4 F R and those of the core. There are R maps where multi-head attention has H, and
    a dense core costs R² multiplications for each query and key: few parameters, much work.

    Args:
        projections: "query", "key", "value" (F -> R) and "out" (R -> F).
        core: C, in one of the forms of `attention_cores`.
        scale: of the scores, by default 1 / sqrt(R).
        options: dropout, layout and extra keys.
        max_entries: how many entries of scores and weighted queries may exist at once; queries are
            then taken in blocks, which are computed again in the backward pass. None for three
            times as many as the projected queries have (32,768 at least), which keeps the memory
            of training below twice that of multi-head attention; more is faster.

    Reference:
        Liu, Su & Huang (2022), Tuformer (ICLR). The forms of the core follow its released code.
    """

    def __init__(
        self,
        projections: Projections,
        core: CoreMatrix,
        *,
        scale: float | None = None,
        options: AttentionOptions | None = None,
        max_entries: int | None = None,
    ) -> None:
        super().__init__(projections, core.num_maps, options)
        self.core = core
        self.scale = core.num_channels**-0.5 if scale is None else scale
        self.max_entries = max_entries

    @classmethod
    def from_sizes(
        cls,
        num_features: int,
        core: CoreMatrix,
        *,
        kdim: int | None = None,
        vdim: int | None = None,
        bias: bool = True,
        options: AttentionOptions | None = None,
    ) -> "TunableAttention":
        """A layer to be trained from scratch; a core `of_heads` lets it start as multi-head.

        Example:
            >>> layer = TunableAttention.from_sizes(512, DenseCore.of_heads(8, 64), bias=False)
            >>> layer.num_parameters, round(layer.stable_rank())
            (1310720, 8)
        """
        return cls(
            fresh_projections(num_features, core.num_channels, kdim=kdim, vdim=vdim, bias=bias),
            core,
            options=options,
        )

    @classmethod
    def from_multihead(
        cls, attention: nn.MultiheadAttention, form: type[CoreMatrix] = DenseCore
    ) -> "TunableAttention":
        """The same function, with a core that can be learned.

        Raises:
            LayerError: if the form does not contain it (`IdentityCore` and heads of more than one).
        """
        projections = split_projections(attention)
        core = form.of_heads(attention.num_heads, attention.head_dim).to(
            projections["out"].weight  # of the same precision, on the same device
        )
        own = cls(
            projections,
            core,
            scale=attention.head_dim**-0.5,
            options=AttentionOptions.of(attention),
        )
        return own.train(attention.training)

    def stable_rank(self) -> float:
        r"""The effective number of heads, :math:`\|C\|_F^2 / \|C\|_2^2`."""
        return self.core.stable_rank()

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, scale={self.scale:.4g}"

    def _sketch(self) -> MixingSketch:
        return replace(self.core.sketch(), scale=repr(self.scale))

    def _mix(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, maps: Maps
    ) -> Mixed:
        if query.shape[-1] != self.core.num_channels:
            raise LayerError(
                f"TunableAttention: the core has {self.core.num_channels} channels, but the "
                f"projected queries have {query.shape[-1]}."
            )
        entries = query.shape[0] * query.shape[1] * key.shape[1] * self.num_maps
        limit = self.max_entries or MAX_MAP_ENTRIES
        if maps is Maps.EACH and entries > limit:
            raise TooLargeError(
                what="TunableAttention: returning every map",
                entries=entries,
                limit=limit,
                instead="Ask for their average, or raise max_entries.",
            )
        return self._blocks(query, key, value, mask, maps)

    def _blocks(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, maps: Maps
    ) -> Mixed:
        """All at once if it fits, else some samples at a time, and if one is too large, queries."""
        # What one query needs: its scores, and itself weighted for each map.
        each = self.num_maps * (key.shape[1] + query.shape[2])
        limit = self.max_entries or max(_SMALL, _BLOCK_SHARE * query.numel())
        fitting = max(1, limit // each)
        batch, num_queries, _ = query.shape
        if batch * num_queries <= fitting:
            return self._attend(query, key, value, mask, maps)
        samples = max(1, fitting // num_queries)
        queries = min(fitting, num_queries)
        blocks = []
        for first in range(0, batch, samples):
            some = slice(first, first + samples)
            row = [
                self._recomputed(
                    query[some, start : start + queries],
                    key[some],
                    value[some],
                    _part(mask, some, slice(start, start + queries)),
                    maps,
                )
                for start in range(0, num_queries, queries)
            ]
            blocks.append(_joined(row, 1, -2))
        return _joined(blocks, 0, 0)

    def _attend(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, maps: Maps
    ) -> Mixed:
        scores = self.core.scores(query * self.scale, key)
        dropout = self.dropout if self.training else 0.0
        return mix_values(scores, value, mask, dropout=dropout, maps=maps)

    def _recomputed(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, maps: Maps
    ) -> Mixed:
        """As `_attend`, but the maps are not kept for the backward pass."""
        if not torch.is_grad_enabled() or torch.compiler.is_compiling():
            return self._attend(query, key, value, mask, maps)
        mixed: Mixed = checkpoint(
            self._attend,
            query,
            key,
            value,
            mask,
            maps,
            use_reentrant=False,
            # The state of a generator is 5 kB for each block, and only dropout draws.
            preserve_rng_state=self.training and self.dropout > 0,
        )
        return mixed


def _part(mask: Tensor | None, samples: slice, queries: slice) -> Tensor | None:
    """The part of a mask for a block; where it is the same for all, it stays."""
    if mask is None:
        return None
    chosen = mask[samples] if mask.shape[0] > 1 else mask
    return chosen[:, :, queries] if chosen.shape[2] > 1 else chosen


def _joined(blocks: list[Mixed], outputs: int, maps: int) -> Mixed:
    """Blocks put together along a position of the outputs, and one of the maps."""
    weights = [each for _, each in blocks if each is not None]
    mixed = torch.cat([each for each, _ in blocks], outputs)
    return mixed, torch.cat(weights, maps) if weights else None
