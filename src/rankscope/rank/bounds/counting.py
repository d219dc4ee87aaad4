"""Upper bounds by counting: how many products of invariants can meet at a split."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

from rankscope.errors import BoundError, readable
from rankscope.rank.bounds.sizes import (
    AttentionSizes,
    covariant_count,
    invariant_count,
    require_at_least,
    require_few_partitions,
)
from rankscope.theorem import (
    MAX_DIGITS,
    LowerBound,
    Magnitude,
    Status,
    Theorem,
    UpperBound,
)

# --- Binomial and multiset coefficients, exactly and as logarithms without cancellation -----------


# Below this the terms are summed one by one; above it three terms of Stirling's series are exact
# to float64: the first one left out is 1 / (1680 * 40**7) < 4e-15.
DIRECT_TERMS = 40
# Up to this natural logarithm a number is worked out as an integer; one digit of margin.
EXACT_LOGARITHM = (MAX_DIGITS + 1) * math.log(10)


def multiset(kinds: int, size: int) -> int:
    r"""Multisets of `size` elements of `kinds` kinds: monomials of that degree.

    .. math:: \left(\!\!\binom{n}{k}\!\!\right) = \binom{n + k - 1}{k}

    Example:
        >>> multiset(3, 2), multiset(0, 0), multiset(0, 5)
        (6, 1, 0)

    Reference:
        Stanley, Enumerative Combinatorics 1, Sec. 1.2.
    """
    if size == 0:
        return 1
    return math.comb(kinds + size - 1, size) if kinds else 0


def log_multiset(kinds: int, size: int) -> float:
    """Natural logarithm of `multiset(kinds, size)`, for at least one kind and any size.

    Reference:
        Stanley, Enumerative Combinatorics 1, Sec. 1.2.
    """
    return log_binomial(kinds + size - 1, size)


def log_binomial(top: int, bottom: int) -> float:
    r"""Natural logarithm of a binomial coefficient, for integers of any length.

    With k the smaller of the two parts of n, and m the larger,

    .. math:: \log\binom{n}{k} = k \log\frac{n}{k} + m \log\frac{n}{m}
              - \tfrac12 \log\frac{2 \pi k m}{n} + \sigma(n) - \sigma(k) - \sigma(m)

    with Stirling's series σ. The first two terms are positive and dwarf the rest, so nothing
    cancels; lgamma(n) - lgamma(m) would lose all digits when n is 3^96 and k is 10^7.

    Example:
        >>> log_binomial(5, 6), log_binomial(7, 0)
        (-inf, 0.0)

    Reference:
        Stirling's series: Abramowitz & Stegun, 6.1.41.
    """
    small = min(bottom, top - bottom)
    if small < 0:
        return -math.inf
    large = top - small
    if small < DIRECT_TERMS:
        return math.fsum(_log_ratio(large + term, term) for term in range(1, small + 1))
    ratio = small / large
    # large * log1p(ratio), written so that `large` need not fit a float.
    second = small * (math.log1p(ratio) / ratio if ratio > 0 else 1.0)
    root = math.log(2 * math.pi) + math.log(small) + math.log(large / top)
    series = _stirling(top) - _stirling(small) - _stirling(large)
    return math.fsum((small * _log_ratio(top, small), second, -root / 2, series))


def binomial_magnitude(top: int, bottom: int) -> Magnitude:
    """A binomial coefficient, written out where it is short enough.

    Example:
        >>> binomial_magnitude(5, 2).value, binomial_magnitude(3**96, 10**5).value
        (10, None)
    """
    logarithm = log_binomial(top, bottom)
    if logarithm > EXACT_LOGARITHM:
        return Magnitude(logarithm / math.log(3))
    return Magnitude.of(math.comb(top, bottom))


def multiset_magnitude(kinds: int, size: int) -> Magnitude:
    """A multiset coefficient, written out where it is short enough.

    Example:
        >>> multiset_magnitude(3, 2).value, multiset_magnitude(10**9, 10**40).value
        (6, None)
    """
    if size == 0 or kinds == 0:
        return Magnitude.of(int(size == 0))
    return binomial_magnitude(kinds + size - 1, size)


def _log_ratio(top: int, bottom: int) -> float:
    if top.bit_length() - bottom.bit_length() > 1000:  # the quotient would not fit a float
        return math.log(top) - math.log(bottom)
    return math.log(top / bottom)


def _stirling(argument: int) -> float:
    inverse = 1 / argument
    square = inverse * inverse
    return inverse * (1 / 12 - square * (1 / 360 - square / 1260))


# --- A lower bound that grows with pairs of heads: weights that make the output one monomial ------


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
    return LowerBound(Magnitude.of_power(base, power), MONOMIALS)


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


# --- Sums of the smaller of two counts, one rising and one falling, at any size -------------------


class Count(ABC):
    """How many independent functions there are of each degree; never falls with the degree."""

    @abstractmethod
    def value(self, degree: int) -> int:
        """The number of one degree."""

    @abstractmethod
    def total(self, degree: int) -> int:
        """The number of all degrees up to this one; none below degree 0."""

    @abstractmethod
    def log_value(self, degree: int) -> float:
        """Natural logarithm of `value`."""

    @abstractmethod
    def log_total(self, degree: int) -> float:
        """Natural logarithm of `total`."""


@dataclass(frozen=True)
class FreeCount(Count):
    r"""All monomials in `variables` variables, `factor` times.

    .. math:: f \left(\!\!\binom{n}{k}\!\!\right), \qquad
              \sum_{j \le k} = f \binom{n + k}{n}

    Example:
        >>> FreeCount(3, 2).value(2), FreeCount(3, 2).total(2)
        (12, 20)
    """

    variables: int
    factor: int = 1

    def value(self, degree: int) -> int:
        """Monomials of one degree, times the factor."""
        return self.factor * multiset(self.variables, degree)

    def total(self, degree: int) -> int:
        """Monomials up to a degree, times the factor."""
        return self.factor * math.comb(self.variables + degree, self.variables)

    def log_value(self, degree: int) -> float:
        """Natural logarithm of `value`."""
        return math.log(self.factor) + log_multiset(self.variables, degree)

    def log_total(self, degree: int) -> float:
        """Natural logarithm of `total`."""
        return math.log(self.factor) + log_binomial(self.variables + degree, self.variables)


@dataclass(frozen=True)
class PolynomialCount(Count):
    r"""A count that is a polynomial in the degree, kept as its differences at zero.

    .. math:: h(k) = \sum_i \Delta^i h(0) \binom{k}{i}, \qquad
              \sum_{j \le k} h(j) = \sum_i \Delta^i h(0) \binom{k + 1}{i + 1}

    Example:
        >>> squares = PolynomialCount.through((0, 1, 4))
        >>> squares.value(10), squares.total(10)
        (100, 385)
    """

    differences: tuple[int, ...]

    @classmethod
    def through(cls, values: tuple[int, ...]) -> "PolynomialCount":
        """The polynomial of least degree with these values at 0, 1, 2, …."""
        differences = []
        row = list(values)
        while row:
            differences.append(row[0])
            row = [after - before for before, after in pairwise(row)]
        return cls(tuple(differences))

    def value(self, degree: int) -> int:
        """The polynomial at `degree`."""
        return self._newton(degree, 0)

    def total(self, degree: int) -> int:
        """The sum of the polynomial over 0..degree."""
        return self._newton(degree + 1, 1)

    def log_value(self, degree: int) -> float:
        """Natural logarithm of `value`."""
        return math.log(self.value(degree))

    def log_total(self, degree: int) -> float:
        """Natural logarithm of `total`."""
        total = self.total(degree)
        return math.log(total) if total else -math.inf

    def _newton(self, argument: int, shift: int) -> int:
        binomial = math.comb(argument, shift)
        result = 0
        for i, difference in enumerate(self.differences, start=shift):
            result += difference * binomial
            binomial = binomial * (argument - i) // (i + 1)
        return result


def sum_of_minima(rising: Count, falling: Count, total: int) -> Magnitude:
    r"""Sum over all ways to share a degree of the smaller of two counts.

    .. math:: \sum_{k=0}^{T} \min(f(k), g(T - k)) = F(k^*) + G(T - k^* - 1), \qquad
              k^* = \max\{k : f(k) \le g(T - k)\}

    with F and G the running totals. Exact if the sum has at most `MAX_DIGITS` digits; else its
    logarithm. There k* is found in floating point: a neighbour of k* changes no digit that float64
    holds.

    Example:
        >>> sum_of_minima(FreeCount(3), FreeCount(3, 2), 4).value
        18

    Reference:
        ours; docs/proofs.md, section 7.
    """
    crossing = _last(total, lambda k: rising.log_value(k) <= falling.log_value(total - k))
    logarithm = _log_sum(rising.log_total(crossing), falling.log_total(total - crossing - 1))
    if logarithm > EXACT_LOGARITHM:
        return Magnitude(logarithm / math.log(3))
    crossing = _last(total, lambda k: rising.value(k) <= falling.value(total - k))
    return Magnitude.of(rising.total(crossing) + _total(falling, total - crossing - 1))


def _total(count: Count, degree: int) -> int:
    return count.total(degree) if degree >= 0 else 0


def _last(total: int, is_before: Callable[[int], bool]) -> int:
    """The largest k in 0..total at which a claim holds; it holds at 0 and never comes back."""
    low, high = 0, total
    while low < high:
        middle = (low + high + 1) // 2
        if is_before(middle):
            low = middle
        else:
            high = middle - 1
    return low


def _log_sum(first: float, second: float) -> float:
    large, small = max(first, second), min(first, second)
    return large + math.log1p(math.exp(small - large))


# --- The certified upper bound U: what one side can see of the other, counted degree by degree ----


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
        return UpperBound(binomial_magnitude(sizes.factors + sizes.rank, sizes.rank), COUNTING)
    magnitude = sum_of_minima(_seen_by_other(sizes), _seen_by_own(sizes), sizes.factors)
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
            f"counting_terms: depth {sizes.depth} multiplies {readable(factors)} factors, "
            f"more than {MAX_FACTORS:,}; use counting_upper_bound."
        )
    other, own = counting_counts(sizes)
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


def counting_counts(sizes: AttentionSizes) -> tuple[Count, Count]:
    """How many independent functions the other side and the own side have, by degree."""
    return _seen_by_other(sizes), _seen_by_own(sizes)


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


# --- Polynomials of bounded degree, whatever network computes them: bounds by degree alone --------


TOTAL_DEGREE = Theorem(
    "Rankscope, total degree",
    "docs/proofs.md, section 21",
    None,
    ("the output is a polynomial of at most this degree in all inputs together", "all weights"),
    Status.PROVED_HERE,
)


def total_degree_upper_bound(*, num_left: int, num_right: int, degree: int) -> UpperBound:
    r"""Largest separation rank of any polynomial of at most this degree, homogeneous or not.

    .. math:: \operatorname{sep} \le \sum_{s=0}^{T} \min\left(\left(\!\!\binom{a}{s}\!\!\right),
              \left(\!\!\binom{b}{T - s}\!\!\right)\right)

    with T = `degree` and a, b scalar inputs on the two sides. Biases, residuals and layers of mixed
    degree do not raise it: it is the bound of the homogeneous case.

    Example:
        >>> total_degree_upper_bound(num_left=2, num_right=2, degree=9).value
        30

    Raises:
        BoundError: if a side is empty, or the degree is negative.

    Reference:
        ours (proved); docs/proofs.md, section 21.
    """
    who = "total_degree_upper_bound"
    require_at_least(who, 1, num_left=num_left, num_right=num_right)
    require_at_least(who, 0, degree=degree)
    return UpperBound(
        sum_of_minima(FreeCount(num_left), FreeCount(num_right), degree), TOTAL_DEGREE
    )
