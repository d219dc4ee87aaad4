"""What a command answers to machines, and the one line with which it refuses."""

import json
from typing import Any

import pytest

from rankscope.cli.main import main


def answer_of(command: str, capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, Any]:
    code = main([command, *options, "--json"])
    captured = capsys.readouterr()
    assert code == 0, captured.err
    document: dict[str, Any] = json.loads(captured.out)
    return document


def refusal_of(command: str, capsys: pytest.CaptureFixture[str], *options: str) -> str:
    assert main([command, *options]) == 2
    captured = capsys.readouterr()
    assert not captured.out
    (line,) = captured.err.strip().splitlines()
    return line
