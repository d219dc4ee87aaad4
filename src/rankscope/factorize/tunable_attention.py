r"""Attention with a core matrix between score channels and value channels.

With C[t, r] it weighs the product of query and key channel r in the map of value channel t:

.. math:: S_{btnm} = \sum_r C_{tr} q_{bnr} k_{bmr}

Each form of the matrix computes the scores without it, as cheaply as its structure allows.
"""

from abc import ABC, abstractmethod
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from rankscope.diagrams.parts import Index, IndexKind, Node, Role
from rankscope.errors import LayerError, TooLargeError
from rankscope.factorize.projected_attention import (
    AttentionOptions,
    Maps,
    Mixed,
    MixingSketch,
    ProjectedAttention,
    Projections,
    fresh_projections,
    head_indices,
    mix_values,
    rank_index,
    split_heads,
    split_projections,
)


class CoreMatrix(nn.Module, ABC):
    """A core matrix of R x R, in some form.

    Attributes:
        num_channels: R.
        num_maps: how many different attention maps there are; R must be a multiple of it.
    """

    num_channels: int
    num_maps: int

    @abstractmethod
    def matrix(self) -> Tensor:
        """The whole matrix C[t, r]."""

    @abstractmethod
    def scores(self, query: Tensor, key: Tensor) -> Tensor:
        """Scores (batch, num_maps, queries, keys) of projected (batch, length, R) inputs."""

    @classmethod
    @abstractmethod
    def of_heads(cls, num_heads: int, head_size: int) -> "CoreMatrix":
        """The core of multi-head attention: 1 where both channels are in one head, else 0."""

    @abstractmethod
    def sketch(self) -> MixingSketch:
        """The scores as a diagram, without a scale."""

    def stable_rank(self) -> float:
        r"""The effective number of heads, :math:`\|C\|_F^2 / \|C\|_2^2`; H for H heads."""
        matrix = self.matrix().detach().double()
        squares = matrix.square().sum() / torch.linalg.matrix_norm(matrix, 2).square()
        return float(squares)


class DenseCore(CoreMatrix):
    """A free matrix: R² parameters, R maps, R² multiplications for each query and key."""

    def __init__(self, matrix: Tensor) -> None:
        super().__init__()
        if matrix.dim() != 2 or matrix.shape[0] != matrix.shape[1]:
            raise LayerError(f"DenseCore needs a square matrix, got shape {tuple(matrix.shape)}.")
        self.entries = nn.Parameter(matrix.detach().clone())
        self.num_channels = self.num_maps = len(matrix)

    @classmethod
    def of_heads(cls, num_heads: int, head_size: int) -> "DenseCore":
        """See `CoreMatrix.of_heads`."""
        return cls(torch.kron(torch.eye(num_heads), torch.ones(head_size, head_size)))

    def matrix(self) -> Tensor:
        """See `CoreMatrix.matrix`."""
        return self.entries

    def scores(self, query: Tensor, key: Tensor) -> Tensor:
        """Map t is plain attention of queries weighted by row t; the keys are shared."""
        return weighted_products(query, key, self.entries)

    def sketch(self) -> MixingSketch:
        """See `CoreMatrix.sketch`."""
        indices = (rank_index("r", self.num_channels), rank_index("t", self.num_channels))
        core = Node("C", ("t", "r"), Role.CORE, array="core.entries")
        return MixingSketch(indices, ("r",), ("t",), (core,))

    def extra_repr(self) -> str:
        return f"num_channels={self.num_channels}"


