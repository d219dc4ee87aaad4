"""Published and own bounds on self-attention."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.bounds.attention import (
    multiset_lower_bound,
    published_lower_bound,
    published_upper_bound,
    quadric_lower_bound,
    word_upper_bound,
)
from rankscope.bounds.counting import counting_upper_bound
from rankscope.bounds.embedding import embedding_lower_growth, embedding_upper_growth
from rankscope.bounds.sizes import DEEPEST, AttentionSizes
from rankscope.errors import BoundError


@pytest.mark.parametrize(("depth", "width", "heads", "low", "high"), [
    (1, 4, 1, 0.456, 1.465), (2, 16, 1, 1.834, 10.316), (3, 64, 1, 6.421, 49.396),
    (6, 100, 1, 13.41, 652.13), (12, 768, 12, 1681.57, 11313.91),
])  # fmt: skip
def test_the_published_bounds_have_the_values_of_the_specification(
    depth: int, width: int, heads: int, low: float, high: float
) -> None:
    lower = published_lower_bound(AttentionSizes(depth, width, heads))
    upper = published_upper_bound(AttentionSizes(depth, width, heads))
    assert lower is not None
    assert upper is not None
    # The specification prints three digits in the first regime, two in the second.
    tolerance = 6e-4 if 3**depth < width else 6e-3
    assert math.isclose(lower.log3, low, rel_tol=0, abs_tol=tolerance)
    assert math.isclose(upper.log3, high, rel_tol=0, abs_tol=tolerance)


@pytest.mark.parametrize("sizes", [
    AttentionSizes(2, 9), AttentionSizes(2, 4, heads=4), AttentionSizes(2, 4, heads=8),
    AttentionSizes(2, 4, degree=5), AttentionSizes(2, 4, heads=2, head_size=4),
])  # fmt: skip
def test_no_theorem_applies_between_the_regimes_or_off_the_published_network(
    sizes: AttentionSizes,
) -> None:
    assert published_lower_bound(sizes) is None
    assert published_upper_bound(sizes) is None


def test_a_low_embedding_rank_leaves_only_the_upper_bound() -> None:
    sizes = AttentionSizes(3, 4, embedding_rank=2)
    assert published_lower_bound(sizes) is None
    assert published_upper_bound(sizes) == published_upper_bound(AttentionSizes(3, 4))


def test_a_negative_published_lower_bound_is_clipped_at_zero() -> None:
    lower = published_lower_bound(AttentionSizes(6, 100, heads=50))
    assert lower is not None
    assert lower.log3 == 0


@settings(deadline=None)
@given(depth=st.integers(1, 30), half=st.integers(1, 200))
def test_the_published_lower_bound_weakens_the_multiset_coefficient(depth: int, half: int) -> None:
    # d - H even, so that the floor takes nothing away.
    sizes = AttentionSizes(depth + 1, 2 * half + 1)
    lower = published_lower_bound(sizes)
    if lower is not None:
        assert lower.log3 <= multiset_lower_bound(sizes).log3 + 1e-9 * max(1.0, lower.log3)


@settings(deadline=None)
@given(depth=st.integers(2, 40), width=st.integers(2, 60), rank=st.integers(2, 60))
def test_lower_bounds_stay_below_the_counting_bound(depth: int, width: int, rank: int) -> None:
    sizes = AttentionSizes(depth, width, embedding_rank=rank)
    assert quadric_lower_bound(sizes).log3 <= counting_upper_bound(sizes).log3
    full = AttentionSizes(depth, width)
    assert multiset_lower_bound(full).log3 <= counting_upper_bound(full).log3
    assert counting_upper_bound(full).log3 <= word_upper_bound(full).log3


def test_the_quadric_bound_has_its_measured_values() -> None:
    values = [quadric_lower_bound(AttentionSizes(2, width)).value for width in (2, 3, 4, 5)]
    values += [quadric_lower_bound(AttentionSizes(3, width)).value for width in (2, 3)]
    assert values == [12, 16, 20, 24, 150, 350]
    assert quadric_lower_bound(AttentionSizes(4, 2)).value == 2940
    assert quadric_lower_bound(AttentionSizes(2, 6, heads=2)).value == 16


def test_words_give_a_bound_at_every_depth_and_any_head_size() -> None:
    assert word_upper_bound(AttentionSizes(2, 4)).value == 625
    assert word_upper_bound(AttentionSizes(2, 9)).value == 10_000
    assert word_upper_bound(AttentionSizes(2, 4, heads=3, head_size=5)).value == 18**4
    deep = word_upper_bound(AttentionSizes(20, 8))
    assert deep.value is None
    assert math.isclose(deep.log3, (3**20 - 1))  # (3^20 - 1) / 2 factors, each log3(9) = 2


def test_a_huge_multiset_bound_is_given_by_its_logarithm() -> None:
    bound = multiset_lower_bound(AttentionSizes(40, 2001))
    exact = math.comb(999 + 3**38, 999)
    assert bound.value is None
    assert math.isclose(bound.log3, math.log(exact) / math.log(3), rel_tol=1e-12)
    assert multiset_lower_bound(AttentionSizes(2, 2)).value == 0


def test_growth_rates_are_shown_as_published_and_bound_no_number() -> None:
    sizes = AttentionSizes(5, 8, heads=2, embedding_rank=3)
    upper, lower = embedding_upper_growth(sizes), embedding_lower_growth(sizes)
    assert str(upper).startswith("log(separation rank) = O~(15)    [Wies et al. (2021), Thm 7.3")
    assert lower is not None
    assert lower.to_dict()["rate"] == 5
    assert embedding_lower_growth(AttentionSizes(1, 8)) is None
    assert embedding_lower_growth(AttentionSizes(5, 8, heads=4, embedding_rank=4)) is None


def test_sizes_out_of_range_are_refused_with_their_numbers() -> None:
    with pytest.raises(BoundError, match="depth must be at least 1, got 0"):
        AttentionSizes(0, 4)
    with pytest.raises(BoundError, match="depth must be at most 10,000, got 10,001"):
        AttentionSizes(DEEPEST + 1, 4)
    with pytest.raises(BoundError, match="width must be at least 1, got -3"):
        AttentionSizes(1, -3)
    with pytest.raises(BoundError, match="other_tokens must be at least 1, got 0"):
        AttentionSizes(1, 3, other_tokens=0)
    with pytest.raises(BoundError, match="degree must be odd and at least 3, got 4"):
        AttentionSizes(1, 3, degree=4)
    with pytest.raises(BoundError, match="3 heads do not divide width 10; give head_size"):
        published_lower_bound(AttentionSizes(2, 10, heads=3))


def test_bounds_outside_their_assumptions_are_refused() -> None:
    with pytest.raises(BoundError, match="degree 3, got 5"):
        word_upper_bound(AttentionSizes(2, 4, degree=5))
    with pytest.raises(BoundError, match="got depth 1, 1 heads, width 4"):
        multiset_lower_bound(AttentionSizes(1, 4))
    with pytest.raises(BoundError, match="got depth 2, size 4, 1 tokens, degree 3"):
        quadric_lower_bound(AttentionSizes(2, 4, own_tokens=1))
