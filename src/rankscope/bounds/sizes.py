"""The sizes a bound is asked for, checked."""

from dataclasses import dataclass

from rankscope.errors import BoundError

# 3**10_000 has 4,772 digits: beyond this even the logarithm takes long, and nothing is that deep.
DEEPEST = 10_000


def require_at_least(who: str, least: int, **sizes: int) -> None:
    """Refuse sizes below `least`, naming the first one.

    Raises:
        BoundError: if a size is smaller.
    """
    for name, size in sizes.items():
        if size < least:
            raise BoundError(f"{who}: {name} must be at least {least}, got {size}.")


def require_even(who: str, **sizes: int) -> None:
    """Refuse odd sizes, naming the first one.

    Raises:
        BoundError: if a size is odd.
    """
    for name, size in sizes.items():
        if size % 2:
            raise BoundError(
                f"{who}: {name} must be even to be split into equal halves, got {size}."
            )


def require_depth(who: str, depth: int) -> None:
    """Refuse a depth that is not in 1..DEEPEST.

    Raises:
        BoundError: if it is not.
    """
    require_at_least(who, 1, depth=depth)
    if depth > DEEPEST:
        raise BoundError(f"{who}: depth must be at most {DEEPEST:,}, got {depth:,}.")


def require_positions(who: str, left: tuple[int, ...], count: int) -> None:
    """Refuse a left side that repeats, leaves `range(count)`, or leaves a side empty.

    Raises:
        BoundError: if it does.
    """
    if len(set(left)) != len(left) or any(not 0 <= position < count for position in left):
        raise BoundError(
            f"{who}: the left side must hold different positions out of 0..{count - 1}, got {left}."
        )
    if not 0 < len(left) < count:
        raise BoundError(
            f"{who}: both sides need a position, got {len(left)} of {count} on the left."
        )


@dataclass(frozen=True)
class AttentionSizes:
    """Sizes of a softmax-free self-attention network and of the split of its tokens.

    Args:
        depth: number of layers, L.
        width: size of a token vector, d.
        heads: heads per layer, H.
        head_size: size of a head, d_a; `width // heads` if None.
        embedding_rank: rank of the map that makes token vectors, r; `width` if None.
        own_tokens: tokens on the side of the output position, a; `width` if None.
        other_tokens: tokens on the other side, b; `width` if None.
        degree: degree of a layer in its input: 3 is attention, other odd numbers are chains
            W₀(G W₁)(G W₂)…(G W_s) X of degree 2s + 1.

    Example:
        >>> AttentionSizes(depth=2, width=6, heads=3).factors
        4
    """

    depth: int
    width: int
    heads: int = 1
    head_size: int | None = None
    embedding_rank: int | None = None
    own_tokens: int | None = None
    other_tokens: int | None = None
    degree: int = 3

    def __post_init__(self) -> None:
        who = "AttentionSizes"
        require_depth(who, self.depth)
        require_at_least(who, 1, width=self.width, heads=self.heads)
        for name in ("head_size", "embedding_rank", "own_tokens", "other_tokens"):
            size = getattr(self, name)
            if size is not None:
                require_at_least(who, 1, **{name: size})
        if self.degree < 3 or self.degree % 2 == 0:
            raise BoundError(f"{who}: degree must be odd and at least 3, got {self.degree}.")

    @property
    def factors(self) -> int:
        """How many Gram matrices an output multiplies: C = (degree^depth - 1) / 2."""
        return (int(self.degree**self.depth) - 1) // 2

    @property
    def rank(self) -> int:
        """Rank of the token vectors: the embedding rank, capped by the width."""
        return self.width if self.embedding_rank is None else min(self.embedding_rank, self.width)

    @property
    def own(self) -> int:
        """Tokens on the side of the output position."""
        return self.width if self.own_tokens is None else self.own_tokens

    @property
    def other(self) -> int:
        """Tokens on the other side."""
        return self.width if self.other_tokens is None else self.other_tokens

    @property
    def has_standard_heads(self) -> bool:
        """Whether the heads share the width equally, as in the published theorems."""
        return self.head_size is None or self.head_size * self.heads == self.width

    def resolved_head_size(self) -> int:
        """The size of a head.

        Raises:
            BoundError: if it is not given and the heads do not divide the width.
        """
        if self.head_size is not None:
            return self.head_size
        if self.width % self.heads:
            raise BoundError(
                f"AttentionSizes: {self.heads} heads do not divide width {self.width}; "
                "give head_size."
            )
        return self.width // self.heads
