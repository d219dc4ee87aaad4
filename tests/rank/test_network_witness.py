"""The witness of the lower bounds for equal cores."""

import itertools
import re

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from rankscope.errors import SizeError
from rankscope.rank import (
    Partition,
    TensorTrain,
    matricize,
    rank_modulo,
    witness_cores,
    witness_weights,
)

PRIME = 101


def witness(order: int, size: int, bond: int) -> NDArray[numpy.int64]:
    train = TensorTrain(order=order, size=size, bond=bond, has_equal_cores=True)
    return train.coefficients(witness_weights(train), PRIME)


@settings(deadline=None)
@given(size=st.integers(1, 5), bond=st.integers(1, 5))
def test_cores_are_those_of_the_proof_index_by_index(size: int, bond: int) -> None:
    first, inner, last = witness_cores(size=size, bond=bond)
    assert (first.shape, inner.shape, last.shape) == (
        (1, size, bond), (bond, size, bond), (bond, size, 1))  # fmt: skip
    doubled = min(size, bond - 1)
    for state, letter in itertools.product(range(1, bond + 1), range(1, size + 1)):
        assert first[0, letter - 1, state - 1] == last[state - 1, letter - 1, 0]
        assert first[0, letter - 1, state - 1] == (letter == state)
        for following in range(1, bond + 1):
            if state <= doubled:
                expected = state == letter and following == doubled + 1
            else:
                expected = state == doubled + 1 and letter == following
            assert inner[state - 1, letter - 1, following - 1] == expected


@pytest.mark.parametrize(("order", "size", "bond"), [
    (2, 3, 2), (4, 2, 3), (6, 2, 2), (5, 3, 3), (4, 4, 3), (4, 2, 5), (6, 3, 1),
])  # fmt: skip
def test_words_of_doubled_and_single_letters_have_the_coefficient_one(
    order: int, size: int, bond: int
) -> None:
    doubled = min(size, bond - 1)
    tokens = [str(letter) * 2 for letter in range(doubled)] + [str(doubled)]
    pattern = re.compile(f"(?:{'|'.join(tokens)})*")
    tensor = witness(order, size, bond)
    for word in itertools.product(range(size), repeat=order):
        assert tensor[word] == bool(pattern.fullmatch("".join(map(str, word))))


@pytest.mark.parametrize(("order", "size", "bond"), [(4, 2, 3), (6, 2, 3), (4, 3, 4), (4, 2, 5)])
def test_with_fewer_letters_than_states_the_matricization_is_the_identity(
    order: int, size: int, bond: int
) -> None:
    matrix = matricize(witness(order, size, bond), Partition.interleaved(order))
    assert (matrix == numpy.eye(size ** (order // 2), dtype=int)).all()


@pytest.mark.parametrize(("bond", "order"), [(2, 12), (3, 8), (4, 6)])
def test_on_as_many_letters_as_states_the_matricization_is_unitriangular(
    bond: int, order: int
) -> None:
    matrix = matricize(witness(order, bond, bond), Partition.interleaved(order))
    words = list(itertools.product(range(bond), repeat=order // 2))

    def places_of_single_letters(word: tuple[int, ...]) -> int:
        return sum(place for place, letter in enumerate(word) if letter == bond - 1)

    order_of_words = sorted(range(len(words)), key=lambda k: places_of_single_letters(words[k]))
    sorted_matrix = matrix[numpy.ix_(order_of_words, order_of_words)]
    assert (numpy.diagonal(matrix) == 1).all()
    assert (numpy.tril(sorted_matrix, -1) == 0).all()
    assert (matrix != numpy.eye(len(words), dtype=int)).any()
    assert rank_modulo(matrix, PRIME) == bond ** (order // 2)


@pytest.mark.parametrize(("order", "size", "bond", "expected"), [
    (4, 2, 3, 4), (6, 2, 3, 8), (4, 3, 4, 9), (6, 1, 1, 1), (4, 3, 1, 1),
])  # fmt: skip
def test_witnesses_have_the_reference_ranks(
    order: int, size: int, bond: int, expected: int
) -> None:
    matrix = matricize(witness(order, size, bond), Partition.interleaved(order))
    assert rank_modulo(matrix, PRIME) == expected


@settings(deadline=None, max_examples=30)
@given(
    half=st.integers(1, 3),
    size=st.integers(1, 4),
    bond=st.integers(1, 4),
    has_equal_cores=st.booleans(),
)
def test_the_witness_proves_the_lower_bound(
    half: int, size: int, bond: int, has_equal_cores: bool
) -> None:
    train = TensorTrain(order=2 * half, size=size, bond=bond, has_equal_cores=has_equal_cores)
    partition = Partition.interleaved(2 * half)
    matrix = matricize(train.coefficients(witness_weights(train), PRIME), partition)
    bound = train.lower_bound(partition)
    assert bound is not None
    assert bound.value == min(size, bond) ** half
    assert bound.holds_for(rank_modulo(matrix, PRIME))


def test_sizes_without_a_witness_are_refused() -> None:
    with pytest.raises(SizeError, match="bond must be at least 1, got 0"):
        witness_cores(size=2, bond=0)
    with pytest.raises(SizeError, match=r"one size, got \(2, 3, 2\)"):
        witness_weights(TensorTrain(order=4, size=2, bond=(2, 3, 2)))
