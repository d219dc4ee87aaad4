import math

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from rankscope.errors import MatrixError
from rankscope.rank import NumericRank, numeric_rank


@settings(deadline=None)
@given(
    rows=st.integers(1, 12),
    columns=st.integers(1, 12),
    inner=st.integers(0, 12),
    seed=st.integers(0, 99),
)
def test_a_product_of_random_factors_has_the_rank_of_its_inner_size(
    rows: int, columns: int, inner: int, seed: int
) -> None:
    draw = numpy.random.default_rng(seed)
    matrix = draw.standard_normal((rows, inner)) @ draw.standard_normal((inner, columns))
    found = numeric_rank(matrix)
    assert found.value == min(rows, columns, inner)
    assert len(found.singular_values) == min(rows, columns)


def test_the_gap_is_the_step_at_the_tolerance() -> None:
    found = numeric_rank(numpy.diag([8.0, 4.0, 0.5, 0.25]), relative_tolerance=0.1)
    assert found.value == 2
    assert found.tolerance == pytest.approx(0.8)
    assert found.gap == pytest.approx(8.0)
    assert str(found) == "rank 2 (tolerance 8.0e-01, gap 8.0e+00)"


def test_nothing_dropped_or_nothing_left_is_an_infinite_gap() -> None:
    assert numeric_rank(numpy.eye(3)).gap == math.inf
    assert numeric_rank(numpy.zeros((2, 3))).gap == math.inf
    assert NumericRank(1, numpy.array([1.0, 0.0]), 0.0).gap == math.inf


def test_single_precision_data_is_judged_by_its_own_precision() -> None:
    draw = numpy.random.default_rng(0)
    matrix = draw.standard_normal((30, 2)) @ draw.standard_normal((2, 30))
    assert numeric_rank(matrix.astype(numpy.float32)).value == 2
    assert numeric_rank(matrix.astype(numpy.float32).astype(numpy.float64)).value > 2


def test_extended_precision_is_judged_by_the_float64_spectrum() -> None:
    ones = numpy.outer(numpy.ones(40), numpy.linspace(1, 2, 40)).astype(numpy.longdouble)
    assert numeric_rank(ones).value == 1


def test_integers_and_empty_matrices_have_ranks() -> None:
    assert numeric_rank(numpy.array([[1, 2], [2, 4]])).value == 1
    assert numeric_rank(numpy.zeros((0, 4))).value == 0


@settings(deadline=None)
@given(size=st.integers(1, 8), scale=st.sampled_from([1e-200, 1.0, 1e200]))
def test_the_entropy_of_equal_singular_values_is_the_logarithm_of_their_number(
    size: int, scale: float
) -> None:
    entropy = numeric_rank(scale * numpy.eye(size)).entanglement_entropy
    assert entropy == pytest.approx(math.log(size), abs=1e-12)


def test_products_and_zero_have_no_entropy() -> None:
    assert numeric_rank(numpy.zeros((3, 2))).entanglement_entropy == 0.0
    outer = numpy.outer([1.0, 2.0], [3.0, 4.0])
    assert numeric_rank(outer).entanglement_entropy == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (numpy.zeros((2, 3, 4)), r"order 3 \(shape \(2, 3, 4\)\)"),
        (numpy.zeros((2, 2), dtype=complex), "got complex128"),
        (numpy.zeros((2, 2), dtype=bool), "got bool"),
        (numpy.array([[1.0, math.nan], [math.inf, 2.0]]), "2 of 4 entries are not finite"),
    ],
)
def test_what_is_no_real_matrix_is_refused(array: NDArray[numpy.generic], message: str) -> None:
    with pytest.raises(MatrixError, match=message):
        numeric_rank(array)
