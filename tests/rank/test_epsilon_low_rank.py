import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.rank import (
    Frobenius,
    LowRank,
    MeanAbsolute,
    MeanSquare,
    Spectral,
    Supremum,
    full_rank_witness,
    is_within,
    weighted_svd,
)
from rankscope.rank.epsilon import improve


@pytest.mark.parametrize("shape", [(2, 5), (5, 2), (3, 3)])
def test_a_matrix_is_its_own_product_of_the_shorter_side(shape: tuple[int, int]) -> None:
    matrix = numpy.random.default_rng(0).standard_normal(shape)
    whole = full_rank_witness(matrix)
    assert whole.inner_size == min(shape)
    assert (whole.matrix == matrix).all()
    assert is_within(matrix, whole, Supremum(), 0.0)


@pytest.mark.parametrize(
    "metric", [Frobenius(), Spectral(), Supremum()], ids=lambda metric: metric.name
)
def test_a_radius_that_floating_point_cannot_tell_from_the_distance_is_decided_exactly(
    metric: Frobenius | Spectral | Supremum,
) -> None:
    matrix = numpy.diag([5.0, 3.0])
    candidate = LowRank(numpy.array([[5.0], [0.0]]), numpy.array([[1.0, 0.0]]), "by hand")
    assert is_within(matrix, candidate, metric, 3.0)
    assert not is_within(matrix, candidate, metric, numpy.nextafter(3.0, 0.0))


def test_nothing_is_claimed_where_exact_arithmetic_would_take_too_long() -> None:
    matrix = numpy.eye(200)
    nothing = LowRank(numpy.zeros((200, 0)), numpy.zeros((0, 200)), "by hand")
    assert not is_within(matrix, nothing, Supremum(), 1.0)
    assert is_within(matrix, nothing, Supremum(), 1.0 + 1e-9)


@settings(deadline=None, max_examples=30)
@given(rows=st.integers(1, 6), columns=st.integers(1, 6), seed=st.integers(0, 999))
def test_weighted_factors_multiply_to_the_matrix(rows: int, columns: int, seed: int) -> None:
    draw = numpy.random.default_rng(seed)
    matrix = draw.standard_normal((rows, columns))
    metric = MeanSquare(draw.uniform(0.1, 9, rows), draw.uniform(0.1, 9, columns))
    left, values, right = weighted_svd(matrix, metric)
    numpy.testing.assert_allclose((left * values) @ right, matrix, atol=1e-12)


def test_projections_find_a_planted_matrix_that_truncation_misses() -> None:
    """Rank 2 moved by noise whose every entry is below the radius."""
    draw = numpy.random.default_rng(3)
    planted = draw.standard_normal((30, 2)) @ draw.standard_normal((2, 30))
    matrix = planted + draw.choice([-0.3, 0.3], (30, 30))
    spectrum = weighted_svd(matrix, Supremum())
    found = improve(matrix, spectrum, Supremum(), 0.35, full_rank_witness(matrix), lower=0)
    assert found.inner_size == 2
    assert found.found_by == "alternating projections"
    assert abs(matrix - found.matrix).max() <= 0.35


def test_projections_find_a_planted_matrix_under_few_large_errors() -> None:
    draw = numpy.random.default_rng(4)
    planted = draw.standard_normal((24, 2)) @ draw.standard_normal((2, 24))
    wrong = numpy.zeros((24, 24))
    wrong[draw.integers(0, 24, 12), draw.integers(0, 24, 12)] = 5.0
    radius = 1.5 * float(abs(wrong).mean())
    matrix = planted + wrong
    spectrum = weighted_svd(matrix, MeanAbsolute())
    found = improve(matrix, spectrum, MeanAbsolute(), radius, full_rank_witness(matrix), lower=0)
    assert found.inner_size == 2
    assert abs(matrix - found.matrix).mean() <= radius


def test_large_matrices_are_left_alone() -> None:
    matrix = numpy.zeros((513, 512))
    whole = full_rank_witness(matrix)
    nothing = (matrix[:, :0], matrix[0, :0], matrix[:0])
    assert improve(matrix, nothing, Supremum(), 0.5, whole, lower=0) is whole
