"""Counts and the sum of the smaller of two of them, against brute force."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.rank import (
    Count,
    FreeCount,
    PolynomialCount,
    covariant_count,
    invariant_count,
    sum_of_minima,
)
from rankscope.theorem import MAX_DIGITS


def few_tokens(rank: int, tokens: int, *, with_token: bool) -> Count:
    dimension = tokens * rank - tokens * (tokens - 1) // 2
    count = covariant_count if with_token else invariant_count
    return PolynomialCount.through(tuple(count(rank, tokens, k) for k in range(dimension)))


SIZES = [(rank, tokens) for rank in range(1, 5) for tokens in range(1, rank + 1)]
RISING: list[Count] = [FreeCount(variables) for variables in range(1, 13)]
RISING += [few_tokens(*size, with_token=False) for size in SIZES]
FALLING = [FreeCount(variables, factor) for variables in (1, 2, 5, 12) for factor in (1, 3, 12)]
COUNTS = [*RISING, *FALLING, *(few_tokens(*size, with_token=True) for size in SIZES)]


@settings(deadline=None)
@given(rising=st.sampled_from(RISING), falling=st.sampled_from(COUNTS), total=st.integers(0, 60))
def test_the_meeting_sum_is_the_sum_of_the_smaller_counts(
    rising: Count, falling: Count, total: int
) -> None:
    terms = [min(rising.value(k), falling.value(total - k)) for k in range(total + 1)]
    assert sum_of_minima(rising, falling, total).value == sum(terms)


@settings(deadline=None)
@given(count=st.sampled_from(COUNTS), degree=st.integers(0, 40))
def test_totals_are_running_sums_and_logarithms_are_those_of_the_integers(
    count: Count, degree: int
) -> None:
    total = sum(count.value(k) for k in range(degree + 1))
    assert count.total(degree) == total
    assert math.isclose(count.log_total(degree), math.log(total), rel_tol=1e-12, abs_tol=1e-12)
    value = count.value(degree)
    assert math.isclose(count.log_value(degree), math.log(value), rel_tol=1e-12, abs_tol=1e-12)


@settings(deadline=None)
@given(coefficients=st.lists(st.integers(-9, 9), min_size=1, max_size=5), at=st.integers(0, 50))
def test_a_polynomial_is_found_from_as_many_values_as_coefficients(
    coefficients: list[int], at: int
) -> None:
    def polynomial(argument: int) -> int:
        return sum(c * argument**power for power, c in enumerate(coefficients))

    count = PolynomialCount.through(tuple(polynomial(k) for k in range(len(coefficients))))
    assert count.value(at) == polynomial(at)


def test_nothing_is_counted_below_degree_zero() -> None:
    count = PolynomialCount.through((1, 3))
    assert count.total(-1) == 0
    assert count.log_total(-1) == -math.inf


@pytest.mark.parametrize(("total", "is_kept"), [(8, True), (9, False)])
def test_the_integer_is_kept_up_to_the_most_digits(total: int, is_kept: bool) -> None:
    # One monomial for each degree: the sum is (total + 1) 10^3999.
    step = 10 ** (MAX_DIGITS - 1)
    found = sum_of_minima(FreeCount(1, factor=step), FreeCount(1, factor=10 * step), total)
    assert found.value == ((total + 1) * step if is_kept else None)
    assert math.isclose(found.log3, math.log((total + 1) * step) / math.log(3), rel_tol=1e-12)
