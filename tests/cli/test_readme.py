"""The README's commands are run, and must print what it shows."""

import re
import shlex
from pathlib import Path

import pytest

from rankscope.cli.main import main

README = Path(__file__).parents[2] / "README.md"
MAKE_COMMANDS = {"make demo", "make test"}


def sessions() -> list[tuple[str, str]]:
    blocks = re.findall(r"```console\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    found = []
    for block in blocks:
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            found.append((command.split("  #")[0].strip(), output.strip()))
    return found


SESSIONS = sessions()
COMMANDS = [session for session in SESSIONS if session[0].startswith("rankscope ")]


def test_the_two_make_commands_come_first() -> None:
    assert [command for command, _ in SESSIONS[:2]] == ["make demo", "make test"]


def test_every_command_is_known_to_be_run() -> None:
    assert COMMANDS
    for command, _ in SESSIONS:
        assert command in MAKE_COMMANDS or command.startswith("rankscope "), command


def matches(printed: list[str], shown: list[str]) -> bool:
    """Whether the lines are the same; a shown line … stands for any lines."""
    if not shown:
        return not printed
    if shown[0] == "…":
        return any(matches(printed[start:], shown[1:]) for start in range(len(printed) + 1))
    return bool(printed) and printed[0] == shown[0] and matches(printed[1:], shown[1:])


def test_the_commands_print_what_the_readme_shows(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "examples").symlink_to(README.parent / "examples")
    for command, output in COMMANDS:  # in one folder: a command may read what another wrote
        assert main(shlex.split(command)[1:]) == 0, command
        printed = [line.rstrip() for line in capsys.readouterr().out.strip().splitlines()]
        assert matches(printed, [line.rstrip() for line in output.splitlines()]), command


def test_the_readme_is_short() -> None:
    assert len(README.read_text(encoding="utf-8").splitlines()) <= 150
