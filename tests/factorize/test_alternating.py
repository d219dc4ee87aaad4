from itertools import pairwise

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.factorize import Factors, Reals, Sweeps, compose
from rankscope.factorize import cp as alternating
from rankscope.factorize.cp import alternate
from rankscope.factorize.truncation import project

SHAPES = st.lists(st.integers(1, 5), min_size=2, max_size=5).map(tuple)


def random_factors(shape: tuple[int, ...], num_components: int, seed: int) -> Factors:
    draw = numpy.random.default_rng(seed)
    return tuple(draw.standard_normal((size, num_components)) for size in shape)


def random_tensor(shape: tuple[int, ...], seed: int) -> Reals:
    tensor = numpy.random.default_rng(seed).standard_normal(shape)
    return tensor / float(numpy.linalg.norm(tensor))


def value(tensor: Reals, factors: Factors, penalty: float) -> float:
    error = float(numpy.linalg.norm(compose(factors) - tensor)) ** 2
    return error + penalty * sum(float((factor**2).sum()) for factor in factors)


@settings(deadline=None, max_examples=40)
@given(
    shape=SHAPES,
    num_components=st.integers(1, 4),
    seed=st.integers(0, 99),
    penalty=st.sampled_from([0.0, 1e-3, 0.1]),
)
def test_sweeps_only_lower_what_they_are_to_lower(
    shape: tuple[int, ...], num_components: int, seed: int, penalty: float
) -> None:
    tensor, start = random_tensor(shape, seed), random_factors(shape, num_components, seed)
    values = [
        value(tensor, alternate(tensor, start, Sweeps(sweeps, 0.0, penalty)), penalty)
        for sweeps in (1, 2, 3, 4, 5, 8, 12)
    ]
    assert all(after <= before + 1e-9 for before, after in pairwise(values))


@settings(deadline=None, max_examples=30)
@given(shape=SHAPES, seed=st.integers(0, 99), penalty=st.sampled_from([1e-2, 0.1]))
def test_many_sweeps_end_where_the_slope_is_0(
    shape: tuple[int, ...], seed: int, penalty: float
) -> None:
    tensor = random_tensor(shape, seed)
    factors = alternate(tensor, random_factors(shape, 1, seed), Sweeps(3000, 0.0, penalty))
    slopes = project(compose(factors) - tensor, factors)
    for slope, factor in zip(slopes, factors, strict=True):
        assert float(numpy.abs(slope + penalty * factor).max()) < 1e-4


def test_a_matrix_is_approximated_as_well_as_by_its_singular_vectors() -> None:
    matrix = random_tensor((6, 5), 0)
    factors = alternate(matrix, random_factors((6, 5), 2, 1), Sweeps(2000, 0.0))
    best = float(numpy.linalg.norm(numpy.linalg.svd(matrix, compute_uv=False)[2:]))
    assert float(numpy.linalg.norm(compose(factors) - matrix)) == pytest.approx(best, abs=1e-6)


def test_the_line_search_gets_further_through_a_narrow_valley(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nearly parallel vectors: plain sweeps creep along them."""
    draw = numpy.random.default_rng(0)
    hidden = tuple(
        draw.standard_normal((7, 1)) + 0.35 * draw.standard_normal((7, 3)) for _ in range(3)
    )
    tensor = compose(hidden)
    tensor = tensor / float(numpy.linalg.norm(tensor))
    start = random_factors((7, 7, 7), 3, 1)
    with_search = value(tensor, alternate(tensor, start, Sweeps(60, 0.0)), 0.0)
    monkeypatch.setattr(
        alternating, "_further", lambda tensor, pair, sweep, known: (pair[1], known[1])
    )
    assert with_search < value(tensor, alternate(tensor, start, Sweeps(60, 0.0)), 0.0)


def test_a_gain_that_is_too_small_ends_the_sweeps() -> None:
    tensor, start = random_tensor((5, 4, 3), 0), random_factors((5, 4, 3), 2, 0)
    early = alternate(tensor, start, Sweeps(500, 0.5))
    late = alternate(tensor, start, Sweeps(500, 1e-9))
    assert value(tensor, late, 0.0) < value(tensor, early, 0.0)


def test_vectors_that_are_the_same_are_no_trouble() -> None:
    start = tuple(numpy.ones((size, 3)) for size in (4, 3, 2))
    factors = alternate(random_tensor((4, 3, 2), 0), start, Sweeps(5))
    assert all(numpy.isfinite(factor).all() for factor in factors)
