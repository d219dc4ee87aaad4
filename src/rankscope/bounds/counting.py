"""The certified upper bound U: what one side can see of the other, counted degree by degree."""

import math

from rankscope.bounds.binomials import log_binomial
from rankscope.bounds.meeting import Count, FreeCount, PolynomialCount, meeting_sum
from rankscope.bounds.sizes import AttentionSizes
from rankscope.bounds.weyl import covariant_count, invariant_count, require_few_partitions
from rankscope.errors import BoundError
from rankscope.theorem import LARGEST_INTEGER, Magnitude, Status, Theorem, UpperBound

# The refined bound sums over all words letter by letter: under a second of work.
MAX_FACTORS = 400

COUNTING = Theorem(
    citation="Rankscope, counting bound U",
    label="docs/proofs.md, section 7",
    arxiv=None,
    assumptions=(
        "softmax-free self-attention (or a chain of odd degree) without feed-forward layers",
        "all weights",
        "the given numbers of tokens on the two sides",
    ),
    status=Status.PROVED_HERE,
)

NARROW = Theorem(
    citation="Rankscope, counting bound U with narrow attention",
    label="docs/proofs.md, section 8",
    arxiv=None,
    assumptions=(*COUNTING.assumptions, "the given heads and head size"),
    status=Status.PROVED_HERE,
)


def counting_upper_bound(sizes: AttentionSizes) -> UpperBound:
    r"""Largest separation rank that softmax-free self-attention can reach, for all weights.

    .. math:: U = \sum_{k=0}^{C} \min\bigl(h_{inv}(r, b, k),\; h_{cov}(r, a, C - k)\bigr)

    The output is e_p^T F(G_A + G_B) x^i with F homogeneous of degree C in the Gram matrices of the
    two sides; the part of degree k in G_B is a sum of products of a polynomial in G_B and a
    coordinate of x^i times a polynomial in G_A, so its rank is at most either number of
    independent functions. Heads and head size do not enter.

    Example:
        >>> counting_upper_bound(AttentionSizes(depth=2, width=4)).value
        110
        >>> counting_upper_bound(AttentionSizes(depth=96, width=12288)).value is None
        True

    Raises:
        BoundError: if few tokens need too large a sum; the message names the way out.

    Reference:
        ours (proved), after Levine et al. (2020), arXiv:2006.12467; docs/proofs.md.
    """
    if sizes.own == sizes.other == 1:
        return UpperBound(_binomial(sizes.factors + sizes.rank, sizes.rank), COUNTING)
    magnitude = meeting_sum(_seen_by_other(sizes), _seen_by_own(sizes), sizes.factors)
    return UpperBound(magnitude, COUNTING)


def narrow_counting_upper_bound(sizes: AttentionSizes) -> UpperBound:
    r"""The counting bound, refined by what few or narrow heads can carry.

    .. math:: \sum_{k=0}^{C} \min\bigl(h_{inv}(r, b, k),\; h_{cov}(r, a, C - k),\;
              H^C w_k(d_a)\bigr)

    Example:
        >>> narrow_counting_upper_bound(AttentionSizes(2, 4, heads=1, head_size=1)).value
        16

    Raises:
        BoundError: if the degree is not 3, or there are too many factors to sum over.

    Reference:
        ours (proved), after Levine et al. (2020), arXiv:2006.12467; docs/proofs.md.
    """
    if sizes.degree != 3:
        raise BoundError(
            f"narrow_counting_upper_bound: heads are defined for degree 3, got {sizes.degree}; "
            "use counting_upper_bound."
        )
    return UpperBound(Magnitude.of(sum(counting_terms(sizes))), NARROW)