class LowRankCore(CoreMatrix):
    """A product of two matrices, R x S and S x R: 2 R S multiplications instead of R²."""

    def __init__(self, left: Tensor, right: Tensor) -> None:
        super().__init__()
        if left.dim() != 2 or right.shape != left.shape[::-1]:
            raise LayerError(
                "LowRankCore needs matrices R x S and S x R, got shapes "
                f"{tuple(left.shape)} and {tuple(right.shape)}."
            )
        self.left = nn.Parameter(left.detach().clone())
        self.right = nn.Parameter(right.detach().clone())
        self.num_channels = self.num_maps = len(left)

    @classmethod
    def of_heads(cls, num_heads: int, head_size: int) -> "LowRankCore":
        """See `CoreMatrix.of_heads`; the matrix rank is the number of heads."""
        left = torch.kron(torch.eye(num_heads), torch.ones(head_size, 1))
        return cls(left, left.mT)

    def matrix(self) -> Tensor:
        """See `CoreMatrix.matrix`."""
        return self.left @ self.right

    def scores(self, query: Tensor, key: Tensor) -> Tensor:
        """S maps first, then R mixtures of them."""
        return torch.einsum("ts,bsnm->btnm", self.left, weighted_products(query, key, self.right))

    def sketch(self) -> MixingSketch:
        """See `CoreMatrix.sketch`."""
        bond = Index("s", len(self.right), "S", IndexKind.RANK)
        outer = (rank_index("r", self.num_channels), rank_index("t", self.num_channels))
        left = Node("C1", ("t", "s"), Role.CORE, array="core.left")
        right = Node("C2", ("s", "r"), Role.CORE, array="core.right")
        return MixingSketch((*outer, bond), ("r",), ("t",), (left, right))

    def extra_repr(self) -> str:
        return f"num_channels={self.num_channels}, matrix_rank={len(self.right)}"


class SkipLeftCore(CoreMatrix):
    """The same weights for every head: C[(h, c), (h, d)] = `value_side`[c] * `score_side`[d].

    Every feature of a query counts `score_side`[d], and every value channel has a temperature.
    """

    def __init__(self, num_heads: int, score_side: Tensor, value_side: Tensor) -> None:
        super().__init__()
        if score_side.dim() != 1 or score_side.shape != value_side.shape:
            raise LayerError(
                "SkipLeftCore needs two vectors of the head size, got shapes "
                f"{tuple(score_side.shape)} and {tuple(value_side.shape)}."
            )
        self.num_heads = num_heads
        self.score_side = nn.Parameter(score_side.detach().clone())
        self.value_side = nn.Parameter(value_side.detach().clone())
        self.num_channels = self.num_maps = num_heads * len(score_side)

    @classmethod
    def of_heads(cls, num_heads: int, head_size: int) -> "SkipLeftCore":
        """See `CoreMatrix.of_heads`."""
        return cls(num_heads, torch.ones(head_size), torch.ones(head_size))

    def matrix(self) -> Tensor:
        """See `CoreMatrix.matrix`."""
        block = torch.outer(self.value_side, self.score_side)
        return torch.kron(torch.eye(self.num_heads).to(block), block)

    def scores(self, query: Tensor, key: Tensor) -> Tensor:
        """One map for each head, at `value_side` many temperatures."""
        of_heads = head_products(query, key, self.num_heads, self.score_side)
        return (of_heads[:, :, None] * self.value_side[:, None, None]).flatten(1, 2)

    def sketch(self) -> MixingSketch:
        """See `CoreMatrix.sketch`."""
        indices = head_indices(self.num_heads, len(self.score_side))
        cores = (
            Node("c2", ("d",), Role.CORE, array="core.score_side"),
            Node("c3", ("c",), Role.CORE, array="core.value_side"),
        )
        return MixingSketch(indices, ("h", "d"), ("h", "c"), cores)

    def extra_repr(self) -> str:
        return f"num_heads={self.num_heads}, head_size={len(self.score_side)}"


