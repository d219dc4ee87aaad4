"""Softmax-free multi-head self-attention of any depth."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from rankscope.architectures.arithmetic import Arithmetic, Reals
from rankscope.architectures.attention.diagram import AttentionShape, attention_network
from rankscope.architectures.attention.layers import (
    AttentionLayer,
    ChainLayer,
    attend,
    follow_chain,
    normal,
)
from rankscope.architectures.network import KnownBounds, PolynomialNetwork, Setting
from rankscope.architectures.sizes import require_sizes
from rankscope.bounds.attention import (
    published_lower_bound,
    published_upper_bound,
    quadric_lower_bound,
)
from rankscope.bounds.counting import MAX_FACTORS, counting_terms, counting_upper_bound
from rankscope.bounds.heads import heads_terms, heads_upper_bound
from rankscope.bounds.monomials import monomial_lower_bound
from rankscope.bounds.sizes import AttentionSizes
from rankscope.diagrams.network import Network
from rankscope.errors import BoundError, SizeError
from rankscope.separation.measuring.split_function import SplitFunction
from rankscope.separation.partition import Partition
from rankscope.theorem import LowerBound, UpperBound


class SelfAttention(PolynomialNetwork):
    r"""Attention layers without softmax, residuals or feed-forward parts.

    .. math:: y^i = \sum_h W^O_h \sum_j \langle W^Q_h x^i, W^K_h x^j \rangle\, W^V_h x^j

    The output is coordinate 0 of the token at the output position. With the Gram matrix
    G = XXᵗ it is e_0ᵗ F(G) x^i with F homogeneous of degree C = (3^L - 1) / 2, so that it mixes
    C + 1 input vectors.

    Args:
        depth: number of layers, L.
        width: size of a token vector, d.
        heads: heads per layer, H.
        head_size: size of a head, d_a; `width // heads` if None.
        num_tokens: number of inputs, N; `2 * width` if None.
        embedding_rank: tokens are `embedding` (width, rank) times inputs of this size; inputs
            are the tokens if None.
        degree: of a layer in its tokens; beyond 3 a layer is the chain
            W₀(G W₁)(G W₂)…(G W_s) X of odd degree 2s + 1.
        output_position: which token the output is read from.
        has_positions: whether `positions` (num_tokens, width) are added to the tokens.
        generator: where the initial weights come from.

    Example:
        >>> SelfAttention(depth=2, width=4, heads=2)(torch.ones(3, 8, 4)).shape
        torch.Size([3])

    Raises:
        SizeError: if a size does not fit, or heads are asked for in a layer of higher degree.

    Reference:
        Levine et al. (2020), eqs 7.5 to 7.7 of the 2022 book chapter, arXiv:2006.12467.
    """

    family = "attention"

    def __init__(  # noqa: PLR0913 - a certificate names each of these
        self,
        *,
        depth: int,
        width: int,
        heads: int = 1,
        head_size: int | None = None,
        num_tokens: int | None = None,
        embedding_rank: int | None = None,
        degree: int = 3,
        output_position: int = 0,
        has_positions: bool = False,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        count = 2 * width if num_tokens is None else num_tokens
        require_sizes("SelfAttention", depth=depth, width=width, heads=heads, num_tokens=count)
        if embedding_rank is not None:
            require_sizes("SelfAttention", embedding_rank=embedding_rank)
        _require_odd_degree(degree, heads, head_size)
        self.depth, self.width, self.heads, self.degree = depth, width, heads, degree
        self.head_size = _resolved_head_size(width, heads, head_size)
        self.num_positions = count
        if not 0 <= output_position < count:
            raise SizeError(
                f"SelfAttention: the output position must lie in 0..{count - 1}, "
                f"got {output_position}."
            )
        self.output_position = output_position
        self.embedding_rank, self.has_positions = embedding_rank, has_positions
        self.input_size = width if embedding_rank is None else embedding_rank
        if embedding_rank is not None:
            self.embedding = nn.Parameter(
                normal((width, embedding_rank), embedding_rank, generator)
            )
        if has_positions:
            self.positions = nn.Parameter(normal((count, width), 4, generator))
        self.layers = nn.ModuleList(
            AttentionLayer(width, heads, self.head_size, count, generator=generator)
            if degree == 3
            else ChainLayer(width, degree, count, generator=generator)
            for _ in range(depth)
        )

    @property
    def settings(self) -> dict[str, Setting]:
        """All arguments but the generator; sizes that were left out are written down."""
        return {
            "depth": self.depth,
            "width": self.width,
            "heads": self.heads,
            "head_size": self.head_size if self.degree == 3 else None,
            "num_tokens": self.num_positions,
            "embedding_rank": self.embedding_rank,
            "degree": self.degree,
            "output_position": self.output_position,
            "has_positions": self.has_positions,
        }

    @property
    def weight_degree(self) -> int:
        """Each layer multiplies `degree` tokens and four matrices, a chain (degree + 1) / 2."""
        found = int(self.embedding_rank is not None or self.has_positions)
        matrices = 4 if self.degree == 3 else (self.degree + 1) // 2
        for _ in range(self.depth):
            found = self.degree * found + matrices
        return found

    @property
    def input_degree(self) -> int:
        """degree^depth = 2 C + 1."""
        return int(self.degree**self.depth)

    def compute(self, numbers: Arithmetic, weights: Mapping[str, Tensor], inputs: Tensor) -> Tensor:
        """Coordinate 0 of the token at the output position, after all layers."""
        return self._tokens(numbers, weights, inputs)[:, self.output_position, 0]

    def tokens(self, inputs: Tensor) -> Tensor:
        """All tokens (batch, num_tokens, width) after all layers, in floating point.

        Raises:
            SizeError: if the inputs are not (batch, num_tokens, input_size).
        """
        self.require_inputs(tuple(inputs.shape))
        return self._tokens(Reals(), dict(self.named_parameters()), inputs)

    def upper_bound(self, partition: Partition) -> UpperBound:
        """The counting bound, refined by what the heads can see where that can be summed."""
        sizes = self._sizes(partition, has_subspace=not self.has_positions)
        counted = counting_upper_bound(sizes)
        if self.degree != 3 or sizes.factors > MAX_FACTORS:
            return counted
        refined = heads_upper_bound(sizes)
        return counted if refined.value == counted.value else refined

    def lower_bound(self, partition: Partition) -> LowerBound | None:
        """The best of our bounds by explicit weights; positions among them may be 0."""
        sizes = self._sizes(partition, has_subspace=True)
        found = []
        for bound in (quadric_lower_bound, monomial_lower_bound):
            try:
                found.append(bound(sizes))
            except BoundError:  # its theorem does not cover these sizes
                continue
        return max(found, key=lambda bound: bound.log3, default=None)

    def known_bounds(self, partition: Partition) -> KnownBounds:
        """The published bounds, and our count beside them; both also for very large sizes."""
        least = self._sizes(partition, has_subspace=True)  # positions may be 0
        most = self._sizes(partition, has_subspace=not self.has_positions)
        return KnownBounds(
            published_lower_bound(least), published_upper_bound(most), counting_upper_bound(most)
        )

    def grade_degrees(self, partition: Partition) -> tuple[int, ...]:
        """Even degrees if the output stands on the left, odd ones if it stands on the right."""
        if self.has_positions:
            return (0,)
        first = int(self.output_position in partition.right)
        return tuple(range(first, self.input_degree + first, 2))

    def grade_upper_bounds(self, partition: Partition) -> tuple[int, ...] | None:
        """The terms of the upper bound, by degree in the right side."""
        sizes = self._sizes(partition, has_subspace=not self.has_positions)
        if self.has_positions or sizes.factors > MAX_FACTORS:
            return None
        terms = heads_terms(sizes) if self.degree == 3 else counting_terms(sizes)
        return terms if self.output_position in partition.left else terms[::-1]

    def diagram(self) -> Network:
        """One step for each layer, on the array `x` (num_tokens, input_size)."""
        return attention_network(
            AttentionShape(
                depth=self.depth,
                width=self.width,
                num_tokens=self.num_positions,
                output_position=self.output_position,
                heads=self.heads if self.degree == 3 else None,
                head_size=self.head_size,
                num_factors=(self.degree + 1) // 2,
                embedding_rank=self.embedding_rank,
                has_positions=self.has_positions,
            )
        )

    def split_class(self) -> Callable[..., SplitFunction]:
        """The output as a function of the two sides, which meet in their Gram matrices only."""
        from rankscope.architectures.attention.moments import MomentFunction

        return MomentFunction

    def _tokens(self, numbers: Arithmetic, weights: Mapping[str, Tensor], inputs: Tensor) -> Tensor:
        tokens = inputs
        if self.embedding_rank is not None:
            tokens = numbers.contract("kr,btr->btk", weights["embedding"], tokens)
        if self.has_positions:
            tokens = numbers.add(tokens, weights["positions"])
        layer = attend if self.degree == 3 else follow_chain
        for number in range(self.depth):
            tokens = layer(numbers, weights, f"layers.{number}", tokens)
        return tokens

    def _sizes(self, partition: Partition, *, has_subspace: bool) -> AttentionSizes:
        """What the theorems need; `has_subspace`: whether tokens lie in the embedding's image."""
        self.require_covered(partition)
        is_left = self.output_position in partition.left
        own, other = len(partition.left), len(partition.right)
        return AttentionSizes(
            depth=self.depth,
            width=self.width,
            heads=self.heads,
            head_size=self.head_size,
            embedding_rank=self.embedding_rank if has_subspace else None,
            own_tokens=own if is_left else other,
            other_tokens=other if is_left else own,
            degree=self.degree,
        )


def _require_odd_degree(degree: int, heads: int, head_size: int | None) -> None:
    if degree < 3 or degree % 2 == 0:
        raise SizeError(f"SelfAttention: the degree must be odd and at least 3, got {degree}.")
    if degree > 3 and (heads != 1 or head_size is not None):
        raise SizeError(
            f"SelfAttention: a layer of degree {degree} is a chain of square matrices without "
            f"heads, got heads={heads} and head_size={head_size}. Leave them out, or use degree 3."
        )


def _resolved_head_size(width: int, heads: int, head_size: int | None) -> int:
    if head_size is not None:
        require_sizes("SelfAttention", head_size=head_size)
        return head_size
    if width % heads:
        raise SizeError(
            f"SelfAttention: {heads} heads do not divide width {width}; give head_size."
        )
    return width // heads
