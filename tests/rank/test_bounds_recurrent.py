"""Recurrent circuits, start against end and under any partition."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.errors import BoundError
from rankscope.rank import (
    recurrent_upper_bound,
    start_end_grid_upper_bound,
    start_end_lower_bound,
    start_end_upper_bound,
)


@pytest.mark.parametrize(("tokens", "templates", "channels", "depth", "value"), [
    (8, 2, 2, 1, 2), (8, 2, 2, 2, 10), (6, 3, 2, 2, 8), (8, 3, 3, 1, 3),
])  # fmt: skip
def test_recurrent_circuits_have_the_reference_values(
    tokens: int, templates: int, channels: int, depth: int, value: int
) -> None:
    grid = start_end_grid_upper_bound(
        num_tokens=tokens, num_templates=templates, num_channels=channels, depth=depth
    )
    assert grid.value == value


@settings(deadline=None)
@given(
    half=st.integers(1, 5),
    templates=st.integers(1, 4),
    channels=st.integers(1, 4),
    depth=st.integers(1, 2),
)
def test_recurrent_bounds_are_in_order(
    half: int, templates: int, channels: int, depth: int
) -> None:
    sizes = {"num_tokens": 2 * half, "num_templates": templates, "num_channels": channels}
    lower = start_end_lower_bound(**sizes, depth=depth)
    grid = start_end_grid_upper_bound(**sizes, depth=depth)
    whole = start_end_upper_bound(**sizes, depth=depth)
    assert lower.log3 <= grid.log3 <= whole.log3
    if depth == 1:
        assert grid.value == whole.value == min(channels, templates**half)


def test_recurrent_circuits_out_of_range_are_refused() -> None:
    sizes = {"num_tokens": 4, "num_templates": 2, "num_channels": 2}
    with pytest.raises(BoundError, match="covers depth 1 and 2, got 3"):
        start_end_lower_bound(**sizes, depth=3)
    with pytest.raises(BoundError, match="depth must be at most 64, got 65"):
        start_end_upper_bound(**sizes, depth=65)
    with pytest.raises(BoundError, match=r"num_tokens must be even .* got 5"):
        start_end_upper_bound(num_tokens=5, num_templates=2, num_channels=2, depth=1)


def any_bound(left: tuple[int, ...], sizes: dict[str, int], *, is_on_templates: bool) -> int:
    value = recurrent_upper_bound(left, **sizes, is_on_templates=is_on_templates).value
    assert value is not None
    return value


@pytest.mark.parametrize(("tokens", "templates", "channels", "depth", "value"), [
    (8, 2, 2, 1, 16), (8, 2, 2, 2, 16), (6, 3, 2, 2, 18), (8, 3, 3, 1, 81),
])  # fmt: skip
def test_odd_against_even_has_the_reference_values(
    tokens: int, templates: int, channels: int, depth: int, value: int
) -> None:
    sizes = named(tokens, templates, channels, depth)
    assert any_bound(tuple(range(0, tokens, 2)), sizes, is_on_templates=True) == value


@settings(deadline=None)
@given(
    half=st.integers(1, 5),
    templates=st.integers(1, 5),
    channels=st.integers(1, 4),
    depth=st.integers(1, 4),
)
def test_the_cut_over_time_is_never_above_the_start_end_bounds(
    half: int, templates: int, channels: int, depth: int
) -> None:
    sizes = named(2 * half, templates, channels, depth)
    start = tuple(range(half))
    grid = any_bound(start, sizes, is_on_templates=True)
    whole = any_bound(start, sizes, is_on_templates=False)
    assert grid <= whole
    assert grid <= (start_end_grid_upper_bound(**sizes).value or 0)
    assert whole <= (start_end_upper_bound(**sizes).value or 0)
    if depth == 1:
        assert grid == whole == min(channels, templates**half)


@settings(deadline=None)
@given(
    tokens=st.integers(2, 7),
    templates=st.integers(1, 4),
    channels=st.integers(1, 4),
    depth=st.integers(1, 3),
    side=st.sets(st.integers(0, 5), min_size=1, max_size=6),
)
def test_the_cut_over_time_knows_no_left_and_right_and_counts_templates_at_most_once(
    tokens: int, templates: int, channels: int, depth: int, side: set[int]
) -> None:
    left = tuple(position for position in side if position < tokens - 1) or (0,)
    right = tuple(position for position in range(tokens) if position not in left)
    sizes = named(tokens, templates, channels, depth)
    value = any_bound(left, sizes, is_on_templates=True)
    assert value == any_bound(right, sizes, is_on_templates=True)
    # The last token stands on the right and is seen through its channels only.
    last = min(templates, channels) * templates ** (len(right) - 1)
    assert value <= min(templates ** len(left), last)


def test_the_cut_over_time_can_be_below_the_start_end_formula() -> None:
    """The third token has degree 3 in two channels: it counts for ms(2, 3) = 4, not for M = 5."""
    sizes = named(4, 5, 2, 3)
    assert any_bound((0, 1), sizes, is_on_templates=True) == 8
    assert start_end_grid_upper_bound(**sizes).value == 10


def test_partitions_and_sizes_that_do_not_fit_are_refused() -> None:
    sizes = named(4, 2, 2, 1)
    with pytest.raises(BoundError, match=r"recurrent_upper_bound: both sides .* got 0 of 4"):
        recurrent_upper_bound((), **sizes, is_on_templates=True)
    with pytest.raises(BoundError, match=r"positions out of 0\.\.3, got \(4,\)"):
        recurrent_upper_bound((4,), **sizes, is_on_templates=True)
    with pytest.raises(BoundError, match="depth must be at most 64, got 65"):
        recurrent_upper_bound((0,), **(sizes | {"depth": 65}), is_on_templates=True)


def named(tokens: int, templates: int, channels: int, depth: int) -> dict[str, int]:
    return {
        "num_tokens": tokens,
        "num_templates": templates,
        "num_channels": channels,
        "depth": depth,
    }
