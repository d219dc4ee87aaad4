import json
import math

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from rankscope.errors import MatrixError, MetricError
from rankscope.rank import (
    Frobenius,
    MeanAbsolute,
    MeanSquare,
    Metric,
    Spectral,
    Supremum,
    epsilon_rank,
)

HILBERT = 1 / (1 + numpy.add.outer(numpy.arange(8), numpy.arange(8)))


def interval(matrix: NDArray[numpy.generic], epsilon: float, metric: Metric) -> tuple[int, int]:
    found = epsilon_rank(matrix, epsilon, metric=metric)
    return found.lower, found.upper


@pytest.mark.parametrize(
    ("size", "epsilon"),
    [(4, 0.5), (4, 1.0), (4, 1.5), (9, 2.0), (16, 3.9), (16, 4.0)],
)
def test_the_identity_loses_one_for_each_unit_of_squared_distance(
    size: int, epsilon: float
) -> None:
    """Frobenius: ceil(n - epsilon^2), also where the radius lies on the boundary."""
    expected = math.ceil(size - epsilon**2)
    assert interval(numpy.eye(size), epsilon, Frobenius()) == (expected, expected)
    mean = epsilon / size
    low, high = interval(numpy.eye(size), mean, MeanSquare())
    assert low <= expected <= high
    assert interval(numpy.eye(size), 1.0, Spectral()) == (0, 0)
    assert interval(numpy.eye(size), 1 - 1e-9, Spectral()) == (size, size)


@pytest.mark.parametrize(
    ("epsilon", "expected"),
    [(1.0, 1), (1e-1, 2), (1e-2, 3), (1e-3, 4), (1e-4, 4), (1e-6, 6)],
)
def test_the_hilbert_matrix_in_frobenius_distance(epsilon: float, expected: int) -> None:
    assert interval(HILBERT, epsilon, Frobenius()) == (expected, expected)


@pytest.mark.parametrize(
    ("epsilon", "lower", "upper"),
    [(1.0, 0, 0), (1e-1, 1, 2), (1e-2, 2, 3), (1e-3, 3, 3), (1e-4, 4, 4), (1e-6, 5, 5)],
)
def test_the_hilbert_matrix_is_at_least_as_well_known_as_norms_and_truncation_tell(
    epsilon: float, lower: int, upper: int
) -> None:
    found = interval(HILBERT, epsilon, Supremum())
    assert lower <= found[0] <= found[1] <= upper


@pytest.mark.parametrize("size", [2, 5, 16, 40])
@pytest.mark.parametrize(("epsilon", "expected"), [(0.5, 1), (0.75, 1), (0.99, 1), (1.0, 0)])
def test_the_identity_is_within_one_half_of_a_constant(
    size: int, epsilon: float, expected: int
) -> None:
    assert interval(numpy.eye(size), epsilon, Supremum()) == (expected, expected)


@settings(deadline=None, max_examples=40)
@given(
    rows=st.integers(1, 8),
    columns=st.integers(1, 8),
    epsilon=st.floats(0.0, 3.0),
    exponent=st.sampled_from([-300, -3, 0, 3, 300]),
    seed=st.integers(0, 999),
)
@pytest.mark.parametrize(
    "metric",
    [Frobenius(), MeanSquare(), Spectral(), Supremum(), MeanAbsolute()],
    ids=lambda metric: metric.name,
)
def test_the_witness_is_a_matrix_of_the_upper_rank_within_the_radius(
    metric: Metric, rows: int, columns: int, epsilon: float, exponent: int, seed: int
) -> None:
    scale = 10.0**exponent
    matrix = scale * numpy.random.default_rng(seed).standard_normal((rows, columns))
    found = epsilon_rank(matrix, epsilon * scale, metric=metric)
    assert 0 <= found.lower <= found.upper <= min(rows, columns)
    assert found.witness.inner_size == found.upper
    distance = metric.distance((matrix - found.witness.matrix) / scale)
    assert distance <= epsilon * (1 + 1e-12) + 1e-14


