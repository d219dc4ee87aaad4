from dataclasses import replace

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.polynomial import Polynomial
from tests.lab.strategies import points_in_square, random_network

from rankscope.errors import ConstructionError
from rankscope.lab.constructions import (
    Box,
    Obstruction,
    evaluate,
    find_obstruction,
    maximum_of_three,
    polynomial_barrier,
    verify_obstruction,
)

# Polynomial activation.


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 8), st.lists(st.floats(-2, 2), min_size=1, max_size=9))
def test_no_polynomial_of_the_degree_is_nearer_than_the_lower_bound(
    degree: int, coefficients: list[float]
) -> None:
    result = polynomial_barrier(lambda x: numpy.abs(x - 0.3), -1.0, 1.0, degree=degree)
    rival = Polynomial(coefficients[: degree + 1])
    error = numpy.abs(numpy.abs(result.points - 0.3) - rival(result.points)).max()
    assert error >= result.lower
    assert result.lower > 0


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 12), st.floats(-0.9, 0.9))
def test_the_bound_is_nearly_reached(degree: int, kink: float) -> None:
    result = polynomial_barrier(lambda x: numpy.maximum(x - kink, 0.0), -1.0, 1.0, degree=degree)
    # Both are rounded, by a few units in the last place.
    assert (1 - 1e-12) * result.lower <= result.measured <= 1.01 * result.lower + 1e-9
    assert f"degree {degree}" in str(result)


def test_monic_powers_are_as_far_away_as_chebyshev_found() -> None:
    # The distance of x^(n+1) from polynomials of degree n on [-1, 1] is 2^-n.
    for degree in range(8):
        monic = Polynomial.basis(degree + 1)
        result = polynomial_barrier(monic, -1.0, 1.0, degree=degree)
        assert result.lower == pytest.approx(2.0**-degree, rel=1e-5)


def test_requests_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ConstructionError, match=r"upwards, got 1.0 to 0.0"):
        polynomial_barrier(numpy.abs, 1.0, 0.0, degree=1)
    with pytest.raises(ConstructionError, match=r"degree must be in 0..60, got 61"):
        polynomial_barrier(numpy.abs, 0.0, 1.0, degree=61)
    with pytest.raises(ConstructionError, match=r"values must be finite, got nan"):
        polynomial_barrier(lambda x: x * numpy.nan, 0.0, 1.0, degree=1)


# One layer obstruction.


SQUARE = Box.of([-1.0, -1.0], [1.0, 1.0])


def found_for_maximum() -> Obstruction:
    result = find_obstruction(maximum_of_three(), SQUARE)
    assert result is not None
    return result


def test_the_example_is_the_maximum_of_zero_x_and_y() -> None:
    points = points_in_square(200, size=5.0)
    expected = numpy.maximum(points.max(axis=1), 0.0)
    numpy.testing.assert_allclose(evaluate(maximum_of_three(), points)[:, 0], expected, atol=1e-12)


def test_one_hidden_layer_cannot_be_the_maximum_of_three() -> None:
    assert verify_obstruction(maximum_of_three(), found_for_maximum())


@settings(deadline=None, max_examples=10)
@given(st.integers(1, 5), st.integers(0, 10**6))
def test_networks_with_one_hidden_layer_are_never_obstructed(width: int, seed: int) -> None:
    network = random_network(2, width, 1, seed=seed)
    assert find_obstruction(network, SQUARE) is None
    assert not verify_obstruction(network, found_for_maximum())


@settings(deadline=None, max_examples=10)
@given(st.integers(0, 10**6))
def test_what_is_found_for_deep_networks_is_verified(seed: int) -> None:
    network = random_network(2, 3, 3, 1, seed=seed)
    result = find_obstruction(network, SQUARE)
    assert result is None or verify_obstruction(network, result)


def test_most_deep_networks_are_obstructed() -> None:
    networks = [random_network(2, 4, 4, 1, seed=seed) for seed in range(5)]
    assert sum(find_obstruction(network, SQUARE) is not None for network in networks) >= 3


def test_certificates_that_say_something_else_are_rejected() -> None:
    network, result = maximum_of_three(), found_for_maximum()
    first, second = result.first, result.second
    moved = replace(
        second, segment=((second.segment[0][0] + 1, second.segment[0][1]), second.segment[1])
    )
    point = replace(first, segment=(first.segment[0], first.segment[0]))
    swapped = replace(first, sides=(first.sides[1], first.sides[0]))
    far = replace(first, sides=(first.sides[0], (first.sides[1][0] + 9, first.sides[1][1] + 50)))
    on_break = replace(first, sides=(first.segment[0], first.sides[1]))
    for wrong in (
        Obstruction(first, first),
        Obstruction(first, moved),
        Obstruction(point, second),
        Obstruction(second, point),
        Obstruction(swapped, second),
        Obstruction(far, second),
        Obstruction(on_break, second),
    ):
        assert not verify_obstruction(network, wrong)


def test_other_sizes_are_refused() -> None:
    with pytest.raises(ConstructionError, match=r"find_obstruction needs .* R\^3 to R\^1"):
        find_obstruction(random_network(3, 2, 1, seed=0), SQUARE)
    with pytest.raises(ConstructionError, match=r"verify_obstruction needs .* R\^2 to R\^2"):
        verify_obstruction(random_network(2, 2, 2, seed=0), found_for_maximum())
