"""Recurrent circuits, start against end."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.bounds.recurrent import (
    start_end_grid_upper_bound,
    start_end_lower_bound,
    start_end_upper_bound,
)
from rankscope.errors import BoundError


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
