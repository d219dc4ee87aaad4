import hashlib

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.rank import (
    draw_challenges,
    largest_prime_below,
    num_challenges,
    rank_modulo,
    soundness_log2,
)

PRIMES = [2, 3, 101, 65537, *(largest_prime_below(2**bits) for bits in (24, 31))]


@pytest.mark.parametrize("prime", PRIMES)
def test_there_are_just_enough_challenges_for_a_hundred_bits(prime: int) -> None:
    count = num_challenges(prime)
    assert prime ** (count - 1) < 2**100 <= prime**count
    assert soundness_log2(prime) <= -100


@pytest.mark.parametrize("prime", PRIMES)
def test_challenges_are_numbers_of_128_bits_modulo_the_prime(prime: int) -> None:
    drawn = draw_challenges(b"statement", 4, 3, prime)
    assert drawn.shape == (3, num_challenges(prime))
    for number in range(drawn.shape[1]):
        text = f"rankscope challenge 4 {number} of 3 modulo {prime}\n".encode() + b"statement"
        stream = hashlib.shake_256(text).digest(48)
        words = [int.from_bytes(stream[at : at + 8], "little") for at in range(0, 48, 8)]
        wanted = [(words[2 * row] * 2**64 + words[2 * row + 1]) % prime for row in range(3)]
        assert drawn[:, number].tolist() == wanted


def test_challenges_depend_on_the_statement_and_on_the_minor() -> None:
    one = draw_challenges(b"statement", 0, 8, 16777213)
    assert (one != draw_challenges(b"Statement", 0, 8, 16777213)).any(axis=0).all()
    assert (one != draw_challenges(b"statement", 1, 8, 16777213)).any(axis=0).all()
    assert len({tuple(column) for column in one.T.tolist()}) == one.shape[1]


@settings(deadline=None)
@given(
    size=st.integers(1, 6),
    prime=st.sampled_from(PRIMES),
    seed=st.integers(0, 2**32),
    binding=st.binary(max_size=8),
)
def test_nobody_can_answer_for_a_singular_matrix(
    size: int, prime: int, seed: int, binding: bytes
) -> None:
    """Not all right-hand sides lie in its image, up to a chance of 2^-100."""
    draw = numpy.random.default_rng(seed)
    left, right = draw.integers(0, prime, (2, size, size - 1))
    singular = left.astype(object) @ right.T.astype(object)
    sides = draw_challenges(binding, 0, size, prime)
    extended = numpy.concatenate((singular, sides.astype(object)), axis=1)
    assert rank_modulo(extended, prime) > rank_modulo(singular, prime)
