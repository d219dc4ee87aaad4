"""Bounds carry their theorem, compare with measurements and print themselves."""

import json
import math
from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.theorem import (
    LARGEST_INTEGER,
    LowerBound,
    Magnitude,
    Status,
    Theorem,
    UpperBound,
    log3,
)

THEOREM = Theorem("Someone (2001)", "Thm 3", "0101.00001", ("all weights",), Status.RECALLED)


@settings(deadline=None)
@given(bound=st.integers(0, 10**30), measured=st.integers(0, 10**30))
def test_a_bound_by_an_integer_compares_exactly(bound: int, measured: int) -> None:
    magnitude = Magnitude.of(bound)
    assert UpperBound(magnitude, THEOREM).holds_for(measured) == (measured <= bound)
    assert LowerBound(magnitude, THEOREM).holds_for(measured) == (measured >= bound)


@settings(deadline=None)
@given(power=st.integers(1, 200))
def test_a_bound_by_its_logarithm_allows_equality_and_refuses_one_percent_more(power: int) -> None:
    number = 3**power * 100
    magnitude = Magnitude(log3(number))
    assert UpperBound(magnitude, THEOREM).holds_for(number)
    assert not UpperBound(magnitude, THEOREM).holds_for(number * 101 // 100)
    assert LowerBound(magnitude, THEOREM).holds_for(number)
    assert not LowerBound(magnitude, THEOREM).holds_for(number * 99 // 100)
    assert UpperBound(magnitude, THEOREM).holds_for(0)
    assert not LowerBound(magnitude, THEOREM).holds_for(0)


def test_integers_beyond_four_thousand_digits_are_given_by_their_logarithm() -> None:
    assert Magnitude.of(LARGEST_INTEGER).value == LARGEST_INTEGER
    above = Magnitude.of(LARGEST_INTEGER + 1)
    assert above.value is None
    assert math.isclose(above.log3, 4000 * math.log(10) / math.log(3), rel_tol=1e-14)


def test_a_bound_prints_its_number_and_its_source() -> None:
    assert str(UpperBound(Magnitude.of(12345), THEOREM)) == (
        "separation rank <= 12,345    "
        "[Someone (2001), Thm 3, arXiv:0101.00001 (published, as recalled)]"
    )
    assert str(LowerBound(Magnitude(2.5), THEOREM)).startswith("separation rank >= 3^2.5    [")


def test_a_bound_is_plain_data_and_zero_has_no_logarithm() -> None:
    record = LowerBound(Magnitude.of(0), THEOREM).to_dict()
    assert json.loads(json.dumps(record, allow_nan=False)) == {
        "quantity": "separation rank",
        "relation": ">=",
        "value": 0,
        "log3": None,
        "theorem": {
            "citation": "Someone (2001)",
            "label": "Thm 3",
            "arxiv": "0101.00001",
            "assumptions": ["all weights"],
            "status": "published, as recalled",
        },
    }


def printed_logarithm(text: str) -> Fraction:
    return Fraction(text.removeprefix("3^"))


@settings(deadline=None)
@given(logarithm=st.floats(1e-3, 1e15))
def test_what_is_printed_is_rounded_outwards(logarithm: float) -> None:
    magnitude = Magnitude(logarithm)
    assert printed_logarithm(UpperBound(magnitude, THEOREM).number) >= Fraction(logarithm)
    assert printed_logarithm(LowerBound(magnitude, THEOREM).number) <= Fraction(logarithm)
    assert str(magnitude).startswith("about 3^")


def test_an_upper_bound_is_never_printed_below_the_proved_one() -> None:
    magnitude = Magnitude(25069.0085)
    assert UpperBound(magnitude, THEOREM).number == "3^25069.1"
    assert LowerBound(magnitude, THEOREM).number == "3^25069"


@settings(deadline=None)
@given(logarithm=st.floats(0, 30))
def test_integers_from_logarithms_hold_as_well(logarithm: float) -> None:
    upper, lower = (kind(Magnitude(logarithm), THEOREM) for kind in (UpperBound, LowerBound))
    assert upper.integer is not None
    assert lower.integer is not None
    exact = 3**logarithm
    assert upper.integer + 1 > exact > lower.integer - 1
    assert UpperBound(Magnitude(31.0), THEOREM).integer is None


@settings(deadline=None)
@given(first=st.integers(0, 10**60), second=st.integers(0, 10**60), power=st.integers(0, 60))
def test_magnitudes_multiply_and_compare_as_integers(first: int, second: int, power: int) -> None:
    one, other = Magnitude.of(first), Magnitude.of(second)
    assert (one * other).value == first * second
    assert one.is_below(other) == (first < second)
    assert Magnitude.of_power(first, power).value == first**power


def test_a_power_beyond_every_float_is_known_by_the_logarithm_of_its_logarithm() -> None:
    huge = Magnitude.of_power(9, 3**2000)
    assert huge.log3 == math.inf
    assert huge.log3_of_log3 is not None
    assert math.isclose(huge.log3_of_log3, 2000 + log3(2), rel_tol=1e-12)
    assert UpperBound(huge, THEOREM).number == "3^(3^2000.64)"
    assert UpperBound(huge, THEOREM).to_dict()["log3"] is None
    assert UpperBound(huge, THEOREM).to_dict()["log3_of_log3"] == huge.log3_of_log3
    assert UpperBound(huge, THEOREM).outward_log3 is None
    assert UpperBound(huge, THEOREM).holds_for(10**100)
    assert Magnitude.of(10**50).is_below(huge)
    assert huge.is_below(huge * huge)
    assert (huge * Magnitude.of(0)).value == 0


def test_long_integers_are_printed_as_powers() -> None:
    assert str(Magnitude.of(10**40)) == f"{10**40:,}"
    assert str(Magnitude.of(3**100)) == "about 3^100"
    assert UpperBound(Magnitude.of(3**100 + 1), THEOREM).number == "3^100.001"
    assert LowerBound(Magnitude.of(3**100 - 1), THEOREM).number == "3^99.9999"
