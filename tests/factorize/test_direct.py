import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.factorize import Reals, compose, direct_decompositions


def unit(tensor: Reals) -> Reals:
    return tensor / numpy.linalg.norm(tensor)


def fewest(tensor: Reals) -> int:
    return min(int(factors[0].shape[1]) for factors in direct_decompositions(tensor, 1e-10))


@settings(deadline=None, max_examples=40)
@given(shape=st.lists(st.integers(1, 4), min_size=2, max_size=4), seed=st.integers(0, 99))
def test_each_is_a_decomposition_and_one_needs_no_more_than_all_sizes_but_the_largest(
    shape: list[int], seed: int
) -> None:
    tensor = unit(numpy.random.default_rng(seed).standard_normal(shape))
    for factors in direct_decompositions(tensor, 1e-10):
        numpy.testing.assert_allclose(compose(factors), tensor, atol=1e-12)
    assert fewest(tensor) <= numpy.prod(shape) // max(shape)


@pytest.mark.parametrize("shape", [(6, 5), (6, 1, 5), (1, 6, 5, 1)])
def test_matrices_need_their_rank_however_many_sizes_are_one(shape: tuple[int, ...]) -> None:
    draw = numpy.random.default_rng(0)
    matrix = unit(draw.standard_normal((6, 3)) @ draw.standard_normal((3, 5)))
    assert fewest(matrix.reshape(shape)) == 3


def test_singular_vectors_within_the_error_are_left_out() -> None:
    matrix = unit(numpy.diag([1.0, 1e-3, 1e-6]) + 1e-9)
    kept = [factors[0].shape[1] for factors in direct_decompositions(matrix, 1e-5)]
    assert kept[-1] == 2


def test_fibres_of_zeros_are_left_out() -> None:
    identity = numpy.einsum("ab,bc->abc", numpy.eye(4), numpy.eye(4))
    assert fewest(unit(identity)) == 4
    assert fewest(numpy.zeros((2, 3, 4))) == 0


def test_what_no_fibre_reaches_is_left_out() -> None:
    draw = numpy.random.default_rng(0)
    core = draw.standard_normal((2, 2, 2))
    bases = [draw.standard_normal((5, 2)) for _ in range(3)]
    assert fewest(unit(numpy.einsum("abc,xa,yb,zc->xyz", core, *bases))) == 4
