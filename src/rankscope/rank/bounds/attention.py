"""Bounds on softmax-free self-attention: the published theorems in both regimes, and ours.

The published theorems are those of Levine et al. (2020), arXiv:2006.12467, numbered as in Levine,
Wies, Sharir, Cohen & Shashua (2022), Tensors for deep learning theory, chapter 7 of Tensors for
Data Processing.
"""

import itertools
import math
from dataclasses import dataclass

from rankscope.errors import BoundError
from rankscope.rank.bounds.counting import (
    binomial_magnitude,
    counting_terms,
    multiset,
    multiset_magnitude,
)
from rankscope.rank.bounds.sizes import AttentionSizes
from rankscope.theorem import LowerBound, Magnitude, Status, Theorem, UpperBound

LOG_OF_3 = math.log(3)
COMMON = (
    "softmax-free self-attention without feed-forward layers",
    "heads of size width / heads",
    "balanced partition",
)

SHALLOW_REGIME = Theorem(
    "Levine et al. (2020)", "Thm 7.1 (2022), depth < log3(width)", "2006.12467", COMMON
)
DEEP_REGIME_LOWER = Theorem(
    "Levine et al. (2020)", "Thm 7.2 (2022), depth > log3(width)", "2006.12467", COMMON
)
DEEP_REGIME_UPPER = Theorem(
    "Levine et al. (2020)",
    "Thm 7.2 (2022), depth > log3(width)",
    "2006.12467",
    (
        *COMMON,
        "counts exponents of coordinates: right for one token on each side",
        "false for many heads and layers: docs/proofs.md, section 20",
    ),
    Status.DISPUTED,
)
MULTISET = Theorem(
    "Levine et al. (2020)",
    "the count behind Thms 7.1 and 7.2",
    "2006.12467",
    (*COMMON, "almost all weights", "depth >= 2", "heads < width"),
    Status.RECALLED,
)
WORDS = Theorem(
    "Levine et al. (2020)",
    "upper bound of Thm 7.1 (2022), for any depth: docs/proofs.md, section 8",
    "2006.12467",
    ("softmax-free self-attention without feed-forward layers", "all weights", "any partition"),
    Status.PROVED_HERE,
)
QUADRIC = Theorem(
    "Rankscope, powers of a quadric",
    "docs/proofs.md, section 9",
    None,
    (
        "softmax-free self-attention without feed-forward layers",
        "almost all weights",
        "depth >= 2, at least 2 tokens on each side",
        "embedding rank at least 2",
    ),
    Status.PROVED_HERE,
)


def published_lower_bound(sizes: AttentionSizes) -> LowerBound | None:
    r"""The published lower bound for almost all weights, or None where no theorem applies.

    .. math:: \log_3 \operatorname{sep} \ge 3^{L-2}(\log_3(d - H) - L + 2 - \log_3 2)
              \quad (L < \log_3 d)
    .. math:: \log_3 \operatorname{sep} \ge \tfrac12 d L - L(\tfrac H2 + 1)
              - d(1 + \tfrac12 \log_3 \tfrac{d - H}{2}) \quad (L > \log_3 d)

    clipped at zero. No theorem covers L = log_3 d, H >= d, heads that do not share the width,
    layers of another degree, sides of different sizes, or an embedding rank below the width.

    Example:
        >>> published_lower_bound(AttentionSizes(depth=2, width=9)) is None
        True

    Reference:
        Levine et al. (2020), arXiv:2006.12467; Thms 7.1 and 7.2 of Levine et al. (2022).
    """
    if not _is_covered(sizes) or sizes.rank < sizes.width:
        return None
    depth, width, rest = sizes.depth, sizes.width, sizes.width - sizes.heads
    if _is_shallow(sizes):
        inner = math.log(rest) / LOG_OF_3 - depth + 2 - math.log(2) / LOG_OF_3
        return LowerBound(Magnitude(max(0.0, 3.0 ** (depth - 2) * inner)), SHALLOW_REGIME)
    on_depth = -depth * (sizes.heads / 2 + 1)
    on_width = -width * (1 + math.log(rest / 2) / LOG_OF_3 / 2)
    return LowerBound(
        Magnitude(max(0.0, width * depth / 2 + on_depth + on_width)), DEEP_REGIME_LOWER
    )


