"""A lower bound that grows with pairs of heads: weights that make the output one monomial."""

import math

from rankscope.bounds.sizes import AttentionSizes
from rankscope.errors import BoundError
from rankscope.theorem import MAX_DIGITS, LowerBound, Magnitude, Status, Theorem

EXACT_LOGARITHM = (MAX_DIGITS + 1) * math.log(10)
MONOMIALS = Theorem(
    "Rankscope, monomials of the Gram matrix",
    "docs/proofs.md, section 20",
    None,
    (
        "softmax-free self-attention without feed-forward layers",
        "almost all weights",
        "the given heads, embedding rank and numbers of tokens on the two sides",
    ),
    Status.PROVED_HERE,
)


def monomial_lower_bound(sizes: AttentionSizes) -> LowerBound:
    r"""A lower bound for almost all weights that grows as fast as the counting bound can.

    .. math:: \operatorname{sep} \ge \max_n \left(3^{L - l_n} + 1\right)^{n(n+1)/2}, \qquad
              l_n = \lfloor n/2 \rfloor + 1 + \lceil \log_3 n \rceil \le L, \quad
              n \le \min(H, r, a, b)

    Each of n heads multiplies one coordinate by one entry of the Gram matrix, so that after l_n
    layers the output is a product of all n(n + 1)/2 entries, and every further layer cubes it. A
    product of powers m of independent variables has rank prod (m + 1).

    Example:
        >>> monomial_lower_bound(AttentionSizes(depth=6, width=4, heads=2)).value
        21952

    Raises:
        BoundError: if the degree is not 3.

    Reference:
        ours (proved); docs/proofs.md, section 20.
    """
    if sizes.degree != 3:
        raise BoundError(
            f"monomial_lower_bound: heads are defined for degree 3, got {sizes.degree}; "
            "measure instead."
        )
    largest = min(sizes.heads, sizes.rank, sizes.own, sizes.other)
    choices = [
        (3 ** (sizes.depth - layers) + 1, n * (n + 1) // 2)
        for n in range(1, min(largest, 2 * sizes.depth) + 1)
        if (layers := layers_for_all_pairs(n)) <= sizes.depth
    ]
    base, power = max(choices, key=lambda choice: choice[1] * math.log(choice[0]))
    logarithm = power * math.log(base)
    if logarithm > EXACT_LOGARITHM:
        return LowerBound(Magnitude(logarithm / math.log(3)), MONOMIALS)
    return LowerBound(Magnitude.of(base**power), MONOMIALS)


def layers_for_all_pairs(heads: int) -> int:
    """Layers after which one output can hold every entry of the Gram matrix of its coordinates.

    Example:
        >>> [layers_for_all_pairs(heads) for heads in (1, 2, 3, 4, 10)]
        [1, 3, 3, 5, 9]

    Reference:
        ours; docs/proofs.md, section 20.
    """
    spread = 0
    while 3**spread < heads:
        spread += 1
    return heads // 2 + 1 + spread
