from fractions import Fraction

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from rankscope.constructions.approximation import approximate_on_interval
from rankscope.constructions.dense import Reals, evaluate
from rankscope.constructions.interval_arithmetic import (
    IntervalFunction,
    LipschitzFunction,
    Target,
    exp,
    sin,
)
from rankscope.constructions.piecewise_linear import exact_values
from rankscope.errors import ConstructionError

WAVE = IntervalFunction(lambda x: sin(5 * x) * exp(-x) + abs(x - 0.3))


@settings(deadline=None, max_examples=25)
@given(st.floats(0.5, 8.0), st.floats(-3.0, 3.0), st.floats(0.01, 0.5))
def test_the_error_is_at_most_epsilon_everywhere(
    frequency: float, low: float, epsilon: float
) -> None:
    target = LipschitzFunction(lambda x: numpy.sin(frequency * x) + abs(x), frequency + 1.0)
    found = approximate_on_interval(target, low, low + 2.0, epsilon=epsilon)
    points = numpy.linspace(low, low + 2.0, 2001)[:, None]
    error = numpy.abs(evaluate(found.network, points)[:, 0] - target.values(points)).max()
    assert error <= found.certified_error <= epsilon


@pytest.mark.parametrize("epsilon", [0.3, 0.03, 0.003])
def test_intervals_prove_the_error_too(epsilon: float) -> None:
    found = approximate_on_interval(WAVE, -1.0, 2.0, epsilon=epsilon)
    points = numpy.linspace(-1.0, 2.0, 5001)[:, None]
    error = numpy.abs(evaluate(found.network, points)[:, 0] - WAVE.values(points)).max()
    assert error <= found.certified_error <= epsilon
    assert f"asked for {epsilon:g}" in str(found)


def test_smooth_functions_take_about_one_over_the_root_of_epsilon_units() -> None:
    # Straight pieces of width h are off by at most h² f'' / 8, and halving is off by at most 2.
    counts = [
        approximate_on_interval(IntervalFunction(exp), 0.0, 1.0, epsilon=epsilon).num_units
        for epsilon in (1e-2, 1e-4)
    ]
    assert 5 <= counts[1] / counts[0] <= 20


def test_a_jump_cannot_be_proved() -> None:
    step: Target = LipschitzFunction(lambda x: (x > 0.3) * 1.0, 1e9)
    with pytest.raises(ConstructionError, match=r"error of 0.1 with 10,000 intervals; \d+ pieces"):
        approximate_on_interval(step, 0.0, 1.0, epsilon=0.1, max_evaluations=10_000)


def test_an_epsilon_below_the_rounding_of_weights_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def off_by_one(network: nn.Module, points: Reals) -> list[Fraction]:
        return [value + 1 for value in exact_values(network, points)]

    monkeypatch.setattr("rankscope.constructions.approximation.exact_values", off_by_one)
    with pytest.raises(ConstructionError, match=r"epsilon 0.5 is below .* which is 1\.\d"):
        approximate_on_interval(WAVE, 0.0, 1.0, epsilon=0.5)


@pytest.mark.parametrize(
    ("low", "high", "epsilon", "message"),
    [
        (1.0, 1.0, 0.1, "must go upwards, got 1.0 to 1.0"),
        (0.0, 1.0, 0.0, "epsilon must be positive, got 0.0"),
        (0.0, numpy.inf, 0.1, "high must be finite, got inf"),
    ],
)
def test_requests_that_make_no_sense_are_refused(
    low: float, high: float, epsilon: float, message: str
) -> None:
    with pytest.raises(ConstructionError, match=message):
        approximate_on_interval(WAVE, low, high, epsilon=epsilon)
