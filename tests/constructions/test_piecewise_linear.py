import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.constructions.strategies import QUARTERS, piecewise_linear

from rankscope.constructions.piecewise_linear import PiecewiseLinear
from rankscope.errors import ConstructionError


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
    found = PiecewiseLinear.through(points, heights)
    numpy.testing.assert_allclose(found(points), heights, atol=1e-12)
    assert len(found.breakpoints) == len(points) - 2


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