def counting_terms(sizes: AttentionSizes) -> tuple[int, ...]:
    r"""The counting bound degree by degree: for each k, how much rank the part y_k can have.

    .. math:: \operatorname{sep}(y_k) \le \min\bigl(h_{inv}(r, b, k),\; h_{cov}(r, a, C - k),\;
              H^C w_k(d_a)\bigr), \qquad k = 0, \dots, C

    y_k is the part of degree k in the other side's Gram matrix; the third count is for degree 3.

    Example:
        >>> counting_terms(AttentionSizes(depth=2, width=2))
        (1, 3, 6, 6, 2)

    Raises:
        BoundError: if there are too many factors to sum over.

    Reference:
        ours (proved), after Levine et al. (2020), arXiv:2006.12467; docs/proofs.md.
    """
    factors, head_size = sizes.factors, sizes.resolved_head_size()
    if factors > MAX_FACTORS:
        raise BoundError(
            f"counting_terms: depth {sizes.depth} multiplies {factors:,} factors, "
            f"more than {MAX_FACTORS:,}; use counting_upper_bound."
        )
    other, own = _seen_by_other(sizes), _seen_by_own(sizes)
    terms = [min(other.value(k), own.value(factors - k)) for k in range(factors + 1)]
    if sizes.degree != 3:
        return tuple(terms)
    scale = sizes.heads**factors
    return tuple(
        min(term, scale * word_count(factors, k, head_size)) for k, term in enumerate(terms)
    )


def word_count(length: int, num_other: int, head_size: int) -> int:
    r"""Words in {A, B} of a length with `num_other` Bs, weighed by their letter changes.

    .. math:: w_k(q) = \sum_{m \ge 1} \binom{k-1}{m-1} \left[\binom{C-k}{m} q^{2m}
              + \binom{C-k}{m-1} q^{2m-1}\right], \qquad w_0(q) = 1

    with C = `length`, k = `num_other`, q = `head_size`; every word is followed by a final A. There
    are m runs of B; the two terms are the words that begin with A and with B.

    Example:
        >>> [word_count(2, k, 3) for k in range(3)]
        [1, 12, 3]

    Reference:
        ours, after Levine et al. (2020), arXiv:2006.12467.
    """
    if num_other == 0:
        return 1
    rest = length - num_other
    return sum(
        math.comb(num_other - 1, runs - 1)
        * (
            math.comb(rest, runs) * head_size ** (2 * runs)
            + math.comb(rest, runs - 1) * head_size ** (2 * runs - 1)
        )
        for runs in range(1, min(num_other, rest + 1) + 1)
    )


def _seen_by_other(sizes: AttentionSizes) -> Count:
    """Polynomials in the other side's Gram matrix, by degree."""
    rank, tokens = sizes.rank, sizes.other
    if tokens >= rank:
        return FreeCount(rank * (rank + 1) // 2)
    num_degrees = _num_degrees(rank, tokens, sizes.factors)
    return PolynomialCount.through(
        tuple(invariant_count(rank, tokens, degree) for degree in range(num_degrees))
    )


def _seen_by_own(sizes: AttentionSizes) -> Count:
    """Coordinates of the output's token times polynomials in its side's Gram matrix."""
    rank, tokens = sizes.rank, sizes.own
    if tokens >= rank:
        return FreeCount(rank * (rank + 1) // 2, factor=rank)
    num_degrees = _num_degrees(rank, tokens, sizes.factors)
    return PolynomialCount.through(
        tuple(covariant_count(rank, tokens, degree) for degree in range(num_degrees))
    )


def _num_degrees(rank: int, tokens: int, factors: int) -> int:
    """How many values fix the count as a polynomial in the degree.

    Both counts are sums of a polynomial over the lattice points of a cone, hence
    quasi-polynomials from degree 0 on; and they are Hilbert functions of finite modules over the
    ring of Gram matrices, generated in degree 1, hence polynomials of degree below the dimension
    of that ring once the degree is large. A quasi-polynomial that is a polynomial in the end is
    that polynomial everywhere.
    """
    dimension = tokens * rank - tokens * (tokens - 1) // 2
    num_degrees = min(dimension, factors + 1)
    require_few_partitions(rank, tokens, num_degrees)
    return num_degrees


def _binomial(top: int, bottom: int) -> Magnitude:
    logarithm = log_binomial(top, bottom)
    if logarithm > math.log(LARGEST_INTEGER) + 1:
        return Magnitude(logarithm / math.log(3))
    return Magnitude.of(math.comb(top, bottom))
