import flint
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.errors import PrimeError
from rankscope.rank import is_prime, largest_prime_below, require_prime


def test_small_primes_are_those_of_the_sieve() -> None:
    limit = 10_000
    composite = {multiple for n in range(2, 100) for multiple in range(2 * n, limit, n)}
    for number in range(-3, limit):
        assert is_prime(number) == (number >= 2 and number not in composite)


@settings(deadline=None)
@given(st.integers(0, 2**64 - 1))
def test_primality_agrees_with_flint(number: int) -> None:
    assert is_prime(number) == flint.fmpz(number).is_prime()


@pytest.mark.parametrize(
    "number",
    # Carmichael numbers and the least strong pseudoprimes to the first 1, 4, 8 and 11 bases.
    [561, 1729, 2047, 3215031751, 341550071728321, 3825123056546413051],
)
def test_strong_pseudoprimes_are_composite(number: int) -> None:
    assert not is_prime(number)


@settings(deadline=None)
@given(st.integers(3, 2**64))
def test_nothing_between_the_largest_prime_and_its_limit_is_prime(limit: int) -> None:
    prime = largest_prime_below(limit)
    assert prime < limit
    assert flint.fmpz(prime).is_prime()
    assert not any(flint.fmpz(number).is_prime() for number in range(prime + 1, limit))


def test_numbers_out_of_reach_are_refused() -> None:
    with pytest.raises(
        PrimeError, match=r"below 2\^64 = 18446744073709551616, got 18446744073709551"
    ):
        is_prime(2**64)
    with pytest.raises(PrimeError, match=r"3\.\.2\^64, got 2\."):
        largest_prime_below(2)
    with pytest.raises(PrimeError, match=r"3\.\.2\^64, got 18446744073709551617"):
        largest_prime_below(2**64 + 1)


def test_composites_and_large_primes_are_refused_with_the_alternative() -> None:
    assert require_prime(7, below=8, who="me") == 7
    with pytest.raises(PrimeError, match=r"me: 9 is not a prime\. The next one below is 7\."):
        require_prime(9, below=100, who="me")
    with pytest.raises(PrimeError, match=r"me: 1 is not a prime\.$"):
        require_prime(1, below=100, who="me")
    with pytest.raises(PrimeError, match=r"below 100, got 101\. The largest one is 97"):
        require_prime(101, below=100, who="me")
