import math

import numpy
import pytest
import torch
from flint import arb
from hypothesis import given, settings, strategies
from tests.lab.strategies import points_in_square, random_network
from torch import nn

from rankscope.lab.constructions import (
    ACTIVATIONS,
    ELU,
    GELU,
    RELU,
    SIGMOID,
    TANH,
    Activation,
    Reals,
    dense_layers,
    gelu_minimum,
    measure_activation,
)

EACH = pytest.mark.parametrize("activation", ACTIVATIONS, ids=lambda each: each.name)
GRID = numpy.linspace(-30.0, 30.0, 6001)
REAL = strategies.floats(-30, 30)


def at(activation: Activation, point: float) -> float:
    return float(activation.values(numpy.array([point]))[0])


@EACH
def test_values_and_slopes_are_those_of_pytorch(activation: Activation) -> None:
    points = torch.from_numpy(GRID.copy()).requires_grad_()
    values = getattr(nn, activation.name)()(points)
    (slopes,) = torch.autograd.grad(values.sum(), points)
    numpy.testing.assert_allclose(activation.values(GRID), values.detach().numpy(), atol=1e-12)
    numpy.testing.assert_allclose(activation.slopes(GRID), slopes.numpy(), atol=1e-12)


@EACH
def test_no_value_is_outside_the_range_and_both_ends_are_approached(activation: Activation) -> None:
    values = activation.values(GRID)
    assert activation.infimum <= values.min() + 1e-15
    assert values.max() <= activation.supremum
    assert values.min() == pytest.approx(activation.infimum, abs=1e-4)
    for end, limit in zip((-30.0, 30.0), activation.limits, strict=True):
        wanted = limit if math.isfinite(limit) else 30.0
        assert at(activation, end) == pytest.approx(wanted, abs=1e-12)


@settings(deadline=None)
@given(strategies.sampled_from(ACTIVATIONS), REAL, REAL)
def test_two_values_are_no_further_apart_than_lipschitz_says(
    activation: Activation, first: float, second: float
) -> None:
    gap = abs(at(activation, first) - at(activation, second))
    assert gap <= activation.lipschitz_constant * abs(first - second) + 1e-14


@EACH
def test_the_lipschitz_constant_is_attained_by_a_slope(activation: Activation) -> None:
    points = numpy.append(GRID, [math.sqrt(2), -math.sqrt(2)])
    assert numpy.abs(activation.slopes(points)).max() == activation.lipschitz_constant


@settings(deadline=None)
@given(strategies.sampled_from(ACTIVATIONS), REAL, REAL)
def test_monotone_ones_never_fall(activation: Activation, first: float, second: float) -> None:
    low, high = sorted((first, second))
    assert not activation.is_monotone or at(activation, low) <= at(activation, high)


def test_only_gelu_falls_anywhere() -> None:
    assert [each.name for each in ACTIVATIONS if not each.is_monotone] == ["GELU"]
    assert at(GELU, -2.0) > at(GELU, -1.0)


def test_the_slope_of_gelu_changes_sign_inside_the_bracket_for_certain() -> None:
    """Signs by ball arithmetic, not by floats."""

    def slope(point: float) -> arb:
        exact = arb(point)
        density = (-exact * exact / 2).exp() / (2 * arb.pi()).sqrt()
        return (1 + (exact / arb(2).sqrt()).erf()) / 2 + exact * density

    result = gelu_minimum()
    assert slope(result.low) < 0
    assert slope(result.high) > 0
    assert GELU.infimum == result.value


@settings(deadline=None)
@given(REAL, strategies.floats(0, 100))
def test_relu_is_positively_homogeneous(point: float, factor: float) -> None:
    assert at(RELU, factor * point) == factor * at(RELU, point)


def test_no_other_is_homogeneous() -> None:
    assert [each.name for each in ACTIVATIONS if each.is_homogeneous] == ["ReLU"]
    for each in (TANH, SIGMOID, GELU, ELU):
        assert abs(at(each, -2.0) - 2 * at(each, -1.0)) > 0.01, each.name


def test_homogeneity_lets_a_unit_be_scaled_without_any_effect() -> None:
    first, last = dense_layers(random_network(3, 4, 2, seed=0))
    points = points_in_square(20, inputs=3)
    factors = numpy.array([0.5, 3.0, 7.0, 0.01])

    def outputs(factors: Reals) -> Reals:
        hidden = RELU.values((points @ first.weight.T + first.bias) * factors)
        return numpy.asarray((hidden / factors) @ last.weight.T + last.bias)

    numpy.testing.assert_allclose(outputs(factors), outputs(numpy.ones(4)), rtol=1e-12, atol=1e-12)


@settings(deadline=None)
@given(REAL)
def test_odd_and_mirrored(point: float) -> None:
    assert at(TANH, -point) == -at(TANH, point)
    assert at(SIGMOID, -point) == pytest.approx(1 - at(SIGMOID, point), abs=1e-15)
    assert at(GELU, point) - at(GELU, -point) == pytest.approx(point, abs=1e-13)
    assert at(TANH, point) == pytest.approx(2 * at(SIGMOID, 2 * point) - 1, abs=1e-15)


def test_tanh_alone_is_odd() -> None:
    assert [each.name for each in ACTIVATIONS if each.is_odd] == ["Tanh"]


@EACH
def test_what_is_measured_agrees_with_what_is_true(activation: Activation) -> None:
    result = measure_activation(activation)
    assert result.name == activation.name
    assert activation.infimum <= result.least_value <= activation.infimum + 1e-3
    assert result.steepest <= activation.lipschitz_constant
    assert result.steepest == pytest.approx(activation.lipschitz_constant, rel=1e-4)
    assert (result.homogeneity_error == 0) == activation.is_homogeneous
    assert (result.oddness_error == 0) == activation.is_odd
    assert at(activation, result.least_at) == result.least_value
