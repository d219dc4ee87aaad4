import math
from itertools import combinations

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from rankscope.factorize import (
    Flattening,
    Modular,
    Numeric,
    best_matricization,
    compose,
    improve_by_koszul,
    koszul_matrix,
)

EXACT = Modular(16777213)


def matrix_multiplication(size: int) -> NDArray[numpy.int64]:
    """T[ij, jk, ki] = 1."""
    shape = (size,) * 6
    tensor = numpy.zeros(shape, dtype=numpy.int64)
    for i, j, k in numpy.ndindex(size, size, size):
        tensor[i, j, j, k, k, i] = 1
    return tensor.reshape((size**2,) * 3)


def improved(tensor: NDArray[numpy.int64], max_entries: int = 2**18) -> Flattening:
    return improve_by_koszul(tensor, best_matricization(tensor, EXACT), max_entries=max_entries)


def test_every_block_is_a_slice_with_the_sign_of_its_wedge_product() -> None:
    """e_i wedge e_S = sign e_(S + i), the sign that of sorting i into S."""
    tensor = numpy.random.default_rng(0).integers(-9, 9, (4, 2, 3))
    for wedge in range(4):
        rows, columns = (list(combinations(range(4), count)) for count in (wedge, wedge + 1))
        blocks = koszul_matrix(tensor, wedge).reshape(len(rows), 2, len(columns), 3)
        for (r, row), (c, column) in (
            (one, two) for one in enumerate(rows) for two in enumerate(columns)
        ):
            new = set(column) - set(row)
            expected = numpy.zeros((2, 3))
            if len(new) == 1:
                [element] = new
                expected = (-1) ** sum(old < element for old in row) * tensor[element]
            numpy.testing.assert_array_equal(blocks[r, :, c, :], expected)


@settings(deadline=None, max_examples=30)
@given(size=st.integers(2, 6), wedge=st.integers(0, 5), seed=st.integers(0, 99))
def test_an_outer_product_has_the_rank_that_bounds_divide_by(
    size: int, wedge: int, seed: int
) -> None:
    wedge = min(wedge, size - 1)
    draw = numpy.random.default_rng(seed)
    vectors = [draw.integers(1, 9, count) for count in (size, 3, 2)]
    matrix = koszul_matrix(numpy.einsum("a,b,c->abc", *vectors), wedge)
    assert EXACT.matrix_rank(matrix) == math.comb(size - 1, wedge)


@settings(deadline=None, max_examples=20)
@given(
    shape=st.sampled_from([(3, 3, 3), (4, 3, 5), (2, 3, 2, 3), (3, 2, 3, 2)]),
    num_components=st.integers(1, 6),
    seed=st.integers(0, 99),
)
def test_no_koszul_bound_exceeds_the_number_of_products(
    shape: tuple[int, ...], num_components: int, seed: int
) -> None:
    draw = numpy.random.default_rng(seed)
    factors = tuple(
        draw.integers(-4, 5, (size, num_components)).astype(numpy.float64) for size in shape
    )
    tensor = compose(factors)
    assert improved(tensor.astype(numpy.int64)).bound <= num_components
    error, change = 1e-3, draw.standard_normal(shape)
    changed = tensor + 0.999 * error * change / numpy.linalg.norm(change)
    known = best_matricization(changed, Numeric(error))
    assert improve_by_koszul(changed, known, max_entries=2**16).bound <= num_components


@pytest.mark.parametrize("size", [2, 3])
def test_matrix_multiplication_has_border_rank_at_least_two_squares_less_one_side(
    size: int,
) -> None:
    """Landsberg & Ottaviani: 2 n^2 - n, from p = n - 1 and A restricted to 2 n - 1."""
    tensor = matrix_multiplication(size)
    assert best_matricization(tensor, EXACT).bound == size**2
    found = improved(tensor, max_entries=2**14)
    assert found.bound >= 2 * size**2 - size
    assert found.bound <= {2: 7, 3: 23}[size]


def test_almost_every_tensor_of_three_sizes_three_needs_five_products() -> None:
    """Strassen (1983): the generic rank is 5, where matricizations see 3."""
    tensor = numpy.random.default_rng(0).integers(-99, 99, (3, 3, 3))
    found = improved(tensor)
    assert (found.bound, found.matrix_rank, found.product_rank) == (5, 9, 2)
    assert (found.wedge, found.restricted_size) == (1, 3)


def test_groups_of_positions_count_as_one() -> None:
    """A tensor of order 5 that is one of sizes 4 in disguise; B and C need not lie side by side."""
    small = numpy.random.default_rng(0).integers(-99, 99, (4, 4, 3))
    disguised = small.reshape(2, 2, 2, 2, 3).transpose(4, 0, 2, 1, 3)
    # Other groupings of it have larger matricizations; only the small one is compared.
    known = Flattening(((0,), (1, 2, 3, 4)), 3, 1, EXACT)
    assert improve_by_koszul(disguised, known, max_entries=2**12).bound >= improved(small).bound > 4


def test_matrices_above_the_limit_are_not_looked_at() -> None:
    tensor = numpy.random.default_rng(0).integers(-99, 99, (3, 3, 3))
    known = best_matricization(tensor, EXACT)
    assert improve_by_koszul(tensor, known, max_entries=80) is known
    assert improve_by_koszul(tensor, known, max_entries=81).bound == 5


def test_tensors_of_high_order_are_left_to_their_matricizations() -> None:
    tensor = numpy.random.default_rng(0).integers(-9, 9, (2,) * 11)
    known = Flattening(((0,), tuple(range(1, 11))), 2, 1, EXACT)
    assert improve_by_koszul(tensor, known, max_entries=2**12) is known
