"""How heads and their size cap the separation rank: the forms that a layer can see."""

import itertools
import math

from rankscope.bounds.binomials import multiset
from rankscope.bounds.counting import counting_terms
from rankscope.bounds.sizes import AttentionSizes
from rankscope.errors import BoundError
from rankscope.theorem import Magnitude, Status, Theorem, UpperBound

HEADS = Theorem(
    citation="Rankscope, head bound",
    label="docs/proofs.md, section 19",
    arxiv=None,
    assumptions=(
        "softmax-free self-attention without feed-forward layers",
        "all weights",
        "the given numbers of tokens on the two sides, heads and head size",
    ),
    status=Status.PROVED_HERE,
)


def heads_upper_bound(sizes: AttentionSizes) -> UpperBound:
    r"""The counting bound, refined by the few forms of the Gram matrix that heads can see.

    The output multiplies 3^(L-1) entries of W^V_h G (W^K_h)^T and (3^(L-1) - 1)/2 entries of
    W^Q_h G (W^Q_h')^T. The first span at most g linear forms; so a monomial holds at most
    S = (3^(L-1) - 1)/2 forms outside that span, on both sides together. The part of degree k in
    the other side then has rank at most

    .. math:: \min_{0 \le t \le S + 1} \; \sum_{i < t} b_i + \sum_{j \le S - t} a_j

    with b_i and a_j the numbers of monomials with i (and j) forms outside on the other side (and
    on the own side, times the entries of W^Q_h x). All but one of the cases measured with heads x
    head size at least the width attain it (docs/separation_rank.md).

    Example:
        >>> heads_upper_bound(AttentionSizes(2, 4, heads=4, head_size=1)).value
        85
        >>> heads_upper_bound(AttentionSizes(2, 4, heads=2)).value
        107

    Raises:
        BoundError: if the degree is not 3, or there are too many factors to sum over.

    Reference:
        ours (proved): docs/proofs.md, section 19.
    """
    return UpperBound(Magnitude.of(sum(heads_terms(sizes))), HEADS)


def heads_terms(sizes: AttentionSizes) -> tuple[int, ...]:
    """Upper bounds of the ranks of the parts of degree 0..C in the other side's Gram matrix.

    Example:
        >>> heads_terms(AttentionSizes(2, 4, heads=4, head_size=1))
        (1, 10, 34, 36, 4)

    Raises:
        BoundError: if the degree is not 3, or there are too many factors to sum over.
    """
    if sizes.degree != 3:
        raise BoundError(
            f"heads_upper_bound: heads are defined for degree 3, got {sizes.degree}; "
            "use counting_upper_bound."
        )
    counted = counting_terms(sizes)
    return tuple(min(term, _part(sizes, degree)) for degree, term in enumerate(counted))


def visible_forms(sizes: AttentionSizes) -> tuple[int, int, int]:
    """Sizes of what the first layer lets through.

    Returns:
        The forms between values and keys, the further forms between queries, and the entries of
        the queries of one token.

    Example:
        >>> visible_forms(AttentionSizes(2, 4, heads=1, head_size=3))
        (8, 2, 3)
    """
    rank, head_size = sizes.rank, sizes.resolved_head_size()
    all_forms = rank * (rank + 1) // 2
    dimension = min(head_size, rank)
    # Two subspaces of this dimension meet; symmetric products of the meeting count once.
    meeting = max(0, 2 * dimension - rank)
    inside = min(all_forms, sizes.heads * (dimension**2 - math.comb(meeting, 2)))
    queries = min(rank, sizes.heads * head_size)
    return inside, min(all_forms - inside, queries * (queries + 1) // 2), queries


def _part(sizes: AttentionSizes, degree: int) -> int:
    inside, outside, queries = visible_forms(sizes)
    most_outside = (int(3 ** (sizes.depth - 1)) - 1) // 2
    other = _up_to_each(inside, outside, degree, most_outside)
    own = _up_to_each(inside, outside, sizes.factors - degree, most_outside)
    return min(below + queries * beyond for below, beyond in zip(other, reversed(own), strict=True))


def _up_to_each(inside: int, outside: int, degree: int, most_outside: int) -> list[int]:
    """Monomials of a degree with less than 0, 1, …, most_outside + 1 forms outside."""
    counts = [_monomials(inside, outside, degree, i) for i in range(most_outside + 1)]
    return list(itertools.accumulate(counts, initial=0))


def _monomials(inside: int, outside: int, degree: int, num_outside: int) -> int:
    if num_outside > degree:
        return 0
    return multiset(inside, degree - num_outside) * multiset(outside, num_outside)
