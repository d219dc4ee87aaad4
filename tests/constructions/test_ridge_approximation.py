import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.constructions.approximation import approximate_on_box
from rankscope.constructions.dense import Box, evaluate
from rankscope.constructions.interval_arithmetic import (
    IntervalFunction,
    LipschitzFunction,
    Target,
    cos,
    sin,
)
from rankscope.errors import ConstructionError, TooLargeError

SMOOTH = IntervalFunction(lambda x, y: sin(2 * x) * cos(y))


def largest_error(target: Target, box: Box, network: object) -> float:
    draw = numpy.random.default_rng(0)
    points = draw.uniform(box.low, box.high, (1000, box.num_inputs))
    return float(numpy.abs(evaluate(network, points)[:, 0] - target.values(points)).max())  # type: ignore[arg-type]


@settings(deadline=None, max_examples=8)
@given(st.floats(0.2, 0.6), st.floats(0.5, 2.5), st.floats(-1.0, 1.0))
def test_the_error_in_the_plane_is_at_most_epsilon(
    epsilon: float, frequency: float, corner: float
) -> None:
    target = LipschitzFunction(
        lambda x, y: numpy.sin(frequency * x) + numpy.cos(y), frequency + 1.0
    )
    box = Box.of([corner, 0.0], [corner + 1.0, 1.5])
    found = approximate_on_box(target, box, epsilon=epsilon)
    assert largest_error(target, box, found.network) <= found.certified_error <= epsilon


@pytest.mark.parametrize(
    ("target", "box"),
    [
        (IntervalFunction(lambda x: sin(3 * x)), Box.of([-1.0], [1.0])),
        (SMOOTH, Box.unit(2)),
        (IntervalFunction(lambda x, y, z: x * y + z * 0.5), Box.unit(3)),
    ],
)
def test_one_two_and_three_dimensions_are_proved_with_intervals(target: Target, box: Box) -> None:
    found = approximate_on_box(target, box, epsilon=0.4)
    assert largest_error(target, box, found.network) <= found.certified_error <= 0.4
    assert "asked for 0.4" in str(found)


def test_more_than_three_dimensions_are_refused_with_the_grid_they_need() -> None:
    target = LipschitzFunction(lambda *x: sum(x), 2.0)
    with pytest.raises(ConstructionError, match=r"at most 3 dimensions, got 4: .* about .* cells"):
        approximate_on_box(target, Box.unit(4), epsilon=0.1)


def test_a_grid_that_is_too_large_is_refused() -> None:
    with pytest.raises(TooLargeError, match=r"over the limit of 100"):
        approximate_on_box(SMOOTH, Box.unit(2), epsilon=0.1, max_cells=100)


def test_functions_that_exponentials_do_not_reach_are_refused() -> None:
    wild = IntervalFunction(lambda x: sin(200 * x))
    with pytest.raises(ConstructionError, match=r"25 exponentials are still .* more than 0.025"):
        approximate_on_box(wild, Box.unit(1), epsilon=0.1)


def test_networks_that_would_be_too_wide_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rankscope.constructions.approximation.MAX_UNITS", 10)
    with pytest.raises(TooLargeError, match=r"over the limit of 10"):
        approximate_on_box(SMOOTH, Box.unit(2), epsilon=0.3)


def test_a_bound_that_stays_above_epsilon_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rankscope.constructions.approximation._bound", lambda *_: 0.5)
    with pytest.raises(ConstructionError, match=r"within 0.5 of the function .* below epsilon 0.3"):
        approximate_on_box(SMOOTH, Box.unit(2), epsilon=0.3)


def test_epsilon_must_be_positive() -> None:
    with pytest.raises(ConstructionError, match=r"epsilon must be positive, got 0.0"):
        approximate_on_box(SMOOTH, Box.unit(2), epsilon=0.0)
