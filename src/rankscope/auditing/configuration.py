"""What an audit knows from a configuration alone: shapes and exact parameter counts.

No torch here: a configuration is audited in well under a second.
"""

from dataclasses import asdict, dataclass
from enum import StrEnum

from rankscope.rank.bounds.attention import published_lower_bound
from rankscope.rank.bounds.counting import counting_upper_bound
from rankscope.rank.bounds.sizes import AttentionSizes
from rankscope.rank.bounds.token_mixers import SharedKeys, key_value_forms
from rankscope.theorem import LowerBound, UpperBound


@dataclass(frozen=True)
class Parameters:
    """Exact numbers of parameters by part; a tied tensor is counted once, where it stands first.

    Args:
        embedding: token, position, type and patch embeddings.
        attention: queries, keys, values and outputs, with biases and relative positions.
        feed_forward: both or all three maps of a block, all experts and their routers.
        normalization: scales and shifts.
        head: what follows the last block, if it is not tied to the embedding.
        other: everything else, such as poolers.
    """

    embedding: int = 0
    attention: int = 0
    feed_forward: int = 0
    normalization: int = 0
    head: int = 0
    other: int = 0

    @property
    def total(self) -> int:
        """All of them."""
        return sum(asdict(self).values())

    def __add__(self, other: "Parameters") -> "Parameters":
        """Part by part."""
        mine, theirs = asdict(self), asdict(other)
        return Parameters(**{part: mine[part] + theirs[part] for part in mine})

    def to_dict(self) -> dict[str, int]:
        """Plain data for JSON, the total first."""
        return {"total": self.total, **asdict(self)}


@dataclass(frozen=True)
class Configuration:
    """The shape of a transformer.

    Args:
        family: which reader understood it, such as "gpt2" or "t5".
        depth: blocks; of an encoder with a decoder, those of the deeper of the two.
        width: size of a token vector between blocks.
        heads: attention heads per block.
        head_size: size of a head.
        key_value_heads: fewer than `heads` if keys and values are grouped.
        feed_forward: inner size of a block's feed-forward part (of one expert).
        vocabulary: number of token embeddings; None for images.
        embedding_rank: largest rank that the embedded tokens can have: vocabulary, factorized
            size, or channels x patch², where smaller than the width; otherwise the width.
        parameters: exact counts.
        attention_beyond_width: parameters of attention above heads x head size = width.
        encoder_depth: blocks of the encoder, where there are two stacks.
        decoder_depth: blocks of the decoder, where there are two stacks.
        num_experts: feed-forward experts per block; 1 for dense models.
        latent: size of the vector that keys and values of all heads are read from; None for none.
    """

    family: str
    depth: int
    width: int
    heads: int
    head_size: int
    key_value_heads: int
    feed_forward: int
    vocabulary: int | None
    embedding_rank: int
    parameters: Parameters
    attention_beyond_width: int = 0
    encoder_depth: int | None = None
    decoder_depth: int | None = None
    num_experts: int = 1
    latent: int | None = None

    @property
    def attention_width(self) -> int:
        """Heads x head size."""
        return self.heads * self.head_size

    @property
    def has_shared_keys(self) -> bool:
        """Whether heads share keys and values, or read them from a latent vector."""
        return self.key_value_heads < self.heads or self.latent is not None

    @property
    def visible_share(self) -> float:
        """Share of the linear forms of the tokens' Gram matrix that keys and values can see.

        Attention without softmax knows other tokens through (value map) G (key map)ᵗ only: with few
        groups or a small latent these are fewer than width (width + 1) / 2 forms (docs/proofs.md,
        section 24).
        """
        shared = SharedKeys(self.key_value_heads, self.latent)
        seen = key_value_forms(self.width, self.head_size, shared)
        return seen / (self.width * (self.width + 1) // 2)

    def to_dict(self) -> dict[str, object]:
        """Plain data for JSON; the parameters stand beside it in an audit."""
        fields = asdict(self)
        del fields["parameters"]
        return fields


# --- A depth with a width, and what theory says about the two -------------------------------------


class Regime(StrEnum):
    """The side of depth = log3(width) on which a shape lies (Levine et al. 2020, Thms 7.1, 7.2)."""

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
