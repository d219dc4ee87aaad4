"""Documents from strangers: what is not exactly as it should be is refused with its place."""

import json
import math
import pickle
import sys
from contextlib import suppress
from dataclasses import dataclass, fields
from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.errors import CertificateError, DocumentError, ModelFileError
from rankscope.strict_json import (
    MAX_BYTES,
    MAX_DEPTH,
    Anything,
    Choice,
    Converted,
    Either,
    Exactly,
    Flag,
    Integer,
    ListOf,
    Number,
    Numbers,
    Object,
    Optional,
    Pair,
    Reader,
    Record,
    Text,
    Values,
    inside,
    parse_document,
    read_as,
    read_document,
    shown,
)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "not usable JSON: Expecting value"),
        (b"{", "not usable JSON: Expecting property name"),
        (b'{"a": 1', "not usable JSON: Expecting ',' delimiter"),
        (b"[1]", "here holds a list of 1; wanted a JSON object"),
        (b"null", "here holds None; wanted a JSON object"),
        (b'{"a": 1, "b": 0, "a": 2}', "the key 'a' stands twice in one object, at top"),
        (b'{"b": [0, {"a": 1, "a": 1}]}', r"the key 'a' stands twice in one object, at b\[1\]"),
        (b"\xff\xfe{}", "'utf-8' codec can't decode byte 0xff"),
        (b"\xef\xbb\xbf{}", "Unexpected UTF-8 BOM"),
        (b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nested too deeply, more than 100"),
        (b'{"a": ' * 100_000 + b"1" + b"}" * 100_000, "nested too deeply, more than 100"),
        (b'{"a": ' * 101 + b"1" + b"}" * 101, "nested too deeply, more than 100"),
        (b'{"a": ' + b"9" * 5000 + b"}", "an integer has 5,000 digits, at most 640 are read"),
        (b'{"a": 1e999}', "only finite numbers are allowed, got 1e999"),
        (b'{"a": NaN}', "only finite numbers are allowed, got NaN"),
        (b'{"a": [-Infinity]}', "only finite numbers are allowed, got -Infinity"),
    ],
)
def test_everything_but_one_strict_object_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(CertificateError, match=message) as caught:
        parse_document(data, who="here", error=CertificateError)
    assert "\n" not in str(caught.value)


def test_an_object_may_be_nested_as_deep_as_is_said() -> None:
    document: Any = parse_document(b'{"a": ' * MAX_DEPTH + b"1" + b"}" * MAX_DEPTH, who="here")
    for _ in range(MAX_DEPTH):
        document = document["a"]
    assert document == 1


def test_long_integers_are_read_whatever_the_limit_of_the_interpreter_is() -> None:
    limit = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(640)
    try:
        assert parse_document(b'{"a": ' + b"9" * 640 + b"}", who="here") == {"a": 10**640 - 1}
    finally:
        sys.set_int_max_str_digits(limit)


@pytest.mark.parametrize("text", ["1.5", "1e3", "NaN", "-Infinity"])
def test_a_document_of_integers_holds_no_other_number(text: str) -> None:
    with pytest.raises(ModelFileError, match=f"only integers are allowed, got {text}"):
        parse_document(f'{{"a": [{text}]}}'.encode(), who="here", numbers=Numbers.INTEGERS)


def test_infinities_are_read_where_they_are_allowed() -> None:
    text = b'{"epsilon": 1e-05, "limits": [0.0, Infinity, 1e999]}'
    document = parse_document(text, who="here", numbers=Numbers.ANY)
    assert document == {"epsilon": 1e-05, "limits": [0.0, math.inf, math.inf]}


@settings(deadline=None)
@given(st.dictionaries(st.text(), st.lists(st.integers() | st.booleans() | st.none() | st.text())))
def test_objects_are_read_as_they_were_written(document: dict[str, object]) -> None:
    assert parse_document(json.dumps(document).encode(), who="here") == document


@settings(deadline=None)
@given(st.binary(max_size=40))
def test_bytes_are_an_object_or_are_refused(data: bytes) -> None:
    with suppress(ModelFileError):
        assert isinstance(parse_document(data, who="here"), dict)


