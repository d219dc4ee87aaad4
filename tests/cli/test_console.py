import io
import json
import sys
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.cli import console


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_columns_are_aligned(capsys: pytest.CaptureFixture[str]) -> None:
    console.print_columns([("a", "1", "x"), ("long", "1,000", "")], numbers=(1,))
    assert capsys.readouterr().out == "a         1  x\nlong  1,000\n"


def test_json_is_one_document_without_infinities(capsys: pytest.CaptureFixture[str]) -> None:
    console.print_json({"x": 1})
    assert json.loads(capsys.readouterr().out) == {"x": 1}
    with pytest.raises(ValueError, match="not JSON compliant"):
        console.print_json({"x": float("nan")})


def test_a_complaint_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    console.print_error("first\n  second")
    assert capsys.readouterr().err == "rankscope: first second\n"


def test_progress_is_shown_to_a_terminal_only(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with console.working("thinking"):
        pass
    assert capsys.readouterr().err == ""
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    with console.working("thinking"):
        pass
    assert "thinking" in terminal.getvalue()


def test_a_complaint_obeys_nobody_and_ends(capsys: pytest.CaptureFixture[str]) -> None:
    console.print_error("\x1b[2J\x9b2J" + "a" * 10**6)
    error = capsys.readouterr().err
    assert error.startswith("rankscope: \\x1b[2J\\x9b2Jaaa")
    assert len(error) < 5000


@settings(max_examples=40, deadline=None)
@given(text=st.text())
def test_json_shows_every_character_or_writes_it_out(text: str) -> None:
    written = console.to_json({text: text})
    assert json.loads(written) == {text: text}
    assert not any(unicodedata.category(c) in ("Cs", "Zl", "Zp") for c in written)
    assert not any(unicodedata.category(c) == "Cc" and c != "\n" for c in written)


@settings(max_examples=40, deadline=None)
@given(text=st.text())
def test_what_is_printed_reaches_no_terminal_as_a_command(text: str) -> None:
    stream = io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stdout", stream)
        with console.inert_output():
            sys.stdout.write(text)
    assert all(c.isprintable() or c in "\n\t" or c.isspace() for c in stream.getvalue())
    assert "\x1b" not in stream.getvalue()


WORDS = st.lists(st.text("abcdefg", min_size=1, max_size=9), min_size=1, max_size=30).map(" ".join)


@settings(deadline=None)
@given(text=WORDS, width=st.integers(20, 90))
def test_nothing_is_wider_than_the_terminal_and_no_word_is_lost(text: str, width: int) -> None:
    printed = io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", str(width))
        patch.setattr("sys.stdout", printed)
        console.print_text(text, indent="  ")
        console.print_columns([("head", "1", text), (text, "12", "x")], numbers=(1,))
        console.print_severity("advice", text)
    lines = printed.getvalue().splitlines()
    narrowest = 2 * 12 + 2 + 2 * 2  # two texts as narrow as they get, a number, what is between
    assert max(map(len, lines)) <= max(width, narrowest)
    assert printed.getvalue().split().count(text.split()[0]) >= 1
    held = 4 * text.count("a") + "headadvice".count("a")
    assert sum(line.count("a") for line in lines) == held


def test_files_get_whole_lines(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    console.print_text("word " * 40)
    console.print_columns([("x" * 200, "1")])
    assert len(capsys.readouterr().out.splitlines()) == 2


def test_severity_has_a_colour_on_a_terminal_which_a_title_cannot_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    terminal = Terminal()
    monkeypatch.setattr("sys.stdout", terminal)
    with console.inert_output():
        console.print_severity("warning", "a title \x1b[2J")
    assert "\x1b[1;31m[warning]\x1b[0m a title" in terminal.getvalue()
    assert "\x1b[2J" not in terminal.getvalue()
    monkeypatch.setenv("NO_COLOR", "1")
    again = Terminal()
    monkeypatch.setattr("sys.stdout", again)
    console.print_severity("warning", "a title")
    assert again.getvalue() == "[warning] a title\n"


def test_names_are_broken_behind_dots_and_commands_go_on(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "24")
    console.print_columns([("model.layers.0.self_attn.q_proj.weight", "12"), ("x", "3")])
    printed = capsys.readouterr().out
    assert printed.splitlines()[0] == "model.layers.0.       12"
    assert all(len(line) <= 24 for line in printed.splitlines())
    assert "".join(line[:20].strip() for line in printed.splitlines()).startswith(
        "model.layers.0.self_attn.q_proj.weight"
    )
    command = "rankscope bounds attention --depth 2 --width 48"
    console.print_command(command, indent="  ")
    printed = capsys.readouterr().out
    assert all(len(line) <= 24 for line in printed.splitlines())
    assert " ".join(printed.replace("\\\n", " ").split()) == f"$ {command}"
