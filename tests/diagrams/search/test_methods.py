import sys

import pytest

from rankscope.diagrams import (
    AUTOMATIC,
    Automatic,
    Cotengra,
    Exhaustive,
    Greedy,
    Problem,
    find_path,
)
from rankscope.errors import MissingExtraError

# A ring of six matrices: no order is obvious.
RING = Problem(tuple((place, (place + 1) % 6) for place in range(6)), (), (7, 2, 9, 3, 8, 4))


@pytest.mark.parametrize("method", [Automatic(), Exhaustive(), Greedy(), Cotengra()])
def test_every_method_reduces_all_operands_to_one(
    method: Automatic | Exhaustive | Greedy | Cotengra,
) -> None:
    count = len(RING.operands)
    for positions in find_path(RING, method):
        assert all(0 <= position < count for position in positions)
        assert len(set(positions)) == len(positions)
        count -= len(positions) - 1
    assert count == 1


def test_one_operand_moves_only_if_something_changes() -> None:
    assert find_path(Problem(((0, 1),), (0, 1), (2, 3)), AUTOMATIC) == ()
    assert find_path(Problem(((0, 1),), (1, 0), (2, 3)), AUTOMATIC) == ((0,),)
    assert find_path(Problem(((0, 0),), (0,), (2,)), AUTOMATIC) == ((0,),)


def test_cotengra_gives_the_same_order_for_the_same_seed() -> None:
    assert Cotengra(seed=5).path(RING) == Cotengra(seed=5).path(RING)


def test_without_cotengra_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cotengra", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'rankscope\[paths\]'"):
        Cotengra(seed=99).path(RING)
