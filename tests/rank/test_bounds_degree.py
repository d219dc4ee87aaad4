"""Product layers: the bound by degree."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.errors import BoundError
from rankscope.rank.bounds.counting import multiset
from rankscope.rank.bounds.polynomials import fully_connected_upper_bound


def bound(inputs: int, left: int, degree: int, depth: int) -> int | None:
    return fully_connected_upper_bound(
        num_inputs=inputs, num_left=left, degree=degree, depth=depth
    ).value


@pytest.mark.parametrize(("inputs", "degree", "depth", "value"), [
    (2, 3, 3, 28), (4, 2, 1, 4), (4, 3, 1, 6), (4, 2, 2, 9), (4, 3, 2, 30), (6, 2, 1, 4),
    (6, 3, 1, 8), (8, 3, 1, 8),
])  # fmt: skip
def test_balanced_blocks_have_the_reference_values(
    inputs: int, degree: int, depth: int, value: int
) -> None:
    assert bound(inputs, inputs // 2, degree, depth) == value


@settings(deadline=None)
@given(left=st.integers(1, 5), right=st.integers(1, 5), degree=st.integers(2, 4), depth=st.just(2))
def test_the_bound_is_the_sum_of_its_definition_and_symmetric(
    left: int, right: int, degree: int, depth: int
) -> None:
    total = degree**depth
    terms = [min(multiset(left, s), multiset(right, total - s)) for s in range(total + 1)]
    assert bound(left + right, left, degree, depth) == sum(terms)
    assert bound(left + right, right, degree, depth) == sum(terms)


@settings(deadline=None)
@given(half=st.integers(1, 8), degree=st.integers(2, 5), depth=st.integers(2, 6))
def test_balanced_halves_have_closed_forms(half: int, degree: int, depth: int) -> None:
    total = degree**depth
    if total % 2:
        expected = 2 * math.comb(half + (total - 1) // 2, half)
    else:
        expected = math.comb(half + total // 2, half) + math.comb(half + total // 2 - 1, half)
    assert bound(2 * half, half, degree, depth) == expected


def test_blocks_out_of_range_are_refused() -> None:
    with pytest.raises(BoundError, match="num_right must be at least 1, got 0"):
        bound(4, 4, 3, 2)
    with pytest.raises(BoundError, match="degree must be at most 10,000, got 10,001"):
        bound(4, 2, 10_001, 1)
