from itertools import product

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.factorize import Factors, balance, component_norms, compose
from rankscope.factorize.truncation import outer_columns, project

SHAPES = st.lists(st.integers(1, 4), min_size=2, max_size=5)


def random_factors(shape: list[int], num_components: int, seed: int = 0) -> Factors:
    draw = numpy.random.default_rng(seed)
    return tuple(draw.standard_normal((size, num_components)) for size in shape)


def test_a_tensor_is_the_sum_of_products_of_its_factors_entries() -> None:
    """The definition of a CP decomposition, index by index."""
    factors = random_factors([2, 3, 4, 2], 5)
    tensor = compose(factors)
    for at in product(range(2), range(3), range(4), range(2)):
        rows = [factor[j] for factor, j in zip(factors, at, strict=True)]
        assert tensor[at] == pytest.approx(
            sum(numpy.prod([row[s] for row in rows]) for s in range(5))
        )


def test_many_components_are_added_up_in_blocks() -> None:
    factors = random_factors([3, 2, 2], 2500)
    expected = numpy.einsum("as,bs,cs->abc", *factors)
    numpy.testing.assert_allclose(compose(factors), expected, atol=1e-10)


def test_no_components_add_up_to_zero() -> None:
    numpy.testing.assert_array_equal(compose(random_factors([2, 3], 0)), numpy.zeros((2, 3)))


@settings(deadline=None)
@given(shape=SHAPES, num_components=st.integers(1, 4), seed=st.integers(0, 99))
def test_projections_contract_all_positions_but_one(
    shape: list[int], num_components: int, seed: int
) -> None:
    factors = random_factors(shape, num_components, seed)
    tensor = numpy.random.default_rng(seed + 1).standard_normal(shape)
    for position, found in enumerate(project(tensor, factors)):
        others = [factor for place, factor in enumerate(factors) if place != position]
        matrix = numpy.moveaxis(tensor, position, 0).reshape(shape[position], -1)
        numpy.testing.assert_allclose(found, matrix @ outer_columns(others), atol=1e-10)


@settings(deadline=None)
@given(shape=SHAPES, num_components=st.integers(1, 4), seed=st.integers(0, 99))
def test_balancing_evens_out_lengths_and_nothing_else(
    shape: list[int], num_components: int, seed: int
) -> None:
    factors = random_factors(shape, num_components, seed)
    balanced = balance(factors)
    numpy.testing.assert_allclose(compose(balanced), compose(factors), atol=1e-10)
    lengths = [numpy.linalg.norm(factor, axis=0) for factor in balanced]
    for length in lengths:
        numpy.testing.assert_allclose(length, lengths[0])
    single = [compose(tuple(f[:, [s]] for f in factors)) for s in range(num_components)]
    numpy.testing.assert_allclose(
        component_norms(balanced), [numpy.linalg.norm(one) for one in single]
    )


def test_a_component_with_a_vanishing_vector_becomes_zero() -> None:
    first, second = random_factors([2, 3], 2)
    first[:, 1] = 0
    balanced = balance((first, second))
    assert not balanced[1][:, 1].any()
    numpy.testing.assert_allclose(compose(balanced), compose((first, second)))
