import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.errors import PartitionError
from rankscope.rank import Partition


def test_named_partitions_split_four_inputs() -> None:
    assert Partition.interleaved(4) == Partition((0, 2), (1, 3))
    assert Partition.left_right(4) == Partition((0, 1), (2, 3))
    assert Partition.start_end(5) == Partition((0, 1), (2, 3, 4))


def test_sides_are_kept_in_ascending_order() -> None:
    assert Partition((3, 0), (2, 1)).left == (0, 3)
    assert Partition((3, 0), (2, 1)).right == (1, 2)


@settings(deadline=None)
@given(half=st.integers(1, 8), seed=st.integers(0, 2**32))
def test_a_random_partition_is_balanced_covers_all_and_follows_its_seed(
    half: int, seed: int
) -> None:
    partition = Partition.balanced_random(2 * half, seed=seed)
    assert partition.is_balanced
    assert partition.positions == tuple(range(2 * half))
    assert partition == Partition.balanced_random(2 * half, seed=seed)


def test_random_partitions_reach_every_split() -> None:
    seen = {Partition.balanced_random(4, seed=seed).left for seed in range(200)}
    assert len(seen) == 6


def test_a_position_on_neither_side_is_fixed() -> None:
    partition = Partition((4,), (1, 2))
    assert partition.fixed(6) == (0, 3, 5)
    assert partition.positions == (1, 2, 4)
    assert partition.smallest_order == 5
    assert not partition.is_balanced
    assert partition.swapped == Partition((1, 2), (4,))
    assert Partition.interleaved(4).fixed(4) == ()


@pytest.mark.parametrize(
    ("left", "right", "message"),
    [
        ((), (1,), r"must hold a position, got \(\) and \(1,\)"),
        ((1,), (), r"must hold a position, got \(1,\) and \(\)"),
        ((0, 1), (2, 1), r"disjoint, got 1 in both \(0, 1\) and \(2, 1\)"),
        ((0, -2), (1,), r"counted from 0, got -2 in \(0, -2\) and \(1,\)"),
        ((0, 3, 3), (1,), r"each position once, got 3 2 times in \(0, 3, 3\)"),
        ((0,), (5, 5, 5), r"each position once, got 5 3 times in \(5, 5, 5\)"),
    ],
)
def test_malformed_partitions_are_refused(
    left: tuple[int, ...], right: tuple[int, ...], message: str
) -> None:
    with pytest.raises(PartitionError, match=message):
        Partition(left, right)


@pytest.mark.parametrize("position", [-1, 3])
def test_positions_outside_the_order_are_refused(position: int) -> None:
    with pytest.raises(PartitionError, match=rf"0\.\.2 for order 3, got {position} in \(0, "):
        Partition.of([0, position], order=3)


def test_an_odd_order_has_no_two_halves() -> None:
    with pytest.raises(PartitionError, match="even order, got 5"):
        Partition.balanced_random(5, seed=0)


def test_an_order_below_a_named_position_is_refused() -> None:
    with pytest.raises(PartitionError, match=r"names position 4, but order 3 .* 0\.\.2"):
        Partition((0,), (4,)).fixed(3)
