from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.rank import Saturation

maybe = st.none() | st.integers(0, 3000)


def final_size(rule: Saturation, true_rank: int) -> int:
    """Grow the sample of a matrix in general position until the rule is content."""
    size = rule.first_size
    for _ in range(40):
        rank = min(true_rank, *rule.shape(size))
        if rule.is_enough(size, rank):
            return size
        assert rule.next_size(size) > size
        size = rule.next_size(size)
    raise AssertionError("the sample never becomes large enough")


@settings(deadline=None)
@given(true_rank=st.integers(0, 2000), slack=st.none() | st.integers(0, 500))
def test_drawn_points_end_with_more_samples_than_the_rank(
    true_rank: int, slack: int | None
) -> None:
    rule = Saturation((None, None), None if slack is None else true_rank + slack)
    size = final_size(rule, true_rank)
    assert size > true_rank
    assert size <= max(64, 3 * true_rank + 1, true_rank + 8)
    assert rule.bound is None or size <= rule.bound + 8


@settings(deadline=None)
@given(rows=st.integers(1, 2000), columns=st.integers(1, 2000), upper=maybe, share=st.floats(0, 1))
def test_templates_are_exhausted_unless_the_bound_is_met(
    rows: int, columns: int, upper: int | None, share: float
) -> None:
    rule = Saturation((rows, columns), upper)
    assert rule.bound is not None
    true_rank = int(share * rule.bound)
    size = final_size(rule, true_rank)
    shape = rule.shape(size)
    assert shape[0] <= rows
    assert shape[1] <= columns
    assert true_rank == rule.bound or shape == (rows, columns)


def test_one_finite_side_is_exhausted_while_the_other_needs_more_points_than_the_rank() -> None:
    rule = Saturation((10, None), None)
    assert rule.is_enough(10, 9)
    assert not rule.is_enough(9, 5)
    assert rule.is_enough(18, 10)  # ten rows have no larger rank
    assert rule.bound == 10


def test_a_bound_that_is_near_is_reached_in_one_step() -> None:
    rule = Saturation((None, None), 11_440)
    assert rule.next_size(2048) == 4096
    assert rule.next_size(4096) == 11_448
    assert rule.final_size(64) == 11_448
    assert Saturation((None, None), None).final_size(64) == 64


def test_another_prime_needs_a_few_samples_more_than_the_rank() -> None:
    assert Saturation((None, None), 110).size_to_confirm(110, 90) == 98
    assert Saturation((None, None), None).size_to_confirm(128, 107) == 115
    assert Saturation((128, 64), None).size_to_confirm(128, 7) == 128


def test_a_rank_at_its_bound_is_believed_where_a_larger_one_would_be_seen() -> None:
    rule = Saturation((None, None), 64)
    assert not rule.is_enough(64, 64)
    assert rule.next_size(64) == 72
    assert rule.is_enough(72, 64)
    assert rule.is_enough(72, 65)  # no larger sample can save the bound
    assert Saturation((None, None), 0).first_size == 8