def test_a_file_that_is_too_long_is_refused_before_it_is_read(tmp_path: Path) -> None:
    with (tmp_path / "long.json").open("wb") as file:
        file.truncate(MAX_BYTES + 1)
    with pytest.raises(ModelFileError, match=r"has 64,000,001 bytes; .* at most 64,000,000"):
        read_document(tmp_path / "long.json")
    (tmp_path / "file").write_bytes(b'{"a": 1}')
    assert read_document(tmp_path / "file", max_bytes=8) == {"a": 1}
    with pytest.raises(ModelFileError, match=r"has 8 bytes; .* at most 7"):
        read_document(tmp_path / "file", max_bytes=7)


def test_a_file_is_named_in_its_refusal(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes(b"{")
    with pytest.raises(ModelFileError, match=r"config\.json is not usable JSON"):
        read_document(tmp_path / "config.json")
    with pytest.raises(CertificateError, match=r"Cannot read .*absent': No such file"):
        read_document(tmp_path / "absent", error=CertificateError)
    with pytest.raises(CertificateError, match=r"Cannot read .*null"):
        read_document("a\x00b", error=CertificateError)
    with pytest.raises(CertificateError, match="wanted a file, got something else"):
        read_document("/dev/zero", error=CertificateError)


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True)
class Point:
    x: int
    name: str | None = None


POINT = Record(Point, {"x": Integer(0, 9), "name": Optional(Text())})
LARGE = 10**5000  # longer than Python prints


@pytest.mark.parametrize(
    ("reader", "good", "value"),
    [
        (Integer(3, 7), 7, 7),
        pytest.param(Integer(), -LARGE, -LARGE, id="long integer"),
        (Number(), 3, 3.0),
        (Flag(), False, False),
        (Text(), "", ""),
        (Exactly(1), 1, 1),
        (Choice(tuple(Colour)), "blue", Colour.BLUE),
        (Optional(Integer()), None, None),
        (Either(Flag(), ListOf(Integer())), [1, 2], (1, 2)),
        (ListOf(Integer(), 2), (1, 2), (1, 2)),
        (Pair(Text(), Integer()), ["a", 1], ("a", 1)),
        (Anything(), [{}], [{}]),
        (Converted(ListOf(Integer()), sum), [1, 2], 3),
        (Values(Text(), 1), {"a": "x"}, {"a": "x"}),
        (Object({"a": Flag(), "b": Flag()}, optional=("b",)), {"a": True}, {"a": True}),
        (POINT, {"x": 1}, Point(1)),
        (POINT, {"x": 1, "name": "p"}, Point(1, "p")),
    ],
)
def test_what_fits_is_read(reader: Reader[Any], good: object, value: object) -> None:
    read = reader.read(good)
    assert read == value
    assert type(read) is type(value)
    assert reader.fits(good)