@settings(deadline=None, max_examples=40)
@given(
    rows=st.integers(1, 8),
    columns=st.integers(1, 8),
    share=st.floats(0.0, 1.2),
    seed=st.integers(0, 999),
)
def test_mean_square_and_spectral_ranks_are_read_off_the_singular_values(
    rows: int, columns: int, share: float, seed: int
) -> None:
    """Eckart & Young, with the weights of a product measure."""
    draw = numpy.random.default_rng(seed)
    matrix = draw.standard_normal((rows, columns))
    weights = draw.uniform(0.1, 2, rows), draw.uniform(0.1, 2, columns)
    kernel = numpy.sqrt(weights[0])[:, None] * matrix * numpy.sqrt(weights[1])
    values = numpy.linalg.svd(kernel, compute_uv=False)
    epsilon = share * float(numpy.linalg.norm(values)) + 1e-6
    tails = [math.sqrt((values[size:] ** 2).sum()) for size in range(len(values) + 1)]
    expected = next(size for size, tail in enumerate(tails) if tail <= epsilon)
    found = epsilon_rank(matrix, epsilon, metric=MeanSquare(*weights))
    assert (found.lower, found.upper) == (expected, expected)
    numpy.testing.assert_allclose(found.singular_values, values, atol=1e-12)
    counted = int((numpy.linalg.svd(matrix, compute_uv=False) > epsilon).sum())
    assert interval(matrix, epsilon, Spectral()) == (counted, counted)


def test_a_radius_within_rounding_of_a_singular_value_is_left_open() -> None:
    draw = numpy.random.default_rng(0)
    matrix = draw.standard_normal((60, 60))
    last = float(numpy.linalg.svd(matrix, compute_uv=False)[-1])
    assert interval(matrix, last, Frobenius()) == (59, 60)
    assert interval(matrix, last * (1 + 1e-9), Frobenius()) == (59, 59)


def test_without_a_radius_rounding_leaves_the_rank_open() -> None:
    draw = numpy.random.default_rng(0)
    matrix = draw.standard_normal((40, 3)) @ draw.standard_normal((3, 40))
    assert interval(matrix, 0.0, Frobenius()) == (3, 40)
    assert interval(numpy.zeros((3, 2)), 0.0, Frobenius()) == (0, 0)
    assert interval(numpy.array([[1, 2], [2, 4]]), 0.0, Supremum())[0] == 1


def test_extreme_numbers_neither_overflow_nor_vanish() -> None:
    huge = numpy.full((2, 2), numpy.finfo(float).max / 4)
    assert interval(huge, 1.0, Frobenius()) == (1, 1)
    assert interval(huge, float(huge[0, 0]), Supremum()) == (0, 0)
    tiny = numpy.diag([5e-324, 5e-324])
    assert interval(tiny, 5e-324, Frobenius()) == (1, 1)
    assert interval(tiny, 1e300, MeanAbsolute()) == (0, 0)


def test_a_result_says_what_it_is() -> None:
    exact = epsilon_rank(numpy.eye(4), 1.5, metric=Frobenius())
    assert exact.is_exact
    assert str(exact) == "epsilon rank 2 (Frobenius distance at most 1.5)"
    assert json.loads(json.dumps(exact.to_dict())) == {
        "lower": 2,
        "upper": 2,
        "epsilon": 1.5,
        "metric": "Frobenius distance",
        "found_by": "truncation",
    }
    loose = epsilon_rank(numpy.eye(4), 0.4, metric=Supremum())
    assert not loose.is_exact
    assert str(loose) == (
        f"epsilon rank between {loose.lower} and {loose.upper} "
        "(largest absolute difference at most 0.4)"
    )


def test_a_radius_may_be_an_integer() -> None:
    assert epsilon_rank(numpy.eye(3), 1, metric=Frobenius()).epsilon == 1.0


@pytest.mark.parametrize("epsilon", [-0.5, math.nan, math.inf])
def test_a_radius_that_is_none_is_refused(epsilon: float) -> None:
    with pytest.raises(MetricError, match=rf"at least 0, got {epsilon}.* numeric_rank"):
        epsilon_rank(numpy.eye(2), epsilon, metric=Frobenius())


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (numpy.zeros((2, 3, 4)), r"got shape \(2, 3, 4\)"),
        (numpy.zeros((0, 3)), r"got shape \(0, 3\)"),
        (numpy.eye(2, dtype=complex), "real numbers, got complex128"),
        (numpy.array([[1.0, math.nan]]), "1 of 2 entries are not finite"),
    ],
)
def test_arrays_that_are_no_real_matrix_are_refused(
    array: NDArray[numpy.generic], message: str
) -> None:
    with pytest.raises(MatrixError, match=message):
        epsilon_rank(array, 0.1, metric=Frobenius())
