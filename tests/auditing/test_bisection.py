import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.auditing.depth_width_law import solve_growing


@settings(deadline=None)
@given(root=st.floats(1e-6, 1e6), power=st.sampled_from([1, 2, 3]))
def test_the_root_of_a_power_is_found(root: float, power: int) -> None:
    found = solve_growing(lambda number: float(number**power), float(root**power))
    assert found == pytest.approx(root)


def test_a_jump_is_approached_from_below() -> None:
    found = solve_growing(lambda number: number if number <= 3 else number + 10, 5.0)
    assert found == 3.0
