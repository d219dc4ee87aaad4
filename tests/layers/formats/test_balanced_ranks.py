from hypothesis import given
from hypothesis import strategies as st

from rankscope.layers.formats.balanced_ranks import largest_balanced_ranks

LIMITS = st.lists(st.integers(1, 12), min_size=1, max_size=3)


def _count(ranks: tuple[int, ...]) -> int:
    neighbours = zip((3, *ranks), (*ranks, 5), strict=True)
    return sum(left * right for left, right in neighbours)


@given(limits=LIMITS, num_parameters=st.integers(1, 300))
def test_ranks_are_even_until_a_limit_or_the_last_few_numbers(
    limits: list[int], num_parameters: int
) -> None:
    ranks = largest_balanced_ranks(_count, tuple(limits), num_parameters)
    if ranks is None:
        assert _count((1,) * len(limits)) > num_parameters
        return
    assert _count(ranks) <= num_parameters
    level = min(
        (rank for rank, limit in zip(ranks, limits, strict=True) if rank < limit), default=12
    )
    one_more = tuple(min(level + 1, limit) for limit in limits)
    assert one_more == ranks or _count(one_more) > num_parameters
