"""Sizes that a bound is asked for."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.errors import BoundError
from rankscope.rank import DEEPEST, AttentionSizes, published_lower_bound
from rankscope.rank.bounds.sizes import (
    require_at_least,
    require_depth,
    require_even,
    require_positions,
)


@settings(deadline=None)
@given(depth=st.integers(1, 12), half=st.integers(1, 6))
def test_factors_follow_the_layers(depth: int, half: int) -> None:
    # A layer of degree 2s + 1 takes c Gram matrices to (2s + 1) c + s.
    factors = 0
    for _ in range(depth):
        factors = (2 * half + 1) * factors + half
    assert AttentionSizes(depth, 4, degree=2 * half + 1).factors == factors


@settings(deadline=None)
@given(width=st.integers(1, 30), heads=st.integers(1, 30), rank=st.integers(1, 40))
def test_what_is_not_given_follows_the_width(width: int, heads: int, rank: int) -> None:
    sizes = AttentionSizes(2, width, heads)
    assert (sizes.rank, sizes.own, sizes.other) == (width, width, width)
    assert AttentionSizes(2, width, embedding_rank=rank).rank == min(rank, width)
    assert sizes.has_standard_heads
    if width % heads == 0:
        assert sizes.resolved_head_size() * heads == width
    given = AttentionSizes(2, width, heads, head_size=rank, own_tokens=3, other_tokens=5)
    assert (given.resolved_head_size(), given.own, given.other) == (rank, 3, 5)
    assert given.has_standard_heads == (rank * heads == width)


def test_sizes_out_of_range_are_refused_with_their_numbers() -> None:
    with pytest.raises(BoundError, match="depth must be at least 1, got 0"):
        AttentionSizes(0, 4)
    with pytest.raises(BoundError, match="depth must be at most 10,000, got 10,001"):
        AttentionSizes(DEEPEST + 1, 4)
    with pytest.raises(BoundError, match="width must be at least 1, got -3"):
        AttentionSizes(1, -3)
    with pytest.raises(BoundError, match="degree must be odd and at least 3, got 4"):
        AttentionSizes(1, 3, degree=4)
    with pytest.raises(BoundError, match="degree must be odd and at least 3, got 1"):
        AttentionSizes(1, 3, degree=1)
    with pytest.raises(BoundError, match="width must be at most 1,000,000,000, got about 10"):
        AttentionSizes(1, 10**40)
    with pytest.raises(BoundError, match=r"layers of degree 99 must be at most 2,391, got 3,000"):
        AttentionSizes(3000, 3, degree=99)
    with pytest.raises(BoundError, match="3 heads do not divide width 10; give head_size"):
        published_lower_bound(AttentionSizes(2, 10, heads=3))


@pytest.mark.parametrize("name", ["head_size", "embedding_rank", "own_tokens", "other_tokens"])
def test_an_optional_size_is_checked_when_given(name: str) -> None:
    with pytest.raises(BoundError, match=f"AttentionSizes: {name} must be at least 1, got 0"):
        AttentionSizes(1, 3, **{name: 0})


def test_requirements_name_the_caller_and_the_size() -> None:
    require_at_least("here", 2, first=2, second=3)
    with pytest.raises(BoundError, match="here: second must be at least 2, got 1"):
        require_at_least("here", 2, first=2, second=1)
    require_even("here", order=4)
    with pytest.raises(BoundError, match=r"here: order must be even .* got 5"):
        require_even("here", order=5)
    require_depth("here", DEEPEST)
    with pytest.raises(BoundError, match="here: depth must be at least 1, got 0"):
        require_depth("here", 0)


def test_both_sides_need_different_positions() -> None:
    require_positions("here", (2, 0), 3)
    with pytest.raises(BoundError, match=r"out of 0\.\.2, got \(1, 1\)"):
        require_positions("here", (1, 1), 3)
    with pytest.raises(BoundError, match=r"out of 0\.\.2, got \(-1,\)"):
        require_positions("here", (-1,), 3)
    with pytest.raises(BoundError, match=r"out of 0\.\.2, got \(3,\)"):
        require_positions("here", (3,), 3)
    with pytest.raises(BoundError, match="both sides need a position, got 0 of 3"):
        require_positions("here", (), 3)
    with pytest.raises(BoundError, match="both sides need a position, got 3 of 3"):
        require_positions("here", (0, 1, 2), 3)
