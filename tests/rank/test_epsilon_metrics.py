import math
from fractions import Fraction

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.errors import MetricError
from rankscope.rank import Frobenius, Matrix, MeanAbsolute, MeanSquare, Metric, Spectral, Supremum

METRICS = [Frobenius(), MeanSquare(), Spectral(), Supremum(), MeanAbsolute()]


def drawn(rows: int, columns: int, seed: int) -> Matrix:
    return numpy.random.default_rng(seed).standard_normal((rows, columns))


def test_distances_are_their_formulas() -> None:
    residual = numpy.array([[3.0, 0.0, 0.0], [0.0, -4.0, 0.0]])
    left, right = numpy.array([1.0, 0.25]), numpy.array([0.5, 2.0, 7.0])
    assert Frobenius().distance(residual) == pytest.approx(5)
    assert MeanSquare().distance(residual) == pytest.approx(5 / math.sqrt(6))
    assert MeanSquare(left, right).distance(residual) ** 2 == pytest.approx(9 * 0.5 + 16 * 0.5)
    assert Spectral().distance(residual) == pytest.approx(4)
    assert Supremum().distance(residual) == 4
    assert MeanAbsolute().distance(residual) == pytest.approx(7 / 6)


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_exact_arithmetic_decides_at_the_radius_itself(metric: Metric) -> None:
    """Of a multiple of one unit matrix all distances are rational and known."""
    sizes = {"root-mean-square distance": 4, "mean absolute difference": 16}
    distance = Fraction(3, sizes.get(metric.name, 1))
    residual = numpy.full((4, 4), Fraction(0), dtype=object)
    residual[2, 1] = Fraction(-3)
    assert metric.is_proved_within(residual, distance)
    assert not metric.is_proved_within(residual, distance * (1 - Fraction(1, 10**30)))


def test_exact_arithmetic_knows_the_weights() -> None:
    metric = MeanSquare(numpy.array([0.25, 1.0]), numpy.array([4.0, 9.0]))
    residual = numpy.array([[1, 0], [0, 2]], dtype=object)
    assert metric.is_proved_within(residual, Fraction(7))  # 1 * 1 + 9 * 4 = 37 <= 49
    assert not metric.is_proved_within(residual, Fraction(6))


@settings(deadline=None, max_examples=40)
@given(
    rows=st.integers(1, 9),
    columns=st.integers(1, 9),
    inner=st.integers(0, 4),
    scale=st.floats(0.01, 1.0),
    seed=st.integers(0, 999),
)
@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_no_matrix_within_the_radius_is_below_the_lower_rank(
    metric: Metric, rows: int, columns: int, inner: int, scale: float, seed: int
) -> None:
    """The definition: a matrix of small rank, moved by less than the radius."""
    small = drawn(rows, inner, seed) @ drawn(inner, columns, seed + 1)
    moved = scale * drawn(rows, columns, seed + 2)
    assert metric.lower_rank(small + moved, metric.distance(moved)) <= inner


def test_blocks_tell_more_than_the_whole_identity_does() -> None:
    """Whole: 16 - (0.4 * 16)^2 < 0. A 2 x 2 block: rank 1 is at distance 1 > 0.4 * 2."""
    assert Supremum().lower_rank(numpy.eye(16), 0.4) == 2
    # Of means the worst block decides, and most blocks of the identity are 0 …
    assert MeanAbsolute().lower_rank(numpy.eye(16), 0.04) == 1
    # … but not of copies of one block.
    copies = numpy.tile(numpy.eye(2), (8, 8))
    assert MeanAbsolute().lower_rank(copies, 0.2) == 2


@settings(deadline=None, max_examples=40)
@given(rows=st.integers(1, 6), columns=st.integers(1, 6), seed=st.integers(0, 999))
@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_truncation_errors_are_the_distances_of_truncations(
    metric: Metric, rows: int, columns: int, seed: int
) -> None:
    matrix = drawn(rows, columns, seed)
    left_weights, right_weights = metric.root_weights(matrix.shape)
    weighted = left_weights[:, None] * matrix * right_weights
    left, values, right = numpy.linalg.svd(weighted, full_matrices=False)
    left, right = left / left_weights[:, None], right / right_weights
    expected = [
        metric.distance(matrix - (left[:, :size] * values[:size]) @ right[:size])
        for size in range(min(rows, columns) + 1)
    ]
    errors = metric.truncation_errors(matrix, left, values, right)
    numpy.testing.assert_allclose(errors, expected, atol=1e-12)


@settings(deadline=None, max_examples=40)
@given(radius=st.floats(0.01, 2.0), seed=st.integers(0, 999))
@pytest.mark.parametrize("metric", [Supremum(), MeanAbsolute()], ids=lambda metric: metric.name)
def test_a_projection_is_the_nearest_point_of_the_ball(
    metric: Metric, radius: float, seed: int
) -> None:
    """Nearest, because the step makes no acute angle with any other point of the ball."""
    residual = drawn(4, 5, seed)
    nearest = metric.project(residual, radius)
    assert nearest is not None
    assert metric.distance(nearest) <= radius * (1 + 1e-12)
    if metric.distance(residual) <= radius:
        numpy.testing.assert_allclose(nearest, residual)
    other = drawn(4, 5, seed + 1)
    other *= radius / metric.distance(other)
    assert ((residual - nearest) * (other - nearest)).sum() <= 1e-9


def test_truncating_is_best_where_there_is_no_projection() -> None:
    assert Frobenius().project(numpy.eye(2), 0.5) is None


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (numpy.array([1.0, 0.0]), r"right weights .* shape \(2,\) with least entry 0.0"),
        (numpy.array([1.0, numpy.nan]), "positive numbers, got shape"),
        (numpy.ones((2, 2)), r"got shape \(2, 2\) with least entry 1.0"),
    ],
)
def test_weights_that_are_no_measure_are_refused(weights: Matrix, message: str) -> None:
    with pytest.raises(MetricError, match=message):
        MeanSquare(None, weights)


def test_weights_that_do_not_fit_are_refused() -> None:
    with pytest.raises(MetricError, match=r"\(3, 4\) needs .* 5 for its rows and 4 for its col"):
        MeanSquare(numpy.ones(5)).distance(numpy.ones((3, 4)))
