"""A depth with a width, and what theory says about the two."""

from dataclasses import dataclass
from enum import StrEnum

from rankscope.bounds.attention import published_lower_bound
from rankscope.bounds.counting import counting_upper_bound
from rankscope.bounds.sizes import AttentionSizes
from rankscope.theorem import LowerBound, UpperBound


class Regime(StrEnum):
    """On which side of depth = log3(width) a shape lies (Levine et al. 2020, Thms 7.1 and 7.2)."""

    EFFICIENT = "depth < log3(width)"
    BOUNDARY = "depth = log3(width)"
    INEFFICIENT = "depth > log3(width)"

    @classmethod
    def of(cls, depth: int, width: int) -> "Regime":
        """The regime of a shape.

        Example:
            >>> [str(Regime.of(depth, 9)) for depth in (1, 2, 3)]
            ['depth < log3(width)', 'depth = log3(width)', 'depth > log3(width)']
        """
        reached = int(3**depth)
        if reached == width:
            return cls.BOUNDARY
        return cls.EFFICIENT if reached < width else cls.INEFFICIENT


@dataclass(frozen=True)
class Shape:
    """The sizes of a transformer that the theory of self-attention is about.

    Args:
        depth: blocks.
        width: size of a token vector.
        heads: attention heads per block.
        head_size: size of a head.
        embedding_rank: largest rank of the token vectors.
    """

    depth: int
    width: int
    heads: int
    head_size: int
    embedding_rank: int

    @property
    def regime(self) -> Regime:
        """Depth against log3 of the width."""
        return Regime.of(self.depth, self.width)

    @property
    def count(self) -> UpperBound:
        """Our count: no softmax-free self-attention of this shape has a larger separation rank.

        Sides hold at least as many tokens as the embedding rank; fewer tokens only lower it.
        """
        return counting_upper_bound(
            AttentionSizes(self.depth, self.width, embedding_rank=self.embedding_rank)
        )

    @property
    def lower(self) -> LowerBound | None:
        """The published lower bound for almost all weights, or None where no theorem applies.

        The theorems want heads that share the width equally. Other shapes contain one that does:
        as many heads as fit side by side, all weights beyond them zero; a rank that some weights
        reach is reached by almost all.
        """
        heads = min(self.heads, self.width // self.head_size)
        width = heads * self.head_size
        if width == 0 or self.embedding_rank < width:
            return None
        return published_lower_bound(AttentionSizes(self.depth, width, heads))

    def bounds_to_dict(self) -> dict[str, float | None]:
        """Logarithms to the base 3 of the two bounds; None where no theorem applies."""
        lower = self.lower
        return {
            "count_log3": self.count.log3,
            "lower_log3": None if lower is None else lower.log3,
        }
