import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.auditing import Regime, Shape
from rankscope.rank import AttentionSizes, counting_upper_bound, published_lower_bound


@settings(deadline=None)
@given(
    depth=st.integers(1, 12),
    heads=st.integers(1, 6),
    head_size=st.integers(1, 40),
    more=st.integers(0, 30),
)
def test_the_lower_bound_is_that_of_the_heads_and_below_the_count(
    depth: int, heads: int, head_size: int, more: int
) -> None:
    inner = heads * head_size
    shape = Shape(depth, inner + more, heads, head_size, inner + more)
    expected = published_lower_bound(AttentionSizes(depth, inner, heads))
    assert shape.lower == expected
    if shape.lower is not None:
        assert shape.lower.log3 <= shape.count.log3


def test_heads_beyond_the_width_do_not_raise_the_lower_bound() -> None:
    few = Shape(24, 1024, 8, 128, 1024).lower
    assert few is not None
    assert Shape(24, 1024, 128, 128, 1024).lower == few


def test_the_count_is_that_of_the_embedding_rank() -> None:
    assert Shape(2, 6, 1, 6, 2).count == counting_upper_bound(AttentionSizes(2, 2))
    assert Shape(2, 6, 1, 6, 2).lower is None
    assert Shape(2, 6, 1, 6, 2).bounds_to_dict()["lower_log3"] is None


def test_a_head_wider_than_the_width_has_no_published_bound() -> None:
    assert Shape(3, 64, 1, 128, 64).lower is None


@pytest.mark.parametrize(
    ("depth", "regime"),
    [(1, Regime.EFFICIENT), (3, Regime.BOUNDARY), (4, Regime.INEFFICIENT)],
)
def test_regimes_meet_at_the_logarithm(depth: int, regime: Regime) -> None:
    assert Shape(depth, 27, 1, 27, 27).regime is regime
