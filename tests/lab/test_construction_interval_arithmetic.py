from collections.abc import Callable
from fractions import Fraction

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.errors import ConstructionError
from rankscope.lab.constructions import (
    Interval,
    IntervalFunction,
    LipschitzFunction,
    Number,
    Target,
    sin,
)
from rankscope.lab.constructions import interval_arithmetic as ia

# Interval arithmetic.


REALS = st.floats(-50, 50, allow_subnormal=False)


def magnitude(number: Number) -> Number:
    return number.__abs__()


EXPRESSIONS: list[Callable[[Number], Number]] = [
    ia.exp,
    ia.sin,
    ia.cos,
    ia.tanh,
    magnitude,
    lambda x: ia.maximum(x, -x),
    lambda x: x**2,
    lambda x: x**3,
    lambda x: (x * x + 1.0) ** -2,
    lambda x: 1.0 / (x * x + 0.5) - x,
    lambda x: 3 - x / 7.0,
    lambda x: ia.sqrt(magnitude(x)) + ia.log(magnitude(x) + 1.0),
    lambda x: ia.maximum(x, 1.0) * ia.minimum(x, 2.0),
    lambda x: -x + numpy.array([2.0]) * x,
]


@pytest.mark.parametrize("expression", EXPRESSIONS)
@settings(deadline=None, max_examples=40)
@given(st.tuples(REALS, REALS), st.lists(st.floats(0, 1), min_size=1, max_size=5))
def test_an_interval_holds_the_values_of_all_its_points(
    expression: Callable[[Number], Number], ends: tuple[float, float], shares: list[float]
) -> None:
    low, high = sorted(ends)
    points = numpy.clip(low + numpy.array(shares) * (high - low), low, high)
    result = expression(Interval.of(low, high))
    assert isinstance(result, Interval)
    values = numpy.asarray(expression(points), dtype=float)
    # The values themselves are rounded.
    slack = 1e-12 * (1 + numpy.abs(values))
    assert (result.low - slack <= values).all()
    assert (values <= result.high + slack).all()


@settings(deadline=None)
@given(REALS, REALS)
def test_sums_and_products_are_rounded_outwards(first: float, second: float) -> None:
    for result, true in (
        (Interval.of(first, first) + second, Fraction(first) + Fraction(second)),
        (Interval.of(first, first) * second, Fraction(first) * Fraction(second)),
    ):
        assert Fraction(float(result.low[0])) <= true <= Fraction(float(result.high[0]))


def test_dividing_by_an_interval_with_zero_gives_everything() -> None:
    result = 1.0 / Interval.of(-1.0, 1.0)
    assert (result.low[0], result.high[0]) == (-numpy.inf, numpy.inf)


def test_an_interval_that_goes_down_is_refused() -> None:
    with pytest.raises(ConstructionError, match=r"got 2.0 and 1.0"):
        Interval.of(2.0, 1.0)


@pytest.mark.parametrize("function", [ia.log, ia.sqrt])
def test_roots_and_logarithms_below_zero_are_refused(function: Callable[[Number], Number]) -> None:
    with pytest.raises(ConstructionError, match=r"at least zero, got -1.0"):
        function(Interval.of(-1.0, 1.0))


def test_the_sine_of_everything_is_between_minus_one_and_one() -> None:
    result = ia.sin(1.0 / Interval.of(-1.0, 1.0))
    assert isinstance(result, Interval)
    assert (result.low[0], result.high[0]) == (-1.0, 1.0)


# Targets.


@pytest.mark.parametrize(
    "target",
    [
        IntervalFunction(lambda x, y: sin(3 * x) * y),
        LipschitzFunction(lambda x, y: numpy.sin(3 * x) * y, 5.0),
        IntervalFunction(lambda x, y: 2.0),
    ],
)
def test_ranges_hold_the_values_in_their_boxes(target: Target) -> None:
    draw = numpy.random.default_rng(0)
    low = draw.uniform(-1, 0.5, (50, 2))
    high = low + draw.uniform(0, 0.5, (50, 2))
    result = target.ranges(low, high)
    for _ in range(20):
        values = target.values(low + draw.uniform(0, 1, (50, 2)) * (high - low))
        assert (result.low <= values).all()
        assert (values <= result.high).all()


def test_a_lipschitz_constant_that_samples_contradict_is_refused() -> None:
    target = LipschitzFunction(lambda x: 3 * x, 2.0)
    with pytest.raises(ConstructionError, match=r"constant 2.0 is too small.* by 1.5 over .* 0.5"):
        target.ranges(numpy.array([[0.0], [0.5]]), numpy.array([[0.5], [1.0]]))


def test_a_negative_lipschitz_constant_is_refused() -> None:
    with pytest.raises(ConstructionError, match=r"at least zero, got -1.0"):
        LipschitzFunction(numpy.abs, -1.0)


def test_values_must_be_finite_and_one_for_each_point() -> None:
    with pytest.raises(ConstructionError, match=r"values must be finite, got nan at position 1"):
        LipschitzFunction(lambda x: x * numpy.nan**x, 1.0).values(numpy.array([[0.0], [1.0]]))
    with pytest.raises(ConstructionError, match=r"each of 2 points, got shape \(3,\)"):
        LipschitzFunction(lambda x: numpy.zeros(3), 1.0).values(numpy.zeros((2, 1)))
