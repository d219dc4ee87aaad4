from fractions import Fraction
from itertools import combinations

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.lab.strategies import QUARTERS, piecewise_linear, random_network
from torch import nn

from rankscope.errors import ConstructionError
from rankscope.lab.constructions import (
    DenseLayer,
    PiecewiseLinear,
    dense_layers,
    evaluate,
    exact_values,
    fewest_units,
    one_hidden_layer,
    read_piecewise_linear,
    relu_network,
    subset_with_sum,
    with_fewest_units,
)

# Piecewise linear.


@settings(deadline=None)
@given(piecewise_linear(), QUARTERS)
def test_the_slope_left_and_right_of_every_point_is_as_given(
    function: PiecewiseLinear, point: float
) -> None:
    # Breakpoints are quarters, so that a step of an eighth stays within a piece.
    left, here, right = function(numpy.array([point - 0.125, point, point + 0.125]))
    piece = int((function.breakpoints <= point).sum())
    before = int((function.breakpoints < point).sum())
    assert right - here == function.slopes[piece] / 8
    assert here - left == function.slopes[before] / 8


@settings(deadline=None)
@given(piecewise_linear())
def test_the_given_value_is_taken_at_the_given_point(function: PiecewiseLinear) -> None:
    assert function(numpy.array([function.point]))[0] == function.value


@settings(deadline=None)
@given(piecewise_linear())
def test_dropping_breakpoints_without_a_break_changes_nothing(function: PiecewiseLinear) -> None:
    simple = function.simplified()
    points = numpy.arange(-96, 97) / 8
    assert (simple(points) == function(points)).all()
    assert (simple.jumps != 0).all()


@settings(deadline=None)
@given(st.dictionaries(QUARTERS, QUARTERS, min_size=2, max_size=8))
def test_a_function_through_points_passes_through_them(values: dict[float, float]) -> None:
    points = numpy.array(sorted(values))
    heights = numpy.array([values[point] for point in sorted(values)])
    result = PiecewiseLinear.through(points, heights)
    numpy.testing.assert_allclose(result(points), heights, atol=1e-12)
    assert len(result.breakpoints) == len(points) - 2


def test_unsorted_breakpoints_are_refused() -> None:
    with pytest.raises(ConstructionError, match=r"1.0 comes after 2.0 at position 2"):
        PiecewiseLinear.of([0.0, 2.0, 1.0], [0.0, 1.0, 2.0, 3.0])


def test_repeated_breakpoints_are_refused() -> None:
    with pytest.raises(ConstructionError, match=r"2.0 is repeated at position 1"):
        PiecewiseLinear.of([2.0, 2.0], [0.0, 1.0, 2.0])
    with pytest.raises(ConstructionError, match=r"3.0 is repeated at position 1"):
        PiecewiseLinear.through(numpy.array([3.0, 3.0]), numpy.array([0.0, 1.0]))


def test_a_wrong_number_of_slopes_is_refused() -> None:
    with pytest.raises(ConstructionError, match=r"2 breakpoints need 3 slopes, got 2"):
        PiecewiseLinear.of([0.0, 1.0], [0.0, 1.0])


@pytest.mark.parametrize(
    ("breakpoints", "slopes", "value", "name"),
    [
        ([numpy.nan], [0.0, 1.0], 0.0, "breakpoints"),
        ([0.0], [numpy.inf, 1.0], 0.0, "slopes"),
        ([0.0], [0.0, 1.0], numpy.inf, "value"),
        ([0.0], [-1.7e308, 1.7e308], 0.0, "jumps"),
        ([0.0, 1e200], [0.0, 1e200, 0.0], 0.0, "breakpoint_values"),
    ],
)
def test_numbers_that_are_not_finite_are_refused(
    breakpoints: list[float], slopes: list[float], value: float, name: str
) -> None:
    with pytest.raises(ConstructionError, match=f"{name} must be finite"):
        PiecewiseLinear.of(breakpoints, slopes, value=value)


def test_one_point_is_not_enough_to_pass_through() -> None:
    with pytest.raises(ConstructionError, match=r"got 1 points and 1 values"):
        PiecewiseLinear.through(numpy.zeros(1), numpy.zeros(1))


# Unit counts.


def some_sum(numbers: list[Fraction], total: Fraction) -> bool:
    return any(
        sum(chosen) == total
        for count in range(len(numbers) + 1)
        for chosen in combinations(numbers, count)
    )


@settings(deadline=None)
@given(st.lists(st.integers(-9, 9), max_size=7), st.integers(-20, 20))
def test_a_subset_is_found_exactly_when_there_is_one(numbers: list[int], total: int) -> None:
    fractions = [Fraction(number, 3) for number in numbers]
    result = subset_with_sum(fractions, Fraction(total, 3))
    assert (result is not None) == some_sum(fractions, Fraction(total, 3))
    if result is not None:
        assert sum(fractions[place] for place in result) == Fraction(total, 3)
        assert len(set(result)) == len(result)


@settings(deadline=None)
@given(piecewise_linear())
def test_k_units_are_enough_exactly_when_minus_the_left_slope_is_a_sum_of_jumps(
    function: PiecewiseLinear,
) -> None:
    simple = function.simplified()
    count = len(simple.breakpoints)
    result = fewest_units(function)
    if count == 0:
        assert result.lower == result.upper == (2 if simple.slopes[0] else 0)
        return
    jumps = [Fraction(jump) for jump in simple.jumps.tolist()]
    attained = some_sum(jumps, -Fraction(float(simple.slopes[0])))
    assert result.lower == result.upper == count + (not attained)
    assert (result.left_facing is not None) == attained


