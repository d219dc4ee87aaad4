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


def test_the_commands_print_what_the_readme_shows(capsys: pytest.CaptureFixture[str]) -> None:
    for command, output in COMMANDS:  # in one folder: a command may read what another wrote
        assert main(shlex.split(command)[1:]) == 0, command
        printed = [line.rstrip() for line in capsys.readouterr().out.strip().splitlines()]
        assert printed == [line.rstrip() for line in output.splitlines()], command


def test_the_readme_is_short() -> None:
    assert len(README.read_text(encoding="utf-8").splitlines()) <= 150
