import math

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from rankscope.errors import MatrixError, TooLargeError
from rankscope.rank import (
    Frobenius,
    Measure,
    StandardNormal,
    Uniform,
    epsilon_rank,
    polynomial_kernel,
    polynomial_spectrum,
)

POWERS = [(0,), (1,), (2,)]


def moment(measure: Measure, degree: int) -> float:
    if degree % 2:
        return 0.0
    is_uniform = isinstance(measure, Uniform)
    return 1 / (degree + 1) if is_uniform else float(math.prod(range(1, degree, 2)))


def test_a_sum_has_two_equal_singular_values() -> None:
    """In x + z: the constant with z, and x with the constant; x has the root mean square 3^-1/2."""
    values = polynomial_spectrum(
        numpy.array([[0, 1], [1, 0]]), POWERS[:2], POWERS[:2], measure=Uniform()
    )
    numpy.testing.assert_allclose(values, [3**-0.5, 3**-0.5])


def test_a_product_has_one_singular_value() -> None:
    values = polynomial_spectrum(numpy.array([[1]]), [(1,)], [(1,)], measure=Uniform())
    numpy.testing.assert_allclose(values, [1 / 3])
    # 3 x_1 x_2^2 z over normal inputs: 3 * 1 * sqrt(3) * 1.
    values = polynomial_spectrum(numpy.array([[3]]), [(1, 2)], [(1,)], measure=StandardNormal())
    assert float(numpy.linalg.norm(values)) == pytest.approx(3 * math.sqrt(3))


def test_a_squared_sum_by_hand() -> None:
    """(x + z)^2 with x^2 = 1/3 + c p_2, c = 2 / (3 sqrt 5): a 2 x 2 block and 2/3 from 2 x z."""
    coefficients = numpy.array([[0, 0, 1], [0, 2, 0], [1, 0, 0]])
    square = 4 / 45
    root = math.sqrt(1 / 9 + square)
    expected = sorted([2 / 3, 1 / 3 + root, root - 1 / 3], reverse=True)
    values = polynomial_spectrum(coefficients, POWERS, POWERS, measure=Uniform())
    numpy.testing.assert_allclose(values, expected)
    kernel = polynomial_kernel(coefficients, POWERS, POWERS, measure=Uniform())
    for kept in range(4):
        epsilon = math.sqrt(sum(value**2 for value in expected[kept:])) + 1e-9
        found = epsilon_rank(kernel, epsilon, metric=Frobenius())
        assert (found.lower, found.upper) == (kept, kept)


@settings(deadline=None, max_examples=30)
@given(
    left=st.lists(st.tuples(*[st.integers(0, 3)] * 2), min_size=1, max_size=5, unique=True),
    right=st.lists(st.tuples(*[st.integers(0, 3)] * 3), min_size=1, max_size=4, unique=True),
    seed=st.integers(0, 999),
)
@pytest.mark.parametrize("measure", [Uniform(), StandardNormal()], ids=lambda m: m.name)
def test_the_spectrum_is_that_of_the_gram_weighted_coefficients(
    measure: Measure, left: list[tuple[int, ...]], right: list[tuple[int, ...]], seed: int
) -> None:
    """The squares are the eigenvalues of Gram_A K Gram_B K^T."""
    coefficients = numpy.random.default_rng(seed).standard_normal((len(left), len(right)))
    grams = [
        numpy.array(
            [
                [math.prod(moment(measure, j + k) for j, k in zip(a, b, strict=True)) for b in side]
                for a in side
            ]
        )
        for side in (left, right)
    ]
    product = grams[0] @ coefficients @ grams[1] @ coefficients.T
    expected = numpy.sort(numpy.linalg.eigvals(product).real)[::-1]
    squares = polynomial_spectrum(coefficients, left, right, measure=measure) ** 2
    shared = min(len(expected), len(squares))
    scale = float(squares[0])
    numpy.testing.assert_allclose(squares[:shared], expected[:shared], atol=1e-9 * scale)
    numpy.testing.assert_allclose(squares[shared:], 0, atol=1e-9 * scale)


def test_high_degrees_lose_no_accuracy() -> None:
    """(x z)^40 is a product with the mean square 1 / 81 on each side."""
    values = polynomial_spectrum(numpy.array([[1.0]]), [(40,)], [(40,)], measure=Uniform())
    assert values[0] == pytest.approx(1 / 81, rel=1e-12)
    assert len(values) == 1 or values[1] < 1e-15


@pytest.mark.parametrize(
    ("coefficients", "left", "right", "message"),
    [
        (numpy.eye(2), [(0,)], [(0,), (1,)], r"1 left and 2 right .* got \(2, 2\)"),
        (numpy.eye(1, dtype=complex), [(0,)], [(0,)], "got complex128"),
        (numpy.array([[1.0, math.inf]]), [(0,)], [(0,), (1,)], "1 of 2 coefficients"),
        (numpy.zeros((0, 1)), [], [(0,)], "left side needs at least 1 monomial, got 0"),
        (numpy.eye(2), [(0,), (1,)], [(0,), (1, 2)], r"right monomial needs 1 .* got \(1, 2\)"),
        (numpy.eye(1), [(-1,)], [(0,)], r"left monomial needs 1 .* got \(-1,\)"),
        (numpy.eye(1), [()], [(0,)], r"left monomial needs 0 exponents .* got \(\)"),
    ],
)
def test_coefficients_and_exponents_that_do_not_fit_are_refused(
    coefficients: NDArray[numpy.generic],
    left: list[tuple[int, ...]],
    right: list[tuple[int, ...]],
    message: str,
) -> None:
    with pytest.raises(MatrixError, match=message):
        polynomial_kernel(coefficients, left, right, measure=Uniform())


def test_monomials_of_too_many_terms_are_refused() -> None:
    with pytest.raises(TooLargeError, match=r"1 left monomials in 3,486,784,401 polynomials"):
        polynomial_kernel(numpy.eye(1), [(4,) * 20], [(1,)], measure=Uniform())
