"""Binomial and multiset coefficients, exactly and as logarithms without cancellation."""

import math

# Below this the terms are summed one by one; above it three terms of Stirling's series are exact
# to float64: the first one left out is 1 / (1680 * 40**7) < 4e-15.
DIRECT_TERMS = 40


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


def _log_ratio(top: int, bottom: int) -> float:
    if top.bit_length() - bottom.bit_length() > 1000:  # the quotient would not fit a float
        return math.log(top) - math.log(bottom)
    return math.log(top / bottom)


def _stirling(argument: int) -> float:
    inverse = 1 / argument
    square = inverse * inverse
    return inverse * (1 / 12 - square * (1 / 360 - square / 1260))
