import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.factorize import Factors, NormalOperator, Stopping, compose, descend
from rankscope.factorize.cp_fit import (
    dense_equations,
    gradient,
    matrix_free_equations,
    normal_matrix,
)

SHAPES = st.lists(st.integers(1, 5), min_size=2, max_size=5).map(tuple)


def random_factors(shape: tuple[int, ...], num_components: int, seed: int) -> Factors:
    draw = numpy.random.default_rng(seed)
    return tuple(draw.standard_normal((size, num_components)) for size in shape)


@settings(deadline=None, max_examples=40)
@given(shape=SHAPES, num_components=st.integers(1, 4), seed=st.integers(0, 99))
def test_the_operator_is_the_matrix_that_is_never_formed(
    shape: tuple[int, ...], num_components: int, seed: int
) -> None:
    factors = random_factors(shape, num_components, seed)
    stack = numpy.random.default_rng(seed + 1).standard_normal((sum(shape), num_components))
    expected = normal_matrix(factors) @ stack.ravel()
    found = NormalOperator(factors).apply(stack).ravel()
    numpy.testing.assert_allclose(found, expected, atol=1e-9 * numpy.abs(expected).max())


@settings(deadline=None, max_examples=40)
@given(shape=SHAPES, num_components=st.integers(1, 4), seed=st.integers(0, 99))
def test_blocks_invert_the_diagonal_of_the_damped_matrix(
    shape: tuple[int, ...], num_components: int, seed: int
) -> None:
    factors = random_factors(shape, num_components, seed)
    blocks = NormalOperator(factors).inverse_blocks(0.5)
    assert blocks is not None
    matrix = normal_matrix(factors) + 0.5 * numpy.eye(sum(shape) * num_components)
    start = 0
    for size, block in zip(shape, blocks, strict=True):
        rows = slice(start, start + size * num_components)
        product = matrix[rows, rows] @ numpy.kron(numpy.eye(size), block)
        numpy.testing.assert_allclose(product, numpy.eye(len(product)), atol=1e-8)
        start = rows.stop


@settings(deadline=None, max_examples=40)
@given(shape=SHAPES, num_components=st.integers(1, 3), seed=st.integers(0, 99))
def test_steps_solve_the_equations_nearly_and_go_down(
    shape: tuple[int, ...], num_components: int, seed: int
) -> None:
    factors = random_factors(shape, num_components, seed)
    residual = numpy.random.default_rng(seed + 1).standard_normal(shape)
    slope = gradient(residual, factors)
    step = matrix_free_equations(factors)(slope, 1.0)
    exact = dense_equations(factors)(slope, 1.0)
    assert step is not None
    assert exact is not None
    damped = normal_matrix(factors) + numpy.eye(len(step))
    assert numpy.linalg.norm(damped @ step + slope) <= 0.021 * numpy.linalg.norm(slope)
    # Conjugate gradients from 0 satisfy the equations in the direction of what they found.
    along = float(step @ slope)
    assert float(step @ (damped @ step + slope)) == pytest.approx(0, abs=1e-8 * abs(along))
    assert along < 0


def test_both_descents_find_what_was_hidden() -> None:
    tensor = compose(random_factors((8, 7, 6), 3, 0))
    tensor = tensor / numpy.linalg.norm(tensor)
    near = tuple(factor + 0.05 for factor in random_factors((8, 7, 6), 3, 0))
    start = tuple(factor / numpy.linalg.norm(compose(near)) ** (1 / 3) for factor in near)
    stopping = Stopping(1e-11, numpy.inf, 200, 0.0)
    for equations in (dense_equations, matrix_free_equations):
        assert descend(tensor, start, stopping, equations=equations).error <= 1e-11


def test_equations_that_rounding_made_indefinite_have_no_solution() -> None:
    factors = tuple(numpy.full((2, 2), 1e8) for _ in range(3))  # both components are the same
    slope = numpy.ones(12)
    assert NormalOperator(factors).inverse_blocks(0.0) is None
    assert matrix_free_equations(factors)(slope, 0.0) is None
