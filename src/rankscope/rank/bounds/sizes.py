"""The sizes a bound is asked for, checked."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from rankscope.errors import BoundError, readable

# 3**10_000 has 4,772 digits: beyond this even the logarithm takes long, and nothing is that deep.
DEEPEST = 10_000
# Widths, heads, tokens and degrees; logarithms of bounds stay within float64 up to here.
LARGEST = 10**9


def require_at_least(who: str, least: int, **sizes: int) -> None:
    """Refuse sizes below `least`, naming the first one.

    Raises:
        BoundError: if a size is smaller.
    """
    for name, size in sizes.items():
        if size < least:
            raise BoundError(f"{who}: {name} must be at least {least}, got {size}.")


def require_at_most(who: str, most: int, **sizes: int) -> None:
    """Refuse sizes above `most`, naming the first one.

    Raises:
        BoundError: if a size is larger.
    """
    for name, size in sizes.items():
        if size > most:
            raise BoundError(f"{who}: {name} must be at most {most:,}, got {readable(size)}.")


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
    require_at_most(who, DEEPEST, depth=depth)


def require_positions(who: str, left: tuple[int, ...], count: int) -> None:
    """Refuse a left side that repeats, leaves `range(count)`, or leaves a side empty.

    Raises:
        BoundError: if it does.
    """
    if len(set(left)) != len(left) or any(not 0 <= position < count for position in left):
        raise BoundError(
            f"{who}: the left side must hold different positions out of 0..{count - 1}, "
            f"got {str(left)[:80]}."
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
        for name in ("width", "heads", "head_size", "embedding_rank", "own_tokens", "other_tokens"):
            size = getattr(self, name)
            if size is not None:
                require_at_least(who, 1, **{name: size})
                require_at_most(who, LARGEST, **{name: size})
        require_at_most(who, LARGEST, degree=self.degree)
        if self.degree < 3 or self.degree % 2 == 0:
            raise BoundError(f"{who}: degree must be odd and at least 3, got {self.degree}.")
        deepest = math.ceil(DEEPEST * math.log(3) / math.log(self.degree))
        require_at_most(who, deepest, **{f"depth with layers of degree {self.degree}": self.depth})

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
    def is_balanced(self) -> bool:
        """Whether both sides have the same number of tokens, as in the published theorems."""
        return self.own == self.other

    @property
    def has_standard_heads(self) -> bool:
        """Whether the heads share the width equally, as in the published theorems."""
        return self.head_size is None or self.head_size * self.heads == self.width

    def with_tokens_for_rank(self) -> "AttentionSizes":
        """The same network on at least as many tokens per side as their rank.

        An upper bound for it holds for fewer tokens: they are a restriction, some tokens being 0.
        """
        return replace(
            self,
            own_tokens=max(self.own, self.rank),
            other_tokens=max(self.other, self.rank),
        )

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


# --- How many independent polynomials of one degree a few tokens allow, by Weyl's dimensions ------


# Partitions summed over for one table, a few seconds of work.
MAX_PARTITIONS = 30_000


def weyl_dimension(shape: tuple[int, ...], size: int) -> int:
    r"""Dimension of the irreducible representation of GL(size) of a partition.

    .. math:: \dim S_\mu(\mathbb{C}^r) = \prod_{i<j} \frac{\mu_i - \mu_j + j - i}{j - i}

    The rows below the shape are empty, so their factors are taken together as falling factorials.

    Example:
        >>> weyl_dimension((2,), 3), weyl_dimension((2, 1), 3), weyl_dimension((1, 1, 1), 3)
        (6, 8, 1)

    Reference:
        Fulton & Harris, Representation Theory, Thm 6.3.
    """
    rows = len(shape)
    if rows > size:
        return 0
    top, bottom = 1, 1
    for i, row in enumerate(shape, start=1):
        for j in range(i + 1, rows + 1):
            top *= row - shape[j - 1] + j - i
            bottom *= j - i
        # (row + size - i)! (rows - i)! / ((row + rows - i)! (size - i)!)
        top *= math.perm(row + size - i, row)
        bottom *= math.perm(row + rows - i, row)
    return top // bottom


def partitions(total: int, max_parts: int) -> Iterator[tuple[int, ...]]:
    """Partitions of `total` into exactly `max_parts` parts that may be zero, largest first.

    Example:
        >>> list(partitions(3, 2))
        [(3, 0), (2, 1)]

    Reference:
        Stanley, Enumerative Combinatorics 1, Sec. 1.7.
    """
    return _partitions(total, max_parts, total)


def invariant_count(rank: int, tokens: int, degree: int) -> int:
    r"""Independent polynomials of a degree in the entries of G = X Xᵗ, X of `rank` rows.

    .. math:: h_{inv}(r, b, k) = \sum_{\lambda \vdash k,\, \ell(\lambda) \le b}
              \dim S_{2\lambda}(\mathbb{C}^r)

    with r = `rank`, b = `tokens`, k = `degree`.

    Example:
        >>> invariant_count(2, 1, 2), invariant_count(2, 2, 2)
        (5, 6)

    Reference:
        De Concini & Procesi (1976), A characteristic free approach to invariant theory.
    """
    parts = max(1, min(tokens, rank, degree))  # no partition has more rows than boxes
    return sum(
        weyl_dimension(tuple(2 * row for row in shape), rank) for shape in partitions(degree, parts)
    )


def covariant_count(rank: int, tokens: int, degree: int) -> int:
    r"""Independent products of a token's coordinate and a polynomial of a degree in G = X Xᵗ.

    .. math:: h_{cov}(r, a, j) = \sum_{\mu = 2\lambda + \square,\, \lambda \vdash j,\,
              \ell(\mu) \le a} \dim S_\mu(\mathbb{C}^r)

    with r = `rank`, a = `tokens` (that token among them), j = `degree`. A box that makes no
    partition needs no exception: its Weyl product has a factor zero.

    Example:
        >>> covariant_count(2, 1, 1), covariant_count(2, 2, 1)
        (4, 6)

    Reference:
        De Concini & Procesi (1976), A characteristic free approach to invariant theory.
    """
    parts = min(tokens, rank, degree + 1)
    return sum(
        weyl_dimension(tuple(2 * row + (i == box) for i, row in enumerate(shape)), rank)
        for shape in partitions(degree, parts)
        for box in range(parts)
    )


def require_few_partitions(rank: int, tokens: int, num_degrees: int) -> None:
    """Refuse a table that would sum over too many partitions.

    Raises:
        BoundError: if there are more than `MAX_PARTITIONS`.

    Reference:
        Stanley, Enumerative Combinatorics 1, Sec. 1.7.
    """
    limit = MAX_PARTITIONS
    if num_degrees <= limit and _num_partitions(min(tokens, rank), num_degrees, limit) <= limit:
        return
    raise BoundError(
        f"counting bound: {tokens} tokens on one side with vectors of rank {rank} need sums over "
        f"more than {limit:,} partitions (degrees up to {num_degrees - 1:,}). Ask for at "
        f"least {rank} tokens on each side: that bound holds for any number of tokens."
    )


def _num_partitions(max_parts: int, num_degrees: int, limit: int) -> int:
    """Partitions of 0, 1, …, num_degrees - 1 into at most `max_parts` parts; stops past `limit`."""
    ways = [1] + [0] * (num_degrees - 1)
    for part in range(1, min(max_parts, num_degrees) + 1):
        for total in range(part, num_degrees):
            ways[total] += ways[total - part]
        if sum(ways) > limit:
            break
    return sum(ways)


def _partitions(total: int, parts: int, largest: int) -> Iterator[tuple[int, ...]]:
    if parts == 1:
        if total <= largest:
            yield (total,)
        return
    for first in range(min(total, largest), -(-total // parts) - 1, -1):
        for rest in _partitions(total - first, parts - 1, first):
            yield (first, *rest)