class SkipRightCore(CoreMatrix):
    """Heads that mix before the softmax ("talking heads"): C[(g, c), (h, d)] = `mixing`[g, h]."""

    def __init__(self, mixing: Tensor, head_size: int) -> None:
        super().__init__()
        if mixing.dim() != 2 or mixing.shape[0] != mixing.shape[1]:
            raise LayerError(
                f"SkipRightCore needs a square matrix over heads, got shape {tuple(mixing.shape)}."
            )
        self.mixing = nn.Parameter(mixing.detach().clone())
        self.num_maps = len(mixing)
        self.num_channels = self.num_maps * head_size

    @classmethod
    def of_heads(cls, num_heads: int, head_size: int) -> "SkipRightCore":
        """See `CoreMatrix.of_heads`."""
        return cls(torch.eye(num_heads), head_size)

    def matrix(self) -> Tensor:
        """See `CoreMatrix.matrix`."""
        head_size = self.num_channels // self.num_maps
        return torch.kron(self.mixing, torch.ones(head_size, head_size).to(self.mixing))

    def scores(self, query: Tensor, key: Tensor) -> Tensor:
        """The scores of heads, mixed: as cheap as multi-head attention but for the mixing."""
        of_heads = head_products(query, key, self.num_maps)
        return torch.einsum("gh,bhnm->bgnm", self.mixing, of_heads)

    def sketch(self) -> MixingSketch:
        """See `CoreMatrix.sketch`."""
        indices = head_indices(self.num_maps, self.num_channels // self.num_maps)
        mixed = Index("g", self.num_maps, "H", IndexKind.HEAD)
        core = Node("C1", ("g", "h"), Role.CORE, array="core.mixing")
        return MixingSketch((*indices, mixed), ("h", "d"), ("g", "c"), (core,))

    def extra_repr(self) -> str:
        return f"num_heads={self.num_maps}, head_size={self.num_channels // self.num_maps}"


class IdentityCore(CoreMatrix):
    """Every channel by itself: R heads of size 1. Nothing to learn."""

    like: Tensor

    def __init__(self, num_channels: int) -> None:
        super().__init__()
        self.num_channels = self.num_maps = num_channels
        # What `matrix` takes its precision and its device from.
        self.register_buffer("like", torch.empty(0), persistent=False)

    @classmethod
    def of_heads(cls, num_heads: int, head_size: int) -> "IdentityCore":
        """See `CoreMatrix.of_heads`.

        Raises:
            LayerError: if heads have more than one feature, which no identity can join.
        """
        if head_size != 1:
            raise LayerError(
                f"IdentityCore has heads of size 1, so it contains no attention with {num_heads} "
                f"heads of size {head_size}; use DenseCore, SkipLeftCore or SkipRightCore."
            )
        return cls(num_heads)

    def matrix(self) -> Tensor:
        """See `CoreMatrix.matrix`."""
        return torch.eye(self.num_channels).to(self.like)

    def scores(self, query: Tensor, key: Tensor) -> Tensor:
        """One product for each map, query and key."""
        return head_products(query, key, self.num_channels)

    def sketch(self) -> MixingSketch:
        """See `CoreMatrix.sketch`."""
        return MixingSketch((rank_index("r", self.num_channels),), ("r",), ("r",))

    def extra_repr(self) -> str:
        return f"num_channels={self.num_channels}"


def weighted_products(query: Tensor, key: Tensor, rows: Tensor) -> Tensor:
    """Products of queries and keys with channels weighted by each row, as one matmul."""
    weighted = query[:, None] * rows[:, None, :]
    products = weighted.flatten(1, 2) @ key.mT
    return products.reshape(query.shape[0], rows.shape[0], query.shape[1], key.shape[1])


def head_products(
    query: Tensor, key: Tensor, num_heads: int, weights: Tensor | None = None
) -> Tensor:
    """Products (batch, heads, queries, keys) of each head, its features weighted alike."""
    queries, keys = split_heads(query, num_heads), split_heads(key, num_heads)
    return (queries if weights is None else queries * weights) @ keys.mT


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
        core: C, in one of the forms above.
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
            blocks.append(_concatenate(row, 1, -2))
        return _concatenate(blocks, 0, 0)

    def _attend(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, maps: Maps
    ) -> Mixed:
        scores = self.core.scores(query * self.scale, key)
        dropout = self.dropout if self.training else 0.0
        return mix_values(scores, value, mask, dropout=dropout, maps=maps)

    def _recomputed(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, maps: Maps
    ) -> Mixed:
        """Attend as `_attend` does, without keeping the maps for the backward pass."""
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


def _concatenate(blocks: list[Mixed], outputs: int, maps: int) -> Mixed:
    """Blocks put together along a position of the outputs, and one of the maps."""
    weights = [each for _, each in blocks if each is not None]
    mixed = torch.cat([each for each, _ in blocks], outputs)
    return mixed, torch.cat(weights, maps) if weights else None
