import json
import math

from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.auditing.page.text import asset, embedded_json, fill, shortened


@settings(deadline=None)
@given(st.text())
def test_any_text_survives_and_cannot_end_the_script(text: str) -> None:
    written = embedded_json({"name": text})
    assert json.loads(written) == {"name": text}
    assert "<" not in written


def test_lone_surrogates_become_replacement_characters() -> None:
    embedded_json("\ud800").encode("utf-8")


def test_line_separators_of_scripts_are_escaped() -> None:
    assert embedded_json("\u2028\u2029") == '"\\u2028\\u2029"'


def test_numbers_that_json_lacks_become_null_at_any_depth() -> None:
    value = {"a": [math.nan, (math.inf, 1.5)], "b": {"c": -math.inf}}
    assert json.loads(embedded_json(value)) == {"a": [None, [None, 1.5]], "b": {"c": None}}


def test_every_place_is_filled_once() -> None:
    assert fill("@a@ @b@ user@host", {"a": "@b@", "b": "2"}) == "@b@ 2 user@host"


@settings(deadline=None)
@given(st.floats(-1e300, 1e300, allow_subnormal=False))
def test_short_numbers_are_close(value: float) -> None:
    (found,) = shortened([value])
    assert found is not None
    assert math.isclose(found, value, rel_tol=5.1e-4)


def test_assets_are_part_of_the_package() -> None:
    assert asset("audit.html").startswith("<!doctype html>")
