"""Channels cut in factors, and weights as paired tensors."""

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.errors import LayerError
from rankscope.factorize import ChannelFactors, WeightShape, balanced_factors
from rankscope.factorize.formats.channel_factors import largest_prime, splitting_refusal


# The first six are those of the released code, which deals out factors of two.
@pytest.mark.parametrize(
    ("number", "num_factors", "factors"),
    [
        (64, 2, (8, 8)),
        (32, 2, (8, 4)),
        (32, 3, (4, 4, 2)),
        (512, 3, (8, 8, 8)),
        (16, 3, (4, 2, 2)),
        (3, 2, (3, 1)),
        (768, 3, (12, 8, 8)),
        (1, 3, (1, 1, 1)),
    ],
)
def test_factors_are_those_of_the_specification(
    number: int, num_factors: int, factors: tuple[int, ...]
) -> None:
    assert balanced_factors(number, num_factors) == factors


@settings(deadline=None)
@given(st.integers(1, 120), st.integers(1, 3))
def test_no_other_factorization_has_a_smaller_sum(number: int, num_factors: int) -> None:
    divisors = [divisor for divisor in range(1, number + 1) if number % divisor == 0]
    sums = [
        sum(factors)
        for factors in itertools.product(divisors, repeat=num_factors)
        if math.prod(factors) == number
    ]
    found = balanced_factors(number, num_factors)
    assert math.prod(found) == number
    assert sum(found) == min(sums)
    assert list(found) == sorted(found, reverse=True)


@given(st.integers(2, 500))
def test_the_largest_prime_divides_and_leaves_no_larger_one(number: int) -> None:
    prime = largest_prime(number)
    assert number % prime == 0
    assert all(prime % divisor for divisor in range(2, prime))
    larger = [p for p in range(prime + 1, number + 1) if number % p == 0]
    assert all(any(p % divisor == 0 for divisor in range(2, p)) for p in larger)


def test_what_cannot_be_cut_is_refused_with_its_numbers() -> None:
    with pytest.raises(LayerError, match="positive number in at least 1 factor, got 0 in 2"):
        balanced_factors(0, 2)
    with pytest.raises(LayerError, match="at least 1 factor, got 8 in 0"):
        balanced_factors(8, 0)


def test_only_large_primes_do_not_split() -> None:
    assert splitting_refusal(WeightShape(31, 62), 2) is None
    refusal = splitting_refusal(WeightShape(64, 3 * 37), 3)
    assert refusal is not None
    assert "its 111 inputs do not split in 3 factors" in refusal
    assert "37 is a prime over 31" in refusal


def test_a_paired_tensor_holds_each_number_of_the_weight_in_its_place() -> None:
    # Inputs and outputs differ: the released code is right only where they are equal.
    factors = ChannelFactors((3, 2), (5, 4))
    weight = torch.randn(20, 6, 2, 3)
    paired = factors.pair(weight)
    assert paired.shape == (15, 8, 6)
    for i, j, a, b, h, w in itertools.product(*map(range, (3, 2, 5, 4, 2, 3))):
        assert paired[i * 5 + a, j * 4 + b, h * 3 + w] == weight[a * 4 + b, i * 2 + j, h, w]
        assert factors.split(weight)[i, j, a, b, h * 3 + w] == weight[a * 4 + b, i * 2 + j, h, w]
