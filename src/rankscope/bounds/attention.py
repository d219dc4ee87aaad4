"""Bounds on softmax-free self-attention: the published theorems in both regimes, and ours.

The published theorems are those of Levine et al. (2020), arXiv:2006.12467, numbered as in Levine,
Wies, Sharir, Cohen & Shashua (2022), Tensors for deep learning theory, chapter 7 of Tensors for
Data Processing.
"""

import math

from rankscope.bounds.binomials import log_binomial, log_multiset, multiset
from rankscope.bounds.sizes import AttentionSizes
from rankscope.errors import BoundError
from rankscope.theorem import MAX_DIGITS, LowerBound, Magnitude, Status, Theorem, UpperBound

LOG_OF_3 = math.log(3)
EXACT_LOGARITHM = (MAX_DIGITS + 1) * math.log(10)
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
    layers of another degree, or an embedding rank below the width.

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
        return UpperBound(_power(width + sizes.heads, sizes.factors), SHALLOW_REGIME)
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
    return UpperBound(_power(sizes.heads * (sizes.resolved_head_size() + 1), sizes.factors), WORDS)


def multiset_lower_bound(sizes: AttentionSizes) -> LowerBound:
    r"""The lower bound that both published ones weaken.

    .. math:: \operatorname{sep} \ge
              \left(\!\!\binom{\lfloor (d - H)/2 \rfloor}{3^{L-2}}\!\!\right)

    Example:
        >>> multiset_lower_bound(AttentionSizes(depth=3, width=7)).value
        10

    Raises:
        BoundError: if depth < 2, the heads do not share the width, or heads >= width.

    Reference:
        Levine et al. (2020), as recalled, arXiv:2006.12467; docs/proofs.md, section 10.
    """
    if not _is_covered(sizes, any_depth=True) or sizes.depth < 2 or sizes.rank < sizes.width:
        raise BoundError(
            "multiset_lower_bound: needs depth >= 2, heads < width sharing it equally, degree 3 "
            f"and full embedding rank, got depth {sizes.depth}, {sizes.heads} heads, width "
            f"{sizes.width}, degree {sizes.degree}, embedding rank {sizes.rank}."
        )
    kinds, size = (sizes.width - sizes.heads) // 2, 3 ** (sizes.depth - 2)
    logarithm = log_multiset(kinds, size) if kinds else -math.inf
    if logarithm > EXACT_LOGARITHM:
        return LowerBound(Magnitude(logarithm / LOG_OF_3), MULTISET)
    return LowerBound(Magnitude.of(multiset(kinds, size)), MULTISET)


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
    top = size + (power - 1) // 2
    logarithm = math.log(power + 1) + log_binomial(top, size)
    if logarithm > EXACT_LOGARITHM:
        return LowerBound(Magnitude(logarithm / LOG_OF_3), QUADRIC)
    return LowerBound(Magnitude.of((power + 1) * math.comb(top, size)), QUADRIC)


def _is_shallow(sizes: AttentionSizes) -> bool:
    return int(3**sizes.depth) < sizes.width


def _is_covered(sizes: AttentionSizes, *, any_depth: bool = False) -> bool:
    """Whether the published theorems speak about these sizes.

    Raises:
        BoundError: if the heads do not divide the width and no head size is given.
    """
    if sizes.heads >= sizes.width or sizes.degree != 3 or not sizes.has_standard_heads:
        return False
    sizes.resolved_head_size()
    return any_depth or int(3**sizes.depth) != sizes.width


def _power(base: int, exponent: int) -> Magnitude:
    if exponent * math.log(base) > EXACT_LOGARITHM:
        return Magnitude(exponent * (math.log(base) / LOG_OF_3))
    return Magnitude.of(base**exponent)
