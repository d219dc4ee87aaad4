import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.rank import inverse_modulo, largest_prime_below, multiply_modulo
from rankscope.rank.residues import find_pivots, invert_in_place, reduce_block, subtract_multiple

PRIMES = [2, 3, 5, 251, *(largest_prime_below(2**bits) for bits in (23, 24, 26, 27, 28, 30, 31))]
primes = st.sampled_from(PRIMES)


def residue(number: int, prime: int) -> int:
    """A residue as far from 0 as the bound of the kernels allows."""
    largest = (prime + 3) // 2 if prime > 2**22 else prime // 2
    return number % (2 * largest + 1) - largest


@settings(deadline=None)
@given(prime=primes, data=st.data())
def test_reduction_keeps_the_class_and_the_bound(prime: int, data: st.DataObject) -> None:
    """The bound proved at the head of the module, up to the last integer it allows."""
    most = 2**53 - (prime + 3) // 2 if prime > 2**22 else 2**51 - 1
    halves = st.integers(-(most // prime) + 1, most // prime - 1).map(
        lambda n: n * prime + prime // 2
    )
    values = data.draw(st.lists(st.integers(-most, most) | halves, min_size=1, max_size=20))
    matrix = numpy.array([values], dtype=numpy.float64)
    reduce_block(matrix, (0, 1), 0, float(prime))
    for value, reduced in zip(values, matrix[0].tolist(), strict=True):
        assert reduced.is_integer()
        assert (value - int(reduced)) % prime == 0
        assert abs(reduced) <= ((prime + 3) // 2 if abs(value) >= 2**51 else prime / 2)


def test_reduction_touches_its_block_only() -> None:
    matrix = numpy.full((4, 3), 10.0)
    reduce_block(matrix, (1, 3), 1, 7.0)
    assert matrix.tolist() == [[10, 10, 10], [10, 3, 3], [10, 3, 3], [10, 10, 10]]


@settings(deadline=None)
@given(prime=primes, numbers=st.lists(st.integers(0, 2**32), min_size=3, max_size=9))
def test_subtracting_a_multiple_is_exact_for_the_largest_residues(
    prime: int, numbers: list[int]
) -> None:
    factor, *rest = (residue(number, prime) for number in numbers)
    for extreme in (factor, residue(0, prime), -residue(0, prime)):
        target = numpy.array(rest, dtype=numpy.float64)
        source = numpy.array([*rest[1:], residue(0, prime)], dtype=numpy.float64)
        subtract_multiple(target, source, float(extreme), float(prime))
        wanted = [before - extreme * int(other) for before, other in zip(rest, source, strict=True)]
        assert [(int(t) - w) % prime for t, w in zip(target, wanted, strict=True)] == [0] * len(
            rest
        )
        assert numpy.abs(target).max() <= (prime + 3) // 2


@settings(deadline=None)
@given(prime=primes, first=st.integers(0, 2**32), second=st.integers(0, 2**32))
def test_products_and_inverses_are_those_of_the_field(prime: int, first: int, second: int) -> None:
    one, other = residue(first, prime), residue(second, prime)
    product = multiply_modulo(float(one), float(other), float(prime))
    assert (int(product) - one * other) % prime == 0
    assert abs(product) <= prime / 2
    if one % prime:
        assert int(inverse_modulo(float(one), float(prime))) * one % prime == 1


@pytest.mark.parametrize("prime", PRIMES)
def test_the_inverse_of_a_pivot_block_is_its_inverse(prime: int) -> None:
    draw = numpy.random.default_rng(prime)
    block = draw.integers(0, prime, (12, 9)) - prime // 2
    rows, columns = numpy.empty(9, dtype=numpy.int64), numpy.empty(9, dtype=numpy.int64)
    count = find_pivots(block.astype(numpy.float64), float(prime), rows, columns)
    minor = block[rows[:count]][:, columns[:count]]
    inverse = minor.astype(numpy.float64)
    invert_in_place(inverse, float(prime))
    product = minor.astype(object) @ inverse.astype(numpy.int64).astype(object) % prime
    assert count > 0
    assert product.tolist() == numpy.eye(count, dtype=int).tolist()


def test_pivots_skip_dependent_rows_and_columns() -> None:
    block = numpy.array([[0, 0, 1], [0, 2, 3], [0, 4, 6.0]])
    rows, columns = numpy.empty(3, dtype=numpy.int64), numpy.empty(3, dtype=numpy.int64)
    assert find_pivots(block, 101.0, rows, columns) == 2
    assert rows[:2].tolist() == [1, 0]
    assert columns[:2].tolist() == [1, 2]
