import flint
import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from rankscope.errors import MatrixError, PrimeError
from rankscope.rank import largest_prime_below, pivots_modulo, rank_modulo, solve_modulo

PRIMES = [2, 3, 5, 251, *(largest_prime_below(2**bits) for bits in (23, 24, 25, 26, 27, 30, 31))]
primes = st.sampled_from(PRIMES)
Integers = NDArray[numpy.int64]


def naive_rank(matrix: list[list[int]], prime: int) -> int:
    """Textbook elimination on Python integers."""
    rows = [[entry % prime for entry in row] for row in matrix]
    found = 0
    for column in range(len(rows[0]) if rows else 0):
        at = next((i for i in range(found, len(rows)) if rows[i][column]), None)
        if at is None:
            continue
        rows[found], rows[at] = rows[at], rows[found]
        inverse = pow(rows[found][column], -1, prime)
        for i in range(found + 1, len(rows)):
            factor = rows[i][column] * inverse
            rows[i] = [(a - factor * b) % prime for a, b in zip(rows[i], rows[found], strict=True)]
        found += 1
    return found


def flint_rank(matrix: Integers, prime: int) -> int:
    return int(to_flint(matrix % prime, prime).rank())


def to_flint(matrix: Integers, prime: int) -> flint.nmod_mat:
    return flint.nmod_mat(len(matrix), matrix.shape[1], matrix.ravel().tolist(), prime)


def product_modulo(left: Integers, right: Integers, prime: int) -> Integers:
    product = to_flint(left, prime) * to_flint(right, prime)
    return numpy.array([int(entry) for entry in product.entries()]).reshape(len(left), -1)


