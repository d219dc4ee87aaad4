from fractions import Fraction

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.constructions.strategies import piecewise_linear, random_network
from torch import nn

from rankscope.constructions.dense import DenseLayer, dense_layers, evaluate, relu_network
from rankscope.constructions.piecewise_linear import (
    PiecewiseLinear,
    exact_values,
    fewest_units,
    one_hidden_layer,
    read_piecewise_linear,
    with_fewest_units,
)
from rankscope.errors import ConstructionError

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
        found = read_piecewise_linear(build(function))
        assert (found.breakpoints == simple.breakpoints).all()
        assert (found.slopes == simple.slopes).all()
        assert (found(EIGHTHS) == function(EIGHTHS)).all()


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
    found = read_piecewise_linear(network)
    assert len(found.breakpoints) == 0
    assert found(numpy.array([0.0, 7.0])).tolist() == [16.0, 16.0]


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
