import math
from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankscope.diagrams.parts import Index, IndexKind
from rankscope.diagrams.records import (
    BOOLEAN,
    INTEGER,
    NUMBER,
    NUMBER_OR_TEXT,
    TEXT,
    choice,
    optional,
    pair,
    record,
    sequence,
)
from rankscope.errors import DiagramError

LIMIT = 2**63 - 1


@given(value=st.floats(allow_nan=False))
def test_numbers_return_exactly(value: float) -> None:
    assert NUMBER.read(NUMBER.write(value), "here") == value
    assert NUMBER_OR_TEXT.read(NUMBER_OR_TEXT.write(value), "here") == value


def test_a_number_that_is_not_one_returns_as_such() -> None:
    assert NUMBER.write(math.nan) == {"float": "nan"}
    assert math.isnan(NUMBER.read({"float": "nan"}, "here"))


@given(value=st.text())
def test_strings_are_never_taken_for_numbers(value: str) -> None:
    assert NUMBER_OR_TEXT.read(NUMBER_OR_TEXT.write(value), "here") == value


@pytest.mark.parametrize(
    ("codec", "data", "message"),
    [
        (TEXT, 5, r"at here: wanted a string, got a int\."),
        (TEXT, None, r"wanted a string, got None"),
        (BOOLEAN, 1, r"wanted true or false, got a int"),
        (INTEGER, True, r"wanted an integer, got True"),
        (INTEGER, 1.5, r"wanted an integer, got a float"),
        (INTEGER, LIMIT + 1, rf"the integer is beyond ±{LIMIT}"),
        pytest.param(INTEGER, -(10**5000), rf"the integer is beyond ±{LIMIT}", id="long integer"),
        (NUMBER, "5", r"wanted a finite number, got '5'"),
        (NUMBER, True, r"wanted a finite number, got True"),
        (NUMBER, math.inf, r"wanted a finite number, got a float"),
        (NUMBER, 10**400, rf"the integer is beyond ±{LIMIT}"),
        (NUMBER, {"float": "huge"}, r"at here\.float: wanted 'inf', '-inf' or 'nan', got 'huge'"),
        (NUMBER, {"float": "inf", "int": 1}, r"wanted a finite number, got a dict"),
        (sequence(TEXT), "abc", r"wanted a list, got 'abc'"),
        (sequence(TEXT), ["a", 7], r"at here\[1\]: wanted a string, got a int"),
        (pair(TEXT, TEXT), 3, r"wanted a list of two, got a int"),
        (pair(TEXT, TEXT), ["a", "b", "c"], r"wanted a list of two, got 3\."),
        (choice(IndexKind), "color", r"wanted one of generic, feature, .*, got 'color'"),
        (choice(IndexKind), ["rank"], r"wanted one of .*, got a list"),
        (optional(TEXT), 5, r"wanted a string, got a int"),
        (TEXT, ["x" * 500], r"got a list"),
        (INTEGER, "x" * 500, r"got 'x{75}…\."),
    ],
)
def test_what_does_not_belong_is_refused_with_its_place(
    codec: object, data: object, message: str
) -> None:
    with pytest.raises(DiagramError, match=message):
        codec.read(data, "here")  # type: ignore[attr-defined]


INDEX = record(
    Index,
    {
        "name": TEXT,
        "size": optional(INTEGER),
        "symbol": optional(TEXT),
        "kind": choice(IndexKind),
        "label": optional(TEXT),
    },
)


def test_fields_with_a_default_may_be_left_out() -> None:
    assert INDEX.read({"name": "i"}, "here") == Index("i")
    assert list(INDEX.write(Index("i"))) == [field.name for field in fields(Index)]


def test_an_unknown_key_is_refused_by_name() -> None:
    with pytest.raises(DiagramError, match=r"at here: wanted only the keys name, .*, got 'sise'"):
        INDEX.read({"name": "i", "sise": 2}, "here")


def test_a_missing_key_is_named() -> None:
    with pytest.raises(DiagramError, match=r"at here: the keys name are missing"):
        INDEX.read({"size": 2}, "here")


def test_an_object_must_be_one() -> None:
    with pytest.raises(DiagramError, match=r"at here: wanted an object, got a list"):
        INDEX.read([], "here")
