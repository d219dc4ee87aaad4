import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.rank import largest_prime_below, panel_width
from rankscope.rank.residues import MAX_DEPTH, Matrix, exact_depth, subtract_product

PRIMES = [2, 3, 251, *(largest_prime_below(2**bits) for bits in (23, 24, 25, 26, 27, 30, 31))]


def exact(array: Matrix) -> numpy.ndarray[tuple[int, ...], numpy.dtype[numpy.object_]]:
    return array.astype(numpy.int64).astype(object)


@pytest.mark.parametrize("prime", PRIMES)
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_the_largest_residues_never_leave_the_exact_integers(prime: int, sign: float) -> None:
    """All entries at the proved bound, with signs that add up, at the greatest inner size."""
    largest = float((prime + 3) // 2) if prime > 2**22 else float(prime // 2)
    target = numpy.full((5, 6), -sign * largest)
    left, right = numpy.full((5, MAX_DEPTH), sign * largest), numpy.full((MAX_DEPTH, 6), largest)
    left[1:4, ::2] -= sign  # so that low bits differ
    wanted = exact(target) - exact(left) @ exact(right)
    subtract_product(target, left, right, prime)
    assert not ((exact(target) - wanted) % prime).any()
    assert numpy.abs(target).max() <= (prime + 3) // 2


@settings(deadline=None, max_examples=40)
@given(
    prime=st.sampled_from(PRIMES),
    sizes=st.tuples(st.integers(1, 9), st.integers(0, MAX_DEPTH), st.integers(0, 9)),
    corner=st.tuples(st.integers(0, 3), st.integers(0, 3)),
    seed=st.integers(0, 999),
)
def test_a_product_is_subtracted_from_the_corner_on(
    prime: int, sizes: tuple[int, int, int], corner: tuple[int, int], seed: int
) -> None:
    rows, inner, columns = sizes
    draw = numpy.random.default_rng(seed)

    def residues(*shape: int) -> Matrix:
        return draw.integers(-(prime // 2), prime // 2 + 1, shape).astype(numpy.float64)

    target = residues(rows + corner[0], columns + corner[1])
    left, right = residues(rows, inner), residues(inner, columns)
    wanted = exact(target)
    wanted[corner[0] :, corner[1] :] -= exact(left) @ exact(right)
    subtract_product(target, left, right, prime, corner=corner)
    assert not ((exact(target) - wanted) % prime).any()


def test_products_longer_than_a_chunk_are_complete() -> None:
    draw, prime = numpy.random.default_rng(0), 2147483647
    left = draw.integers(-99, 99, (2500, 2)).astype(numpy.float64)
    right = draw.integers(-99, 99, (2, 3)).astype(numpy.float64)
    for chosen in (251, prime):
        target = numpy.zeros((2500, 3))
        subtract_product(target, left, right, chosen)
        assert not ((exact(target) + exact(left) @ exact(right)) % chosen).any()


@pytest.mark.parametrize("prime", PRIMES)
def test_the_exact_depth_is_the_largest_that_leaves_room(prime: int) -> None:
    depth, largest = exact_depth(prime), (prime + 3) // 2
    assert depth * largest**2 + 2 * largest <= 2**53
    assert (depth + 1) * largest**2 + 2 * largest > 2**53
    assert 64 <= panel_width(prime) <= MAX_DEPTH
