"""The law of random singular values against its moments, its edge and samples."""

import math

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.auditing import RandomLaw

SIZES = st.integers(1, 500)


@settings(deadline=None)
@given(rows=SIZES, columns=SIZES)
def test_the_edge_of_a_matrix_is_that_of_marchenko_and_pastur(rows: int, columns: int) -> None:
    """s (√m + √n), for a mean square of s² max(m, n)."""
    expected = (math.sqrt(rows) + math.sqrt(columns)) ** 2 / max(rows, columns)
    assert math.isclose(RandomLaw(rows, columns).edge, expected, rel_tol=1e-12)


@settings(deadline=None, max_examples=30)
@given(first=SIZES, inner=SIZES, last=SIZES)
def test_the_edge_of_a_product_is_where_the_inverse_turns(
    first: int, inner: int, last: int
) -> None:
    """The largest x without a real z > 0 is the minimum of (1 + z)(1 + c1 z)(1 + c2 z) / z."""
    smallest, *larger = sorted((first, inner, last))
    one, two = (smallest / size for size in larger)
    z = numpy.geomspace(1e-3, 1e3, 200_001)
    expected = ((1 + z) * (1 + one * z) * (1 + two * z) / z).min()
    assert math.isclose(RandomLaw(first, inner, last).edge, expected, rel_tol=1e-6)


@settings(deadline=None, max_examples=30)
@given(sizes=st.lists(SIZES, min_size=2, max_size=3))
def test_the_law_has_mean_one_and_the_ratios_as_its_variance(sizes: list[int]) -> None:
    law = RandomLaw(*sizes)
    places = law.edge * numpy.linspace(0, 1, 100_001) ** 3
    mass = numpy.diff(law.cumulative(places))
    middles = (places[1:] + places[:-1]) / 2
    variance = sum(min(sizes) / size for size in sorted(sizes)[1:])
    assert math.isclose(mass.sum(), 1, rel_tol=1e-9)
    assert math.isclose((mass * middles).sum(), 1, rel_tol=2e-3)
    assert math.isclose((mass * middles**2).sum(), 1 + variance, rel_tol=4e-3)


@pytest.mark.parametrize("sizes", [(200, 200), (200, 500), (300, 100, 200), (200, 200, 200)])
def test_samples_follow_the_law(sizes: tuple[int, ...]) -> None:
    draw = numpy.random.default_rng(0)
    matrix = draw.standard_normal(sizes[:2])
    if len(sizes) == 3:
        matrix = matrix @ draw.standard_normal(sizes[1:])
    squares = numpy.linalg.svd(matrix, compute_uv=False)[: min(sizes)] ** 2
    shares = RandomLaw(*sizes).cumulative(squares / squares.mean())
    expected = 1 - (numpy.arange(len(squares)) + 0.5) / len(squares)
    assert numpy.abs(shares - expected).max() < 0.03
