import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.auditing import ShapeConstraints
from rankscope.errors import PlanError


@settings(deadline=None)
@given(
    width=st.floats(2000.0, 40000.0),
    heads=st.none() | st.integers(1, 40),
    multiple_of=st.sampled_from([1, 8, 64]),
)
def test_a_rounded_width_is_the_nearest_that_heads_and_rounding_divide(
    width: float, heads: int | None, multiple_of: int
) -> None:
    constraints = ShapeConstraints(heads=heads, multiple_of=multiple_of)
    found = constraints.rounded(width)
    assert found % multiple_of == found % (heads or 1) == 0
    assert abs(found - width) <= constraints.step / 2


@settings(deadline=None)
@given(width=st.integers(1, 40000))
def test_usual_heads_together_are_never_wider_than_the_width(width: int) -> None:
    heads, head_size = ShapeConstraints().heads_at(width)
    assert width - heads < heads * head_size <= width
    whole = ShapeConstraints().rounded(width)
    heads, head_size = ShapeConstraints().heads_at(whole)
    assert heads * head_size == whole


def test_heads_or_their_size_are_kept() -> None:
    assert ShapeConstraints(heads=96).heads_at(9600) == (96, 100)
    assert ShapeConstraints(head_size=100).heads_at(9600) == (96, 100)
    assert ShapeConstraints(heads=96, head_size=128).fixed_width == 12288


def test_multiples_wider_than_the_budget_are_refused() -> None:
    with pytest.raises(PlanError, match=r"width of 100.0, .* multiples of 320; .* at most 100"):
        ShapeConstraints(heads=5, multiple_of=64).rounded(100.0)


def test_heads_and_their_size_must_fit_the_rounding() -> None:
    with pytest.raises(PlanError, match=r"3 heads of size 50 fix the width at 150, .* of 64"):
        ShapeConstraints(heads=3, head_size=50, multiple_of=64)


@pytest.mark.parametrize("name", ["heads", "head_size", "max_depth", "multiple_of"])
def test_wishes_are_positive(name: str) -> None:
    with pytest.raises(PlanError, match=f"{name.replace('_', ' ')} must be at least 1, got 0"):
        ShapeConstraints(**{name: 0})