@settings(deadline=None, max_examples=200)
@given(
    prime=primes,
    rows=st.integers(0, 7),
    columns=st.integers(0, 7),
    data=st.data(),
)
def test_small_matrices_have_the_rank_of_textbook_elimination(
    prime: int, rows: int, columns: int, data: st.DataObject
) -> None:
    special = st.sampled_from(
        [0, 1, -1, prime - 1, prime // 2, prime // 2 + 1, 2**63 - 1, -(2**63)]
    )
    entry = special | st.integers(-(2**63), 2**63 - 1)
    listed = data.draw(
        st.lists(st.lists(entry, min_size=columns, max_size=columns), min_size=rows, max_size=rows)
    )
    matrix = numpy.array(listed, dtype=numpy.int64).reshape(rows, columns)
    assert rank_modulo(matrix, prime) == naive_rank(listed, prime)


@settings(deadline=None, max_examples=40)
@given(
    prime=primes,
    rows=st.integers(1, 300),
    columns=st.integers(1, 300),
    inner=st.integers(1, 300),
    seed=st.integers(0, 999),
)
def test_products_have_the_rank_flint_finds(
    prime: int, rows: int, columns: int, inner: int, seed: int
) -> None:
    draw = numpy.random.default_rng(seed)
    left, right = draw.integers(0, prime, (rows, inner)), draw.integers(0, prime, (inner, columns))
    matrix = product_modulo(left, right, prime)
    assert rank_modulo(matrix, prime) == flint_rank(matrix, prime) <= inner


@settings(deadline=None, max_examples=40)
@given(
    prime=primes,
    rows=st.integers(1, 400),
    columns=st.integers(1, 400),
    density=st.sampled_from([0.001, 0.005, 0.02, 0.3]),
    seed=st.integers(0, 999),
)
def test_sparse_matrices_have_the_rank_flint_finds(
    prime: int, rows: int, columns: int, density: float, seed: int
) -> None:
    draw = numpy.random.default_rng(seed)
    matrix = draw.integers(1, prime, (rows, columns)) * (draw.random((rows, columns)) < density)
    assert rank_modulo(matrix, prime) == flint_rank(matrix, prime)


@pytest.mark.parametrize("prime", PRIMES)
def test_structured_matrices_have_the_rank_flint_finds(prime: int) -> None:
    size = 290
    index = numpy.arange(size)
    extreme = numpy.where((index[:, None] * index) % 7 < 3, prime - 1, prime // 2)
    permuted = numpy.eye(size, dtype=numpy.int64)[numpy.random.default_rng(0).permutation(size)]
    late = numpy.zeros((1500, 200), dtype=numpy.int64)
    late[numpy.arange(1300, 1500), index[:200]] = prime - 1  # all pivots far below the panel
    late[700, 100:] = 1
    matrices = {
        "all p-1": numpy.full((size, size), prime - 1),
        "two extremes": extreme,
        "Hankel": (index[:, None] + index) ** 2 % prime,
        "triangular": numpy.tril(numpy.full((size, size), prime // 2)),
        "permutation": permuted,
        "antidiagonal": numpy.eye(size, dtype=numpy.int64)[::-1],
        "every second column": numpy.repeat(extreme * permuted + permuted, 2, axis=1),
        "late pivots": late,
        "wide": late.T.copy(),
        "blocks": numpy.kron(numpy.eye(10, dtype=numpy.int64), numpy.ones((29, 29), int)),
    }
    for name, matrix in matrices.items():
        assert rank_modulo(matrix, prime) == flint_rank(matrix, prime), name


def test_the_matrix_is_left_untouched_and_may_have_any_stride() -> None:
    matrix = numpy.random.default_rng(0).integers(-5, 5, (40, 60))
    before = matrix.copy()
    view = matrix[::-3, ::2].T
    assert rank_modulo(view, 101) == naive_rank(view.tolist(), 101)
    numpy.testing.assert_array_equal(matrix, before)


@pytest.mark.parametrize("shape", [(0, 0), (0, 5), (5, 0)])
def test_empty_matrices_have_rank_zero(shape: tuple[int, int]) -> None:
    assert rank_modulo(numpy.zeros(shape, dtype=numpy.int32), 7) == 0
    assert pivots_modulo(numpy.zeros(shape, dtype=numpy.int32), 7).rows == ()


@settings(deadline=None, max_examples=30)
@given(
    prime=primes,
    sizes=st.tuples(st.integers(1, 250), st.integers(1, 250), st.integers(1, 200)),
    seed=st.integers(0, 999),
)
def test_pivots_name_a_minor_that_flint_finds_regular(
    prime: int, sizes: tuple[int, int, int], seed: int
) -> None:
    rows, columns, inner = sizes
    draw = numpy.random.default_rng(seed)
    left = draw.integers(0, prime, (rows, inner)) * (draw.random((rows, inner)) < 0.1)
    matrix = product_modulo(left, draw.integers(0, prime, (inner, columns)), prime)
    pivots = pivots_modulo(matrix, prime)
    assert pivots.prime == prime
    assert pivots.matrix_rank == flint_rank(matrix, prime) == len(pivots.columns)
    assert list(pivots.rows) == sorted(set(pivots.rows))
    assert list(pivots.columns) == sorted(set(pivots.columns))
    if pivots.matrix_rank:
        minor = matrix[numpy.ix_(pivots.rows, pivots.columns)]
        assert flint_rank(minor, prime) == pivots.matrix_rank


@settings(deadline=None, max_examples=30)
@given(prime=primes, size=st.integers(1, 280), count=st.integers(0, 3), seed=st.integers(0, 999))
def test_solutions_solve(prime: int, size: int, count: int, seed: int) -> None:
    draw = numpy.random.default_rng(seed)
    # Unit triangular factors with shuffled rows: regular modulo every prime.
    lower = numpy.tril(draw.integers(0, prime, (size, size)), -1) + numpy.eye(size, dtype=int)
    upper = numpy.triu(draw.integers(0, prime, (size, size)), 1) + numpy.eye(size, dtype=int)
    matrix = product_modulo(lower, upper, prime)[draw.permutation(size)]
    wanted = draw.integers(0, prime, (size, count))
    right_sides = product_modulo(matrix, wanted, prime) if count else wanted
    numpy.testing.assert_array_equal(solve_modulo(matrix, right_sides, prime), wanted)


@pytest.mark.parametrize(
    ("matrix", "right_sides", "message"),
    [
        (numpy.ones((3, 3), int), numpy.ones((3, 1), int), "rank 1 modulo 7 for size 3"),
        (numpy.ones((3, 2), int), numpy.ones((3, 1), int), r"square matrix, got shape \(3, 2\)"),
        (numpy.ones((2, 2), int), numpy.ones((3, 1), int), r"\(2, count\), got \(3, 1\)"),
        (numpy.ones((2, 2), int), numpy.ones(2, int), r"\(2, count\), got \(2,\)"),
        (numpy.ones((2, 2)), numpy.ones((2, 1), int), "integers, got float64"),
    ],
)
def test_systems_without_one_solution_are_refused(
    matrix: NDArray[numpy.generic], right_sides: NDArray[numpy.generic], message: str
) -> None:
    with pytest.raises(MatrixError, match=message):
        solve_modulo(matrix, right_sides, 7)


def test_composites_and_primes_too_large_are_refused() -> None:
    matrix = numpy.eye(2, dtype=int)
    with pytest.raises(PrimeError, match=r"rank_modulo: 9 is not a prime\. .* below is 7"):
        rank_modulo(matrix, 9)
    with pytest.raises(PrimeError, match="below 2147483648, got 2147483659"):
        pivots_modulo(matrix, 2147483659)
    with pytest.raises(PrimeError, match="solve_modulo: -7 is not a prime"):
        solve_modulo(matrix, matrix, -7)
    with pytest.raises(MatrixError, match="rank_modulo needs integers, got float64"):
        rank_modulo(numpy.eye(2), 7)


def test_the_prime_may_be_a_numpy_integer() -> None:
    assert rank_modulo(numpy.eye(2, dtype=int), numpy.int32(7)) == 2


def test_a_rank_modulo_a_prime_is_at_most_the_rank_over_the_rationals() -> None:
    matrix = numpy.diag([1, 7, 7 * 11, 13])
    assert [rank_modulo(matrix, prime) for prime in (7, 11, 13, 17)] == [2, 3, 3, 4]
