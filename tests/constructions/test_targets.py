import numpy
import pytest

from rankscope.constructions.interval_arithmetic import (
    IntervalFunction,
    LipschitzFunction,
    Target,
    sin,
)
from rankscope.errors import ConstructionError


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
    found = target.ranges(low, high)
    for _ in range(20):
        values = target.values(low + draw.uniform(0, 1, (50, 2)) * (high - low))
        assert (found.low <= values).all()
        assert (values <= found.high).all()


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
