from pathlib import Path

import pytest

from rankscope.errors import CertificateError
from rankscope.separation.certificates.strict_json import (
    parse_json,
    read_integer,
    read_integers,
    read_json,
    read_list,
    read_object,
    read_text,
    read_values,
)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "no certificate: Expecting value"),
        (b'{"a": 1', "no certificate: Expecting ',' delimiter"),
        (b"[1.5]", "only integers are allowed, got 1.5"),
        (b"[1e3]", "only integers are allowed, got 1e3"),
        (b"[NaN]", "only integers are allowed, got NaN"),
        (b"[-Infinity]", "only integers are allowed, got -Infinity"),
        (b'{"a": 1, "a": 2}', "an object has 2 keys, 1 of them different"),
        (b"\xff\xfe", "no certificate: 'utf-8' codec can't decode"),
        (b"\xef\xbb\xbf{}", "no certificate: Unexpected UTF-8 BOM"),
        (b"[" * 10**6, "nested too deeply"),
        (b"9" * 5000, "no certificate: Exceeds the limit"),
    ],
)
def test_everything_but_plain_strict_json_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(CertificateError, match=message):
        parse_json(data, name="here")


def test_a_file_is_read_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b'{"a": [1, true, null, "x"]}')
    assert read_json(tmp_path / "file", max_bytes=27) == {"a": [1, True, None, "x"]}


def test_a_file_that_is_too_long_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b" " * 11)
    with pytest.raises(CertificateError, match="longer than 10 bytes"):
        read_json(tmp_path / "file", max_bytes=10)


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CertificateError, match="wanted a file, got something else"):
        read_json(tmp_path, max_bytes=10)
    with pytest.raises(CertificateError, match="wanted a file, got something else"):
        read_json("/dev/zero", max_bytes=10)
    with pytest.raises(CertificateError, match=r"Cannot read .*absent': No such file"):
        read_json(tmp_path / "absent", max_bytes=10)
    with pytest.raises(CertificateError, match=r"Cannot read .*null"):
        read_json("a\x00b", max_bytes=10)


@pytest.mark.parametrize("data", [True, 1.0, "3", None, 2, 8, 10**30])
def test_integers_are_integers_in_their_range(data: object) -> None:
    with pytest.raises(CertificateError, match=r"at top: wanted an integer in 3\.\.7, got"):
        read_integer(data, "top", low=3, high=7)


def test_integers_of_a_list_ascend() -> None:
    assert read_integers([0, 4], "top", at_most=2, high=4) == (0, 4)
    for wrong in ([4, 0], [1, 1]):
        with pytest.raises(CertificateError, match="at top: wanted numbers in ascending order"):
            read_integers(wrong, "top", at_most=2, high=4)
    with pytest.raises(CertificateError, match=r"at top\[1\]: wanted an integer in 0\.\.4, got 5"):
        read_integers([0, 5], "top", at_most=2, high=4)


def test_lists_and_texts_are_lists_and_texts() -> None:
    with pytest.raises(CertificateError, match="wanted a list of at most 2, got a list of 3"):
        read_list([1, 2, 3], "top", at_most=2)
    with pytest.raises(CertificateError, match="wanted a list of at most 2, got a dict"):
        read_list({}, "top", at_most=2)
    with pytest.raises(CertificateError, match="wanted a string, got 1"):
        read_text(1, "top")


def test_objects_have_exactly_their_keys() -> None:
    with pytest.raises(CertificateError, match="wanted an object with a, b, got a list of 0"):
        read_object([], "top", ("a", "b"))
    with pytest.raises(CertificateError, match="wanted only the keys a, b, got 'c'"):
        read_object({"a": 1, "b": 2, "c": 3}, "top", ("a", "b"))
    with pytest.raises(CertificateError, match="at top: b is missing"):
        read_object({"a": 1}, "top", ("a", "b"))


def test_values_are_named_by_their_place_even_if_the_name_cannot_be_printed() -> None:
    assert read_values({"a": "x"}, "top", read_text, at_most=1) == {"a": "x"}
    with pytest.raises(CertificateError, match=r"at top\.\\ud800: wanted a string, got 1"):
        read_values({"\ud800": 1}, "top", read_text, at_most=1)
    with pytest.raises(CertificateError, match="wanted an object with at most 1 keys, got a dict"):
        read_values({"a": "x", "b": "y"}, "top", read_text, at_most=1)


def test_long_things_are_shown_short() -> None:
    with pytest.raises(CertificateError) as caught:
        read_integer("x" * 10**6, "top", low=0, high=1)
    assert len(str(caught.value)) < 200