@pytest.mark.parametrize(
    ("reader", "data", "message"),
    [
        (Integer(3, 7), True, "at top: wanted an integer in 3..7, got True"),
        (Integer(3, 7), 7.0, "at top: wanted an integer in 3..7, got 7.0"),
        (Integer(3, 7), "3", "at top: wanted an integer in 3..7, got '3'"),
        (Integer(3, 7), None, "at top: wanted an integer in 3..7, got None"),
        (Integer(3, 7), 2, "at top: wanted an integer in 3..7, got 2"),
        (Integer(3, 7), 8, "at top: wanted an integer in 3..7, got 8"),
        pytest.param(Integer(3, 7), LARGE, "got an integer of 16,610 bits", id="long integer"),
        (Integer(1), 0, "wanted an integer from 1, got 0"),
        (Integer(), [], "wanted an integer, got a list of 0"),
        (Number(), "5", "wanted a finite number, got '5'"),
        (Number(), True, "wanted a finite number, got True"),
        (Number(), math.inf, "wanted a finite number, got inf"),
        pytest.param(Number(), LARGE, "got an integer of 16,610 bits", id="no float"),
        (Flag(), 1, "wanted true or false, got 1"),
        (Text(), 5, "wanted a string, got 5"),
        (Text(), b"5", "wanted a string, got a bytes"),
        (Exactly(1), True, "wanted 1, got True"),
        (Exactly("name"), "nam", "wanted name, got 'nam'"),
        (Choice(tuple(Colour)), "green", "wanted one of red, blue, got 'green'"),
        (Choice(("red", "blue")), ["red"], "wanted one of red, blue, got a list of 1"),
        (Optional(Text()), 5, "wanted a string or null, got 5"),
        (Optional(POINT), {"x": 10}, "at x: wanted an integer in 0..9, got 10"),
        (Either(Flag(), Integer(2, 4)), 1, "wanted true or false, or an integer in 2..4, got 1"),
        (ListOf(Text()), "abc", "wanted a list, each a string, got 'abc'"),
        (ListOf(Text()), ["a", 7], "at [1]: wanted a string, got 7"),
        (
            ListOf(Text(), 2),
            ["a"] * 3,
            "wanted a list of at most 2, each a string, got a list of 3",
        ),
        (Pair(Text(), Text()), 3, "wanted a list of two, got 3"),
        (Pair(Text(), Text()), ["a", "b", "c"], "wanted a list of two, got a list of 3"),
        (Pair(Text(), Text()), ["a", 1], "at [1]: wanted a string, got 1"),
        (
            ListOf(Converted(Text(), lambda text: inside("x", Integer().read, text))),
            ["a"],
            "at [0].x: wanted an integer, got 'a'",
        ),
        (Converted(Integer(), abs), "a", "wanted an integer, got 'a'"),
        (Values(Text(), 1), {"\ud800": 1}, r"at \ud800: wanted a string, got 1"),
        (
            Values(Text(), 1),
            {"a": "x", "b": "y"},
            "wanted an object with at most 1 keys, got an object with 2 keys",
        ),
        (POINT, [], "wanted an object with x, name, got a list of 0"),
        (POINT, {"x": 1, "y": 2}, "at top: wanted only the keys x, name, got 'y'"),
        (POINT, {"name": "p"}, "at top: x is missing"),
        (Object({"a": Text(), "b": Text()}), {}, "at top: a, b are missing"),
        (
            Object({"points": ListOf(POINT)}),
            {"points": [{"x": 1}, {"x": 1, "name": 7}]},
            "at points[1].name: wanted a string or null, got 7",
        ),
    ],
)
def test_what_does_not_belong_is_refused_with_its_place(
    reader: Reader[Any], data: object, message: str
) -> None:
    with pytest.raises(CertificateError) as caught:
        read_as(reader, data, who="File", error=CertificateError)
    assert str(caught.value).startswith("File, at ")
    assert str(caught.value).endswith(f"{message}.")
    assert not reader.fits(data)


def test_records_are_written_as_they_are_read() -> None:
    for point in (Point(3), Point(0, "origin")):
        assert list(POINT.write(point)) == [field.name for field in fields(Point)]
        assert POINT.read(json.loads(json.dumps(POINT.write(point)))) == point
    both = Pair(ListOf(Choice(tuple(Colour))), Optional(POINT))
    for value in (((Colour.RED,), None), ((), Point(1))):
        assert both.read(json.loads(json.dumps(both.write(value)))) == value


def test_what_is_converted_is_written_by_the_inverse() -> None:
    doubled = ListOf(Converted(Integer(), lambda value: 2 * value, lambda value: value // 2))
    assert doubled.read([1, 2]) == (2, 4)
    assert doubled.write((2, 4)) == [1, 2]


def test_long_and_strange_things_are_shown_short_and_in_one_line() -> None:
    assert shown("x" * 10**6) == f"'{'x' * 58}…"
    assert shown("a\nb") == r"'a\nb'"
    assert shown("\ud800") == r"'\ud800'"
    with pytest.raises(DocumentError) as caught:
        Integer().read("\n" * 10**6)
    assert len(str(caught.value)) < 200
    assert "\n" not in str(caught.value)


def test_a_refusal_can_be_sent_from_a_worker() -> None:
    with pytest.raises(DocumentError) as caught:
        ListOf(Integer()).read(["x"])
    copy = pickle.loads(pickle.dumps(caught.value))
    assert (str(copy), copy.place) == (str(caught.value), (0,))
