from pathlib import Path

import pytest

from rankscope.errors import OutputError
from rankscope.lab.constructions import (
    Topic,
    TopicResult,
    Value,
    format_value,
    lecture_theorem,
    recalled_theorem,
)
from rankscope.theorem import Theorem


def write(path: Path) -> None:
    path.write_text("picture")


SHOWN = TopicResult({"number": 1}, pictures={"first": write, "second": write})
TOPIC = Topic("name", "Title", "Statement.", Theorem("Nobody", "1", None, ()), lambda: SHOWN)


def test_pictures_are_named_after_topic_and_picture(tmp_path: Path) -> None:
    paths = TOPIC.draw(SHOWN, tmp_path / "new", ending=".txt")
    assert paths == {name: tmp_path / "new" / f"name-{name}.txt" for name in ("first", "second")}
    assert all(path.read_text() == "picture" for path in paths.values())


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(OutputError, match=r"Cannot make the folder '.*file': File exists"):
        TOPIC.draw(SHOWN, tmp_path / "file")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (False, "no"),
        (1234567, "1,234,567"),
        (-0.0, "0"),
        (123456.0, "1.235e+05"),
        ("1/32", "1/32"),
        ([0.5, 2.0], "0.5, 2"),
        ([], ""),
    ],
)
def test_values_are_written_with_four_digits(value: Value, text: str) -> None:
    assert format_value(value) == text


def test_references_say_where_they_are_from() -> None:
    assert str(lecture_theorem("Lemma 2.1")).startswith("Diehl (2023)")
    result = recalled_theorem("Ba, Kiros & Hinton (2016)", "equation (3)", "1607.06450", "a thing")
    assert str(result).endswith("arXiv:1607.06450 (published, as recalled)")
    assert result.assumptions == ("a thing",)
