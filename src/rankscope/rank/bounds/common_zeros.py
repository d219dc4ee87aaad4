r"""Why the count is not always attained: points at which all functions of one side vanish.

With one head, y = α G M_1 G M_2 … G M_C x is a word in the Gram matrix G whose matrices repeat:
between two G stands one of L matrices, one for each layer, or its transpose. Where G is u uᵗ, a gap
between two G is the number u·M u, the same quadric q_l(u) for all gaps of a layer, and the word
begins with α·u. At a point u where some of these vanish, every such gap must have the other side's
matrix beside it; if there are not enough of those, all functions of this side vanish at u.
"""

import itertools
import math
from collections.abc import Sequence
from functools import cache

from rankscope.errors import BoundError
from rankscope.rank.bounds.attention import heads_terms
from rankscope.rank.bounds.counting import counting_counts
from rankscope.rank.bounds.sizes import AttentionSizes
from rankscope.theorem import Magnitude, Status, Theorem, UpperBound

COMMON_ZEROS = Theorem(
    citation="Rankscope, common zeros",
    label="docs/proofs.md, section 26",
    arxiv=None,
    assumptions=(
        "softmax-free self-attention without feed-forward layers",
        "one head",
        "all weights",
        "the given numbers of tokens on the two sides",
    ),
    status=Status.PROVED_HERE,
)


@cache
def gaps(depth: int) -> tuple[int, ...]:
    """Which layer's matrix stands in each gap between the Gram matrices of the word.

    Example:
        >>> gaps(1), gaps(2), gaps(3)
        ((), (1, 1, 2), (1, 1, 2, 1, 1, 2, 1, 1, 3, 1, 1, 2))
    """
    if depth == 1:
        return ()
    before = gaps(depth - 1)
    return (*before, 1, 1, *before[::-1], depth, *before)


def least_others(depth: int, zeros: frozenset[int], *, is_token_there: bool = False) -> int:
    """How many matrices of the other side a word must hold so as not to vanish at a point.

    Args:
        depth: number of layers.
        zeros: which of α·u (0) and the quadrics of layers 1, …, depth vanish at u.
        is_token_there: whether the token at the end of the word is u too, not a free vector.

    Example:
        >>> least_others(3, frozenset({0, 1, 2}))
        7
    """
    # The last Gram matrix is this side's (`own`) or the other side's: the fewest of these so far.
    own, other = (math.inf if 0 in zeros else 0.0), 1.0
    for layer in gaps(depth):
        own, other = (other if layer in zeros else min(own, other)), 1 + min(own, other)
    if is_token_there and 1 in zeros:
        return int(other)
    return int(min(own, other))


def count_forms(num_variables: int, zeros: frozenset[int], degree: int) -> int:
    """How many conditions it is for a form to vanish where generic forms do.

    The Hilbert function of a linear form (if 0 is among the zeros) and quadrics in general
    position; 0 if they have no common zero.

    Example:
        >>> count_forms(4, frozenset({0, 1, 2}), 14), count_forms(3, frozenset({0, 1, 2}), 14)
        (4, 0)
    """
    if len(zeros) >= num_variables:
        return 0
    degrees = [1 if one == 0 else 2 for one in zeros]
    total = 0
    for chosen in itertools.product((0, 1), repeat=len(degrees)):
        rest = degree - sum(d for d, is_chosen in zip(degrees, chosen, strict=True) if is_chosen)
        if rest >= 0:
            total += (-1) ** sum(chosen) * math.comb(rest + num_variables - 1, num_variables - 1)
    return total


def zeros_upper_bound(sizes: AttentionSizes) -> UpperBound:
    r"""The counting bound for one head, less the conditions of common zeros.

    .. math:: \operatorname{sep}(y_k) \le h_{inv}(r, b, k) - \max_Z \operatorname{HF}_Z(2k)

    over sets Z of the forms α, q_1, …, q_L such that C - k matrices of the own side cannot keep
    the word from vanishing at a common zero of Z; and likewise for the own side, if it is one
    token.

    Example:
        >>> zeros_upper_bound(AttentionSizes(depth=3, width=4)).value
        31456

    Raises:
        BoundError: if there are several heads, the degree is not 3, or there are too many factors
            to sum over.

    Reference:
        ours (proved): docs/proofs.md, section 26.
    """
    return UpperBound(Magnitude.of(sum(zeros_terms(sizes))), COMMON_ZEROS)


def zeros_terms(sizes: AttentionSizes) -> tuple[int, ...]:
    """Upper bounds of the ranks of the parts of degree 0..C in the other side's Gram matrix.

    Example:
        >>> zeros_terms(AttentionSizes(2, 3, own_tokens=1, other_tokens=2))
        (1, 6, 19, 10, 3)

    Raises:
        BoundError: as `zeros_upper_bound`.

    Reference:
        ours (proved): docs/proofs.md, section 26.
    """
    if sizes.heads != 1 or sizes.degree != 3:
        raise BoundError(
            f"zeros_upper_bound: needs one head and degree 3, got {sizes.heads} heads and degree "
            f"{sizes.degree}."
        )
    known = heads_terms(sizes)
    other, own = counting_counts(sizes)
    candidates = list(_candidates(sizes))
    terms = []
    for k, term in enumerate(known):
        rest = sizes.factors - k
        lost = max(count_forms(sizes.rank, z, 2 * k) if n > rest else 0 for z, n, _ in candidates)
        best = min(term, other.value(k) - lost)
        if sizes.own == 1:
            degree = 2 * rest + 1
            lost = max(count_forms(sizes.rank, z, degree) if n > k else 0 for z, _, n in candidates)
            best = min(best, own.value(rest) - lost)
        terms.append(best)
    return tuple(terms)


def _candidates(sizes: AttentionSizes) -> Sequence[tuple[frozenset[int], int, int]]:
    """Sets of forms that have common zeros, with the matrices that each side's words need there."""
    found = []
    for count in range(min(sizes.rank, sizes.depth + 2)):
        for chosen in itertools.combinations(range(sizes.depth + 1), count):
            zeros = frozenset(chosen)
            free = least_others(sizes.depth, zeros)
            there = least_others(sizes.depth, zeros, is_token_there=True)
            found.append((zeros, free, there))
    return found
