"""The commands of the README and of the pages for users are run, and must print what is shown."""

import re
import shlex
from pathlib import Path

import pytest

from rankscope.cli.main import main

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
PAGES = sorted((ROOT / "docs").rglob("*.md"))
# Run elsewhere: make and pip by the build, the page by its own tests, the example by its test.
OTHER_COMMANDS = {
    "make demo",
    "make test",
    'pip install -e ".[draw,open]"',
    "rankscope open smollm2/",
    "python -m examples.split_trained_models FOLDER --out docs/pictures",
}


def sessions(page: Path) -> list[tuple[str, str]]:
    text = re.sub(r"^    ", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    blocks = re.findall(r"```console\n(.*?)```", text, re.DOTALL)
    found = []
    for block in blocks:
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            found.append((command.split("  #")[0].strip(), output.strip()))
    return found


SESSIONS = sessions(README)


def test_the_two_make_commands_come_first() -> None:
    assert [command for command, _ in SESSIONS[:2]] == ["make demo", "make test"]


def test_every_command_is_known_to_be_run() -> None:
    for page in (README, *PAGES):
        for command, _ in sessions(page):
            assert command in OTHER_COMMANDS or command.startswith("rankscope "), command


def matches(printed: list[str], shown: list[str]) -> bool:
    """Whether the lines are the same; a shown line … stands for any lines."""
    if not shown:
        return not printed
    if shown[0] == "…":
        return any(matches(printed[start:], shown[1:]) for start in range(len(printed) + 1))
    return bool(printed) and printed[0] == shown[0] and matches(printed[1:], shown[1:])


@pytest.mark.slow
@pytest.mark.parametrize(
    "page", [page for page in (README, *PAGES) if sessions(page)], ids=lambda page: page.stem
)
def test_the_commands_print_what_the_page_shows(
    page: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    for command, output in sessions(page):  # in one folder: one may read what another wrote
        if command in OTHER_COMMANDS:
            continue
        assert main(shlex.split(command)[1:]) == 0, command
        printed = [line.rstrip() for line in capsys.readouterr().out.strip().splitlines()]
        assert matches(printed, [line.rstrip() for line in output.splitlines()]), command


def test_the_readme_is_short() -> None:
    assert len(README.read_text(encoding="utf-8").splitlines()) <= 150