def published_upper_bound(sizes: AttentionSizes) -> UpperBound | None:
    r"""The published upper bound, or None where no theorem applies.

    .. math:: \log_3 \operatorname{sep} \le \tfrac{3^L - 1}{2} \log_3(d + H) \quad (L < \log_3 d)
    .. math:: \log_3 \operatorname{sep} \le 2 d L + L - 2 d \log_3 \tfrac{d}{2\sqrt{2e}}
              + \log_3 d \quad (L > \log_3 d)

    The second counts exponents of coordinates, which is right for one token on each side only, and
    fails for many heads and layers (`monomial_lower_bound`); we show it as published and never
    stop a measurement by it (docs/errata.md).

    Example:
        >>> published_upper_bound(AttentionSizes(depth=2, width=16)).value == 17**4
        True

    Reference:
        Levine et al. (2020), arXiv:2006.12467; Thms 7.1 and 7.2 of Levine et al. (2022).
    """
    if not _is_covered(sizes):
        return None
    depth, width = sizes.depth, sizes.width
    if _is_shallow(sizes):
        return UpperBound(Magnitude.of_power(width + sizes.heads, sizes.factors), SHALLOW_REGIME)
    log_quotient = math.log(width / (2 * math.sqrt(2 * math.e))) / LOG_OF_3
    on_width = -2 * width * log_quotient + math.log(width) / LOG_OF_3
    return UpperBound(Magnitude(2 * width * depth + depth + on_width), DEEP_REGIME_UPPER)


def word_upper_bound(sizes: AttentionSizes) -> UpperBound:
    r"""An upper bound for every depth and all weights, from words over the two sides.

    .. math:: \operatorname{sep} \le (H(d_a + 1))^{(3^L - 1)/2}

    Each of the C factors A(G_A + G_B)Bᵗ is expanded; a word over {A, B} costs d_a for each
    change of letter, which sums to (1 + d_a)^C, once for each choice of heads.

    Example:
        >>> word_upper_bound(AttentionSizes(depth=2, width=4, heads=2)).value
        1296

    Raises:
        BoundError: if the degree is not 3.

    Reference:
        Levine et al. (2020), arXiv:2006.12467; Thm 7.1 of Levine et al. (2022); proof for every
        depth in docs/proofs.md, section 8.
    """
    if sizes.degree != 3:
        raise BoundError(
            f"word_upper_bound: heads are defined for degree 3, got {sizes.degree}; "
            "use counting_upper_bound."
        )
    base = sizes.heads * (sizes.resolved_head_size() + 1)
    return UpperBound(Magnitude.of_power(base, sizes.factors), WORDS)


def multiset_lower_bound(sizes: AttentionSizes) -> LowerBound:
    r"""The lower bound that both published ones weaken.

    .. math:: \operatorname{sep} \ge
              \left(\!\!\binom{\lfloor (d - H)/2 \rfloor}{3^{L-2}}\!\!\right)

    Example:
        >>> multiset_lower_bound(AttentionSizes(depth=3, width=7)).value
        10

    Raises:
        BoundError: if depth < 2, the heads do not share the width, heads >= width, or the sides
            have different sizes.

    Reference:
        Levine et al. (2020), as recalled, arXiv:2006.12467; docs/proofs.md, section 10.
    """
    if not _is_covered(sizes, any_depth=True) or sizes.depth < 2 or sizes.rank < sizes.width:
        raise BoundError(
            "multiset_lower_bound: needs depth >= 2, heads < width sharing it equally, degree 3, "
            f"full embedding rank and sides of one size, got depth {sizes.depth}, {sizes.heads} "
            f"heads, width {sizes.width}, degree {sizes.degree}, embedding rank {sizes.rank}, "
            f"sides of {sizes.own} and {sizes.other}."
        )
    kinds, size = (sizes.width - sizes.heads) // 2, 3 ** (sizes.depth - 2)
    return LowerBound(multiset_magnitude(kinds, size), MULTISET)


