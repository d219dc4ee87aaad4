import math

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.factorize import Candidate, Reals, Solver, sufficient_components
from rankscope.factorize.cp_direct import without_search


def random_unit(shape: tuple[int, ...], seed: int) -> Reals:
    tensor = numpy.random.default_rng(seed).standard_normal(shape)
    return tensor / float(numpy.linalg.norm(tensor))


@settings(deadline=None, max_examples=40)
@given(
    shape=st.sampled_from([(1, 1, 1), (4, 6), (1, 5, 1), (3, 1, 5), (1, 4, 1, 3), (7, 1)]),
    num_components=st.integers(1, 8),
    seed=st.integers(0, 99),
)
def test_matrices_in_disguise_get_their_singular_vectors(
    shape: tuple[int, ...], num_components: int, seed: int
) -> None:
    tensor = random_unit(shape, seed)
    found = without_search(tensor, num_components)
    assert found is not None
    assert found.solver == Solver.SINGULAR_VECTORS
    assert [factor.shape for factor in found.factors] == [(n, num_components) for n in shape]
    wide = [size for size in shape if size > 1] or [1]
    values = numpy.linalg.svd(tensor.reshape(wide[0], -1), compute_uv=False)
    assert found.error == pytest.approx(
        float(numpy.linalg.norm(values[num_components:])), abs=1e-13
    )
    assert found.largest_component_norm == pytest.approx(float(values[0]))


@settings(deadline=None, max_examples=30)
@given(
    shape=st.lists(st.integers(2, 4), min_size=3, max_size=4).map(tuple),
    more=st.integers(0, 3),
    seed=st.integers(0, 99),
)
def test_every_tensor_is_a_sum_of_its_fibres(shape: tuple[int, ...], more: int, seed: int) -> None:
    tensor = random_unit(shape, seed)
    enough = math.prod(shape) // max(shape)
    assert sufficient_components(shape) == enough
    found = without_search(tensor, enough + more)
    assert found is not None
    assert (found.solver, found.factors[0].shape[1]) == (Solver.FIBRES, enough + more)
    assert found.error < 1e-13
    assert found.largest_component_norm <= 1 + 1e-12
    assert without_search(tensor, enough - 1) is None


def test_a_candidate_is_measured() -> None:
    ones = (numpy.ones((2, 1)), numpy.ones((2, 1)))
    found = Candidate.of(numpy.zeros((2, 2)), ones, Solver.GIVEN)
    assert found.error == 2.0
    assert found.largest_component_norm == pytest.approx(2.0)
