"""How many independent polynomials of one degree a few tokens allow, by Weyl's dimensions."""

import math
from collections.abc import Iterator

from rankscope.errors import BoundError

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
