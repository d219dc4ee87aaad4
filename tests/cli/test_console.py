import io
import json

import pytest

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
