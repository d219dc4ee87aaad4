"""Binomials and their logarithms."""

import itertools
import math
from decimal import Decimal, localcontext

from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.rank import log_binomial, log_multiset, multiset


@settings(deadline=None)
@given(kinds=st.integers(0, 5), size=st.integers(0, 5))
def test_multiset_counts_multisets(kinds: int, size: int) -> None:
    listed = itertools.combinations_with_replacement(range(kinds), size)
    assert multiset(kinds, size) == len(list(listed))


@settings(deadline=None)
@given(top=st.integers(0, 6000), bottom=st.integers(0, 6000))
def test_log_binomial_agrees_with_the_integer(top: int, bottom: int) -> None:
    exact = math.comb(top, bottom)
    if exact == 0:
        assert log_binomial(top, bottom) == -math.inf
    else:
        assert math.isclose(log_binomial(top, bottom), math.log(exact), rel_tol=1e-13, abs_tol=0)


@settings(deadline=None)
@given(depth=st.integers(30, 2000), bottom=st.integers(1, 300))
def test_log_binomial_agrees_with_the_integer_for_tops_no_float_holds(
    depth: int, bottom: int
) -> None:
    top = 3**depth
    exact = math.log(math.comb(top, bottom))
    assert math.isclose(log_binomial(top, bottom), exact, rel_tol=1e-12)
    assert math.isclose(log_multiset(bottom + 1, top - bottom), exact, rel_tol=1e-12)


def log_factorial(number: int) -> Decimal:
    """Stirling's series at 120 digits: two terms are far beyond float64 for large numbers."""
    value = Decimal(number)
    pi = Decimal("3.14159265358979323846264338327950288419716939937510582097494459")
    half = (value + Decimal("0.5")) * value.ln() - value + (2 * pi).ln() / 2
    return half + 1 / (12 * value) - 1 / (360 * value**3)


def test_log_binomial_agrees_with_high_precision_at_depth_96_and_width_12288() -> None:
    top, bottom = (3**96 - 1) // 4, 12288 * 12289 // 2
    with localcontext() as context:
        context.prec = 120
        exact = log_factorial(top) - log_factorial(bottom) - log_factorial(top - bottom)
    assert math.isclose(log_binomial(top, bottom), float(exact), rel_tol=1e-13)
