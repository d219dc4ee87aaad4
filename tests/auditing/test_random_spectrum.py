from dataclasses import replace

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.auditing import MatrixRow, RandomLaw, random_quantiles, random_sizes


@settings(deadline=None)
@given(rows=st.integers(1, 400), columns=st.integers(1, 400))
def test_the_squares_have_the_mean_that_the_edge_is_measured_in(rows: int, columns: int) -> None:
    values = numpy.array(random_quantiles((rows, columns), 1000))
    assert numpy.all(numpy.diff(values) <= 0)
    # Cells of the law and steps of the quantiles are each below one percent.
    assert RandomLaw(rows, columns).edge * numpy.mean(values**2) == pytest.approx(1, abs=0.01)


def test_a_random_matrix_lies_on_its_quantiles() -> None:
    entries = numpy.random.default_rng(0).normal(size=(200, 500))
    values = numpy.linalg.svd(entries, compute_uv=False)
    edge = 200**0.5 + 500**0.5
    # Single values stray from the law by about one over the number of them.
    assert values / edge == pytest.approx(random_quantiles((200, 500), 200), abs=0.02)


def test_a_product_of_thin_matrices_has_an_inner_size(matrix: MatrixRow) -> None:
    assert random_sizes(matrix) == (12, 30)
    assert random_sizes(replace(matrix, num_values=12 * 64)) == (12, 30)
    assert random_sizes(replace(matrix, num_values=5)) == (12, 30, 5)