def test_slopes_are_taken_as_the_binary_numbers_that_they_are() -> None:
    # In decimals the jumps 0.1 and 0.2 would add up to minus the leftmost slope; in binary they do
    # because the last slope is zero, whatever the digits. With 0.1 + 0.2 = 0.3 it is not so.
    assert fewest_units(PiecewiseLinear.of([0.0, 1.0], [-0.3, -0.2, 0.0])).lower == 2
    assert fewest_units(PiecewiseLinear.of([0.0, 1.0], [-0.1, 0.2, 0.3])).lower == 3
    assert fewest_units(PiecewiseLinear.of([0.0, 1.0], [-0.125, 0.25, 0.375])).lower == 2


def test_twenty_breakpoints_are_searched_and_twenty_one_are_not() -> None:
    # All partial sums of odd numbers in an even number are even: an odd slope needs one more unit.
    for count, lower, upper, searched in ((20, 20, 20, True), (21, 21, 22, False)):
        kinks = [float(place) for place in range(count)]
        slopes = [-float(2**place) for place in range(count, -1, -1)]
        result = fewest_units(PiecewiseLinear.of(kinks, slopes))
        assert (result.lower, result.upper, result.was_searched) == (
            lower + searched,
            upper + searched,
            searched,
        )
    assert str(result) == "21 or 22 hidden units: more than 20 breakpoints"


# Hidden layer.


EIGHTHS = numpy.arange(-100, 101) / 8


def num_units(network: nn.Module) -> int:
    return len(dense_layers(network)[0].bias)


@settings(deadline=None)
@given(piecewise_linear())
def test_the_network_equals_the_function_without_any_error(function: PiecewiseLinear) -> None:
    network = one_hidden_layer(function)
    assert (evaluate(network, EIGHTHS[:, None])[:, 0] == function(EIGHTHS)).all()


@settings(deadline=None)
@given(piecewise_linear())
def test_the_network_has_one_unit_more_than_breaks(function: PiecewiseLinear) -> None:
    breaks = int((function.jumps != 0).sum())
    is_constant = not function.slopes.any()
    affine_units = 0 if is_constant else 2
    assert num_units(one_hidden_layer(function)) == (breaks + 1 if breaks else affine_units)


@settings(deadline=None)
@given(piecewise_linear())
def test_the_network_with_fewest_units_equals_the_function(function: PiecewiseLinear) -> None:
    network = with_fewest_units(function)
    assert (evaluate(network, EIGHTHS[:, None])[:, 0] == function(EIGHTHS)).all()
    assert num_units(network) == fewest_units(function).upper


@settings(deadline=None)
@given(piecewise_linear())
def test_reading_a_network_gives_back_its_function(function: PiecewiseLinear) -> None:
    simple = function.simplified()
    for build in (one_hidden_layer, with_fewest_units):
        result = read_piecewise_linear(build(function))
        assert (result.breakpoints == simple.breakpoints).all()
        assert (result.slopes == simple.slopes).all()
        assert (result(EIGHTHS) == function(EIGHTHS)).all()


@settings(deadline=None)
@given(st.integers(1, 12), st.integers(0, 10**6))
def test_the_sorted_form_of_any_network_is_its_plain_forward(width: int, seed: int) -> None:
    network = random_network(1, width, 1, seed=seed)
    points = numpy.random.default_rng(seed).uniform(-5, 5, 200)
    function = read_piecewise_linear(network)
    numpy.testing.assert_allclose(
        function(points), evaluate(network, points[:, None])[:, 0], atol=1e-12
    )


@settings(deadline=None)
@given(st.integers(1, 8), st.integers(0, 10**6))
def test_exact_values_are_the_sums_of_units_in_fractions(width: int, seed: int) -> None:
    first, last = dense_layers(random_network(1, width, 1, seed=seed))
    first.weight[0] = 0.0
    network = relu_network([first, last])
    points = numpy.sort(numpy.random.default_rng(seed).uniform(-3, 3, 9))
    for point, value in zip(points.tolist(), exact_values(network, points), strict=True):
        expected = Fraction(float(last.bias[0]))
        for weight, bias, height in zip(
            first.weight[:, 0], first.bias, last.weight[0], strict=True
        ):
            before = Fraction(float(weight)) * Fraction(point) + Fraction(float(bias))
            expected += Fraction(float(height)) * max(before, Fraction(0))
        assert value == expected


def test_units_that_cancel_leave_no_breakpoint() -> None:
    hidden = DenseLayer(numpy.array([[2.0], [1.0], [0.0]]), numpy.array([-1.0, -0.5, 3.0]))
    network = relu_network([hidden, DenseLayer(numpy.array([[1.0, -2.0, 5.0]]), numpy.ones(1))])
    result = read_piecewise_linear(network)
    assert len(result.breakpoints) == 0
    assert result(numpy.array([0.0, 7.0])).tolist() == [16.0, 16.0]


def test_too_many_breakpoints_to_search_are_refused() -> None:
    function = PiecewiseLinear.through(numpy.arange(24.0), numpy.arange(24.0) ** 2)
    with pytest.raises(ConstructionError, match=r"at most 20 breakpoints, got 22.* of 23 units"):
        with_fewest_units(function)


def test_deeper_networks_are_not_read() -> None:
    with pytest.raises(ConstructionError, match=r"needs one hidden layer, got 2"):
        read_piecewise_linear(random_network(1, 2, 2, 1, seed=0))


def test_a_breakpoint_beyond_float64_is_refused() -> None:
    hidden = DenseLayer(numpy.array([[1e-200]]), numpy.array([-1e200]))
    network = relu_network([hidden, DenseLayer(numpy.ones((1, 1)), numpy.zeros(1))])
    with pytest.raises(ConstructionError, match=r"about 10\^\d+, beyond what float64 holds"):
        read_piecewise_linear(network)
