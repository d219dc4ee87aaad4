"""Tensor trains: cuts and lower bounds."""

import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.errors import BoundError
from rankscope.rank import (
    alkin_lower_bound,
    different_cores_lower_bound,
    equal_cores_lower_bound,
    left_right_upper_bound,
    odd_even_upper_bound,
    tensor_train_upper_bound,
)


@settings(deadline=None)
@given(order=st.integers(2, 9), size=st.integers(1, 20), bond=st.integers(1, 6))
def test_uniform_trains_follow_the_chain_cut(order: int, size: int, bond: int) -> None:
    sizes, bonds = (size,) * order, (bond,) * (order - 1)
    odd = tuple(range(0, order, 2))
    first = tuple(range(order // 2))
    assert (
        odd_even_upper_bound(order=order, size=size, bond=bond).value
        == tensor_train_upper_bound(sizes, bonds, odd).value
    )
    assert (
        left_right_upper_bound(order=order, size=size, bond=bond).value
        == tensor_train_upper_bound(sizes, bonds, first).value
    )


@settings(deadline=None, max_examples=40)
@given(data=st.data(), order=st.integers(2, 5))
def test_the_chain_cut_is_the_best_of_all_assignments(data: st.DataObject, order: int) -> None:
    some = st.integers(1, 6)
    sizes = tuple(data.draw(some) for _ in range(order))
    links = tuple(data.draw(some) for _ in range(order - 1))
    left = tuple(sorted(data.draw(st.sets(st.integers(0, order - 1), min_size=1,
                                          max_size=order - 1))))  # fmt: skip
    best = min(
        math.prod(sizes[t] for t in range(order) if sides[t] != (t in left))
        * math.prod(links[t] for t in range(order - 1) if sides[t] != sides[t + 1])
        for sides in itertools.product((False, True), repeat=order)
    )
    assert tensor_train_upper_bound(sizes, links, left).value == best


@pytest.mark.parametrize(("size", "bond", "order", "odd_even", "left_right"), [
    (2, 2, 8, 16, 2), (2, 3, 8, 16, 3), (3, 2, 4, 6, 2), (3, 2, 6, 18, 2), (3, 3, 8, 81, 3),
    (7, 1, 6, 1, 1),
])  # fmt: skip
def test_trains_have_the_reference_values(
    size: int, bond: int, order: int, odd_even: int, left_right: int
) -> None:
    assert odd_even_upper_bound(order=order, size=size, bond=bond).value == odd_even
    assert left_right_upper_bound(order=order, size=size, bond=bond).value == left_right


@settings(deadline=None)
@given(half=st.integers(1, 5), size=st.integers(1, 6), bond=st.integers(1, 6))
def test_lower_bounds_on_trains_stay_below_the_cut(half: int, size: int, bond: int) -> None:
    upper = odd_even_upper_bound(order=2 * half, size=size, bond=bond)
    lowers = [
        function(order=2 * half, size=size, bond=bond).value
        for function in (alkin_lower_bound, equal_cores_lower_bound, different_cores_lower_bound)
    ]
    expected = min(size, bond - 1) ** half, min(size, bond) ** half, min(size, bond) ** half
    assert tuple(lowers) == expected
    assert upper.value is not None
    assert max(expected) <= upper.value


@pytest.mark.parametrize(("size", "bond", "order"), [
    (2, 2, 6), (3, 2, 4), (3, 3, 4), (2, 3, 6), (2, 4, 4), (4, 4, 4), (5, 1, 4), (3, 3, 2),
])  # fmt: skip
def test_the_witness_with_equal_cores_is_unitriangular(size: int, bond: int, order: int) -> None:
    free, letters = min(size, bond - 1), min(size, bond)

    def entry(word: tuple[int, ...]) -> bool:
        state = word[0]
        for letter in word[1:-1]:
            if state < free and letter != state:
                return False
            state = free if state < free else letter
        return state == word[-1]

    def positions_of_free_letters(word: tuple[int, ...]) -> int:
        return sum(place for place, letter in enumerate(word) if letter == free)

    words = sorted(
        itertools.product(range(letters), repeat=order // 2), key=positions_of_free_letters
    )
    assert len(words) == equal_cores_lower_bound(order=order, size=size, bond=bond).value
    for i, row in enumerate(words):
        for j, column in enumerate(words[: i + 1]):
            word = tuple(itertools.chain.from_iterable(zip(row, column, strict=True)))
            assert entry(word) == (i == j)


def test_trains_that_do_not_fit_are_refused() -> None:
    with pytest.raises(BoundError, match=r"order must be even .* got 3"):
        equal_cores_lower_bound(order=3, size=2, bond=2)
    with pytest.raises(BoundError, match="bond must be at least 1, got 0"):
        alkin_lower_bound(order=4, size=2, bond=0)
    with pytest.raises(BoundError, match="3 sites need 2 bonds, got 1"):
        tensor_train_upper_bound((2, 2, 2), (2,), (0,))
    with pytest.raises(BoundError, match=r"out of 0\.\.2, got \(0, 3\)"):
        tensor_train_upper_bound((2, 2, 2), (2, 2), (0, 3))
    with pytest.raises(BoundError, match="got 3 of 3 on the left"):
        tensor_train_upper_bound((2, 2, 2), (2, 2), (0, 1, 2))
