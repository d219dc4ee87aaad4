import json
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.auditing.sources import documents
from rankscope.auditing.sources.documents import parse_document, read_document
from rankscope.errors import ModelFileError


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"{", "not usable JSON: Expecting property name"),
        (b"[1]", "here holds a list; wanted a JSON object"),
        (b"null", "here holds a NoneType; wanted a JSON object"),
        (b'{"a": 1, "a": 2}', "the key 'a' stands twice in one object"),
        (b'{"b": {"a": 1, "a": 1}}', "the key 'a' stands twice in one object"),
        (b"\xff\xfe{}", "'utf-8' codec can't decode byte 0xff"),
        (b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nested too deeply"),
        (b'{"a": ' * 100_000 + b"1" + b"}" * 100_000, "nested too deeply"),
        (b'{"a": ' + b"9" * 5000 + b"}", "Exceeds the limit"),
    ],
)
def test_everything_but_one_plain_object_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(ModelFileError, match=message):
        parse_document(data, who="here")


def test_floats_and_infinities_of_configurations_are_read() -> None:
    text = b'{"epsilon": 1e-05, "limits": [0.0, Infinity]}'
    assert parse_document(text, who="here") == {"epsilon": 1e-05, "limits": [0.0, float("inf")]}


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
        file.truncate(documents._MAX_BYTES + 1)
    with pytest.raises(ModelFileError, match=r"has 64,000,001 bytes; .* at most 64,000,000"):
        read_document(tmp_path / "long.json")


def test_a_file_is_named_in_its_refusal(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes(b"{")
    with pytest.raises(ModelFileError, match=r"config\.json is not usable JSON"):
        read_document(tmp_path / "config.json")