def quadric_lower_bound(sizes: AttentionSizes) -> LowerBound:
    r"""A lower bound for almost all weights, proved by an explicit choice of weights.

    .. math:: \operatorname{sep} \ge (3^{L-1} + 1) \binom{d + m}{d}, \qquad
              m = \frac{3^{L-1} - 1}{2}, \qquad d = \min(d_a, r)

    The weights make the output s^m q(Gw)^m (Gw)_p (e·x^i) with a nondegenerate quadric q, whose
    powers have catalecticants of full rank. Further heads are set to zero, and a narrow head or
    embedding confines all to a subspace of dimension min(d_a, r).

    Example:
        >>> quadric_lower_bound(AttentionSizes(depth=2, width=3)).value
        16

    Raises:
        BoundError: if an assumption does not hold.

    Reference:
        ours (proved); docs/proofs.md, section 9.
    """
    size = min(sizes.resolved_head_size(), sizes.rank)
    fewest = min(sizes.own, sizes.other)
    if sizes.depth < 2 or sizes.rank < 2 or fewest < 2 or sizes.degree != 3:
        raise BoundError(
            "quadric_lower_bound: needs depth >= 2, embedding rank >= 2, at least 2 tokens on each "
            f"side and degree 3, got depth {sizes.depth}, embedding rank {sizes.rank}, {fewest} "
            f"tokens, degree {sizes.degree}."
        )
    power = 3 ** (sizes.depth - 1)
    independent = binomial_magnitude(size + (power - 1) // 2, size)
    return LowerBound(Magnitude.of(power + 1) * independent, QUADRIC)


def _is_shallow(sizes: AttentionSizes) -> bool:
    return int(3**sizes.depth) < sizes.width


def _is_covered(sizes: AttentionSizes, *, any_depth: bool = False) -> bool:
    """Whether the published theorems speak about these sizes.

    Raises:
        BoundError: if the heads do not divide the width and no head size is given.
    """
    if sizes.heads >= sizes.width or sizes.degree != 3 or not sizes.has_standard_heads:
        return False
    if not sizes.is_balanced:
        return False
    sizes.resolved_head_size()
    return any_depth or int(3**sizes.depth) != sizes.width


# --- How heads and their size cap the separation rank: the forms that a layer can see -------------


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

    Reference:
        ours (proved): docs/proofs.md, section 19.
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
    intersection = max(0, 2 * dimension - rank)
    inside = min(all_forms, sizes.heads * (dimension**2 - math.comb(intersection, 2)))
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


# --- The embedding-rank bottleneck: what is published, as growth rates only -----------------------


EMBEDDING = Theorem(
    "Wies et al. (2021)",
    "Thm 7.3 (2022), eq. (7.12)",
    "2105.03928",
    (
        "softmax-free self-attention",
        "token vectors x = M w with M of the embedding rank",
        "false for many heads and layers: docs/proofs.md, section 20",
    ),
    Status.DISPUTED,
)
EMBEDDING_LOWER = Theorem(
    "Wies et al. (2021)",
    "Thm 7.3 (2022), eq. (7.13)",
    "2105.03928",
    (
        *EMBEDDING.assumptions[:2],
        "almost all weights",
        "depth > log3(width)",
        "heads < embedding rank",
        "balanced partition",
    ),
)


@dataclass(frozen=True)
class Growth:
    """A published growth rate: constants and logarithms are hidden, so it bounds no number.

    Args:
        symbol: `O~` for at most, `Omega~` for at least.
        formula: what the logarithm of the separation rank grows with, in words.
        rate: the formula at the given sizes, good for comparing sizes only.
        theorem: where it comes from.
    """

    symbol: str
    formula: str
    rate: int
    theorem: Theorem

    @property
    def statement(self) -> str:
        """What the theorem says, without its source."""
        return f"log(separation rank) = {self.symbol}({self.formula})"

    def __str__(self) -> str:
        return f"{self.statement}, a growth rate that bounds no number    [{self.theorem}]"

    def to_dict(self) -> dict[str, object]:
        """Plain data for JSON; `bounds_a_number` is always false."""
        return {
            "symbol": self.symbol,
            "formula": self.formula,
            "rate": self.rate,
            "bounds_a_number": False,
            "theorem": self.theorem.to_dict(),
        }


def embedding_upper_growth(sizes: AttentionSizes) -> Growth | None:
    r"""The published growth of the upper bound; `counting_upper_bound` is a number instead.

    None where the theorem does not apply: layers of another degree, sides of different sizes.

    .. math:: \log \operatorname{sep} = \tilde O(L \min(r, d))

    With at least r tokens on each side our count grows with r(r + 1)/2 in place of min(r, d), and
    with many heads so does the rank (`monomial_lower_bound`).

    Example:
        >>> embedding_upper_growth(AttentionSizes(depth=5, width=8, embedding_rank=3)).formula
        'depth * min(embedding rank, width)'

    Reference:
        Wies et al. (2021), arXiv:2105.03928; Thm 7.3 of Levine et al. (2022).
    """
    if not _is_embedding_covered(sizes):
        return None
    formula = "depth * min(embedding rank, width)"
    return Growth("O~", formula, sizes.depth * sizes.rank, EMBEDDING)


def embedding_lower_growth(sizes: AttentionSizes) -> Growth | None:
    r"""The published growth of the lower bound, or None where the theorem does not apply.

    .. math:: \log \operatorname{sep} = \tilde\Omega(L (\min(r, d) - H)), \qquad
              L > \log_3 d,\; H < r

    Example:
        >>> embedding_lower_growth(AttentionSizes(depth=1, width=8, embedding_rank=3)) is None
        True

    Reference:
        Wies et al. (2021), arXiv:2105.03928; Thm 7.3 of Levine et al. (2022).
    """
    is_deep = int(3**sizes.depth) > sizes.width
    if not is_deep or sizes.heads >= sizes.rank or not _is_embedding_covered(sizes):
        return None
    formula = "depth * (min(embedding rank, width) - heads)"
    return Growth("Omega~", formula, sizes.depth * (sizes.rank - sizes.heads), EMBEDDING_LOWER)


def _is_embedding_covered(sizes: AttentionSizes) -> bool:
    return sizes.degree == 3 and sizes.is_balanced
