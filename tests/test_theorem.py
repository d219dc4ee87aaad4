"""Bounds carry their theorem, compare with measurements and print themselves."""

import json
import math

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
