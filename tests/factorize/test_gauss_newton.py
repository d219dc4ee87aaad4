from itertools import pairwise

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.factorize import Factors, Reals, Stopping, component_norms, compose, descend
from rankscope.factorize.cp_fit import Descent, gradient, normal_matrix

SHAPES = st.lists(st.integers(1, 4), min_size=2, max_size=5)
PATIENT = Stopping(error=1e-11, max_component_norm=1e3, max_iterations=300, least_gain=1e-6)


def random_factors(shape: list[int], num_components: int, seed: int) -> Factors:
    draw = numpy.random.default_rng(seed)
    return tuple(draw.standard_normal((size, num_components)) for size in shape)


def dense_jacobian(factors: Factors) -> Reals:
    """One column for each entry of each factor: that entry's share of the sum, per unit."""
    columns = []
    for position, factor in enumerate(factors):
        for row, component in numpy.ndindex(factor.shape):
            single = [other[:, [component]] for other in factors]
            single[position] = numpy.eye(len(factor))[:, [row]]
            columns.append(compose(tuple(single)).ravel())
    return numpy.array(columns).T


@settings(deadline=None, max_examples=50)
@given(shape=SHAPES, num_components=st.integers(1, 3), seed=st.integers(0, 99))
def test_gradient_and_normal_matrix_are_those_of_the_dense_jacobian(
    shape: list[int], num_components: int, seed: int
) -> None:
    factors = random_factors(shape, num_components, seed)
    residual = numpy.random.default_rng(seed + 1).standard_normal(shape)
    jacobian = dense_jacobian(factors)
    numpy.testing.assert_allclose(
        gradient(residual, factors), jacobian.T @ residual.ravel(), atol=1e-9
    )
    numpy.testing.assert_allclose(
        normal_matrix(factors), jacobian.T @ jacobian, atol=1e-9, rtol=1e-9
    )


def test_the_gradient_is_the_derivative_of_half_the_squared_error() -> None:
    """Central differences: their error falls with the square of the width."""
    factors, tensor = random_factors([2, 3, 4], 2, 0), numpy.ones((2, 3, 4))

    def half_square(changed: Factors) -> float:
        return float(numpy.sum((compose(changed) - tensor) ** 2)) / 2

    slopes, width = [], 1e-5
    for position, factor in enumerate(factors):
        for at in numpy.ndindex(factor.shape):
            ends = []
            for sign in (1, -1):
                moved = [other.copy() for other in factors]
                moved[position][at] += sign * width
                ends.append(half_square(tuple(moved)))
            slopes.append((ends[0] - ends[1]) / (2 * width))
    numpy.testing.assert_allclose(
        gradient(compose(factors) - tensor, factors), slopes, rtol=1e-6, atol=1e-6
    )


@settings(deadline=None, max_examples=20)
@given(shape=SHAPES, num_components=st.integers(1, 4), seed=st.integers(0, 99))
def test_a_descent_never_goes_up_and_reports_its_true_residual(
    shape: list[int], num_components: int, seed: int
) -> None:
    tensor = numpy.random.default_rng(seed).standard_normal(shape)
    tensor /= numpy.linalg.norm(tensor)
    start = random_factors(shape, num_components, seed + 1)
    last = float(numpy.linalg.norm(compose(start) - tensor))
    for count in (1, 3, 9):
        end = descend(tensor, start, Stopping(1e-12, 1e3, count, 0.0))
        assert end.error <= last * (1 + 1e-12)
        assert end.num_iterations <= count
        assert end.error == pytest.approx(numpy.linalg.norm(compose(end.factors) - tensor))
        last = end.error


def test_near_a_decomposition_digits_double() -> None:
    """Gauss-Newton without residual is quadratic: some step squares the error, up to a factor."""
    truth = random_factors([4, 4, 4], 2, 0)
    tensor = compose(truth) / numpy.linalg.norm(compose(truth))
    start = random_factors([4, 4, 4], 2, 3)
    counts = range(1, 40)
    errors = [descend(tensor, start, Stopping(1e-14, 1e3, c, 0.0)).error for c in counts]
    orders = [
        numpy.log(after) / numpy.log(before)
        for before, after in pairwise(errors)
        if 1e-6 < before < 1e-2
    ]
    assert max(orders) > 1.5


def test_a_descent_ends_at_once_where_nothing_is_to_be_gained() -> None:
    zeros = (numpy.zeros((2, 1)), numpy.zeros((2, 1)))
    end = descend(numpy.eye(2) / numpy.sqrt(2), zeros, Stopping(1e-12, 1e3, 10**9, 0.0))
    assert end.num_iterations == 0
    assert end.error == pytest.approx(1.0)


def test_a_descent_ends_when_components_grow_too_large() -> None:
    flip = numpy.zeros((2, 2, 2))
    flip[0, 0, 1] = flip[0, 1, 0] = flip[1, 0, 0] = 1 / numpy.sqrt(3)
    end = descend(flip, random_factors([2, 2, 2], 2, 0), Stopping(1e-12, 5.0, 500, 0.0))
    assert 5 < component_norms(end.factors).max() < 50
    assert end.num_iterations < 500


def test_a_descent_ends_when_steps_gain_too_little() -> None:
    tensor = numpy.random.default_rng(0).standard_normal((3, 3, 3))
    tensor /= numpy.linalg.norm(tensor)
    start = random_factors([3, 3, 3], 1, 0)
    hasty = descend(tensor, start, Stopping(1e-12, 1e3, 500, 0.1))
    patient = descend(tensor, start, Stopping(1e-12, 1e3, 500, 1e-9))
    assert hasty.num_iterations < patient.num_iterations < 500
    assert patient.error < hasty.error


def test_a_start_that_is_a_decomposition_is_left_alone() -> None:
    truth = random_factors([2, 3, 2], 2, 0)
    scale = numpy.linalg.norm(compose(truth)) ** (-1 / 3)
    unit = tuple(factor * scale for factor in truth)
    end = descend(compose(unit), unit, PATIENT)
    assert end.num_iterations == 0


def test_errors_are_frobenius_norms() -> None:
    assert Descent((), numpy.array([[3.0, 0.0], [0.0, 4.0]])).error == 5.0
