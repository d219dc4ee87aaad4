import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.polynomial import Polynomial

from rankscope.constructions.obstructions import polynomial_barrier
from rankscope.errors import ConstructionError


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 8), st.lists(st.floats(-2, 2), min_size=1, max_size=9))
def test_no_polynomial_of_the_degree_is_nearer_than_the_lower_bound(
    degree: int, coefficients: list[float]
) -> None:
    found = polynomial_barrier(lambda x: numpy.abs(x - 0.3), -1.0, 1.0, degree=degree)
    rival = Polynomial(coefficients[: degree + 1])
    error = numpy.abs(numpy.abs(found.points - 0.3) - rival(found.points)).max()
    assert error >= found.lower
    assert found.lower > 0


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 12), st.floats(-0.9, 0.9))
def test_the_bound_is_nearly_reached(degree: int, kink: float) -> None:
    found = polynomial_barrier(lambda x: numpy.maximum(x - kink, 0.0), -1.0, 1.0, degree=degree)
    assert found.lower <= found.measured <= 1.01 * found.lower + 1e-9
    assert f"degree {degree}" in str(found)


def test_monic_powers_are_as_far_away_as_chebyshev_found() -> None:
    # The distance of x^(n+1) from polynomials of degree n on [-1, 1] is 2^-n.
    for degree in range(8):
        monic = Polynomial.basis(degree + 1)
        found = polynomial_barrier(monic, -1.0, 1.0, degree=degree)
        assert found.lower == pytest.approx(2.0**-degree, rel=1e-5)


def test_requests_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ConstructionError, match=r"upwards, got 1.0 to 0.0"):
        polynomial_barrier(numpy.abs, 1.0, 0.0, degree=1)
    with pytest.raises(ConstructionError, match=r"degree must be in 0..60, got 61"):
        polynomial_barrier(numpy.abs, 0.0, 1.0, degree=61)
    with pytest.raises(ConstructionError, match=r"values must be finite, got nan"):
        polynomial_barrier(lambda x: x * numpy.nan, 0.0, 1.0, degree=1)
