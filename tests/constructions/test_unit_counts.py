from fractions import Fraction
from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.constructions.strategies import piecewise_linear

from rankscope.constructions.piecewise_linear import PiecewiseLinear, fewest_units, subset_with_sum


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
    found = subset_with_sum(fractions, Fraction(total, 3))
    assert (found is not None) == some_sum(fractions, Fraction(total, 3))
    if found is not None:
        assert sum(fractions[place] for place in found) == Fraction(total, 3)
        assert len(set(found)) == len(found)


@settings(deadline=None)
@given(piecewise_linear())
def test_k_units_are_enough_exactly_when_minus_the_left_slope_is_a_sum_of_jumps(
    function: PiecewiseLinear,
) -> None:
    simple = function.simplified()
    count = len(simple.breakpoints)
    found = fewest_units(function)
    if count == 0:
        assert found.lower == found.upper == (2 if simple.slopes[0] else 0)
        return
    jumps = [Fraction(jump) for jump in simple.jumps.tolist()]
    attained = some_sum(jumps, -Fraction(float(simple.slopes[0])))
    assert found.lower == found.upper == count + (not attained)
    assert (found.left_facing is not None) == attained


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
        found = fewest_units(PiecewiseLinear.of(kinks, slopes))
        assert (found.lower, found.upper, found.was_searched) == (
            lower + searched,
            upper + searched,
            searched,
        )
    assert str(found) == "21 or 22 hidden units: more than 20 breakpoints"
