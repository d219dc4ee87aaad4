import pytest

from rankscope.errors import MeasurementError, PrimeError
from rankscope.rank import MeasureOptions
from rankscope.rank.measured import DEFAULT_OPTIONS


def test_a_negative_seed_is_refused() -> None:
    with pytest.raises(MeasurementError, match="seed must be 0 or more, got -3"):
        MeasureOptions(seed=-3)


@pytest.mark.parametrize("value", [-0.1, 1.5, float("nan")])
def test_a_failure_probability_out_of_range_is_refused(value: float) -> None:
    with pytest.raises(MeasurementError, match=rf"probability in 0..1, got {value}"):
        MeasureOptions(max_failure=value)


def test_no_prime_at_all_is_refused() -> None:
    with pytest.raises(MeasurementError, match="max_primes must be at least 1, got 0"):
        MeasureOptions(max_primes=0)
    with pytest.raises(PrimeError, match=r"at least one, got \(\)"):
        MeasureOptions(primes=())


def test_the_same_prime_twice_is_refused() -> None:
    with pytest.raises(PrimeError, match=r"different .* got \(101, 103, 101\)"):
        MeasureOptions(primes=(101, 103, 101))


def test_a_composite_prime_is_refused() -> None:
    with pytest.raises(PrimeError, match=r"99 is not a prime. The next one below is 97"):
        MeasureOptions(primes=(101, 99))


def test_a_prime_too_large_for_the_arithmetic_is_refused() -> None:
    with pytest.raises(PrimeError, match="below 2147483648, got 2305843009213693951"):
        MeasureOptions(primes=(2**61 - 1,))


def test_a_memory_limit_of_nothing_is_refused() -> None:
    with pytest.raises(MeasurementError, match="number of bytes, got 0"):
        MeasureOptions(memory_limit=0)


def test_a_prime_not_larger_than_the_degree_is_refused_with_one_that_is() -> None:
    options = MeasureOptions(primes=(103, 101))
    assert options.primes_for(100) == (103, 101)
    with pytest.raises(PrimeError, match=r"degree 101 .* got 101. Use primes=\(2147483647,\)"):
        options.primes_for(101)
    with pytest.raises(PrimeError, match=r"got 16777213. Even 2147483647"):
        DEFAULT_OPTIONS.primes_for(2**31)
