r"""The core matrix of a tunable attention: which score channels feed which value channels.

With C[t, r] it weighs the product of query and key channel r in the map of value channel t:

.. math:: S_{btnm} = \sum_r C_{tr} q_{bnr} k_{bmr}

Each form computes the scores without the matrix, as cheaply as its structure allows.
"""

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from rankscope.diagrams.parts import Index, IndexKind, Node, Role
from rankscope.errors import LayerError
from rankscope.layers.attention_diagram import MixingSketch, head_indices, rank_index
from rankscope.layers.attention_maps import split_heads


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
    """For each row, products of queries and keys with channels weighted by it, as one matmul."""
    weighted = query[:, None] * rows[:, None, :]
    products = weighted.flatten(1, 2) @ key.mT
    return products.reshape(query.shape[0], rows.shape[0], query.shape[1], key.shape[1])


def head_products(
    query: Tensor, key: Tensor, num_heads: int, weights: Tensor | None = None
) -> Tensor:
    """Products (batch, heads, queries, keys) of each head, its features weighted alike."""
    queries, keys = split_heads(query, num_heads), split_heads(key, num_heads)
    return (queries if weights is None else queries * weights) @ keys.mT
