"""Sums of the smaller of two counts, one rising and one falling, at any size."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

from rankscope.bounds.binomials import log_binomial, log_multiset, multiset
from rankscope.theorem import MAX_DIGITS, Magnitude

# Up to this natural logarithm the sum is worked out as an integer; one digit of margin.
EXACT_LOGARITHM = (MAX_DIGITS + 1) * math.log(10)


class Count(ABC):
    """How many independent functions there are of each degree; never falls with the degree."""

    @abstractmethod
    def value(self, degree: int) -> int:
        """How many of one degree."""

    @abstractmethod
    def total(self, degree: int) -> int:
        """How many of all degrees up to this one; none below degree 0."""

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


def meeting_sum(rising: Count, falling: Count, total: int) -> Magnitude:
    r"""Sum over all ways to share a degree of the smaller of two counts.

    .. math:: \sum_{k=0}^{T} \min(f(k), g(T - k)) = F(k^*) + G(T - k^* - 1), \qquad
              k^* = \max\{k : f(k) \le g(T - k)\}

    with F and G the running totals. Exact if the sum has at most `MAX_DIGITS` digits; else its
    logarithm. There k* is found in floating point: a neighbour of k* changes no digit that float64
    holds.

    Example:
        >>> meeting_sum(FreeCount(3), FreeCount(3, 2), 4).value
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
