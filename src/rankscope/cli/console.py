"""Where output goes: numbers and paths to standard output, everything else to standard error."""

import itertools
import json
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from rankscope.errors import inert, printable
from rankscope.progress import Progress, Report, ignore

_LONGEST_ERROR = 4000  # characters
# What JSON lets through as it is although a terminal obeys it, or nobody sees it.
_NOT_SHOWN = re.compile(
    r"[\x7f-\x9f\xad\u0600-\u0605\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    r"\ud800-\udfff\ufeff\ufff9-\ufffb]"
)


class _InertOutput:
    """Standard output on which nothing that a stranger named is obeyed by a terminal."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        is_plain = text.isprintable() or text == "\n"  # nearly always
        return int(self._stream.write(text if is_plain else inert(text, keep="\n\t")))

    def isatty(self) -> bool:
        return False  # so that nobody adds colours, which would be written out

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def inert_output() -> Iterator[None]:
    """Write out the control characters in everything that is printed meanwhile."""
    plain = sys.stdout
    sys.stdout = _InertOutput(plain)
    try:
        yield
    finally:
        sys.stdout = plain


def discard_output() -> None:
    """Discard all further output once the reader of standard output has closed it."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):  # it is no file, or closed already
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115 - to the end


def print_json(document: Mapping[str, object]) -> None:
    """Print one RFC 8259 document; NaN and infinity are refused, not printed."""
    print(to_json(document))


def to_json(document: Mapping[str, object]) -> str:
    """The text of one RFC 8259 document, indented.

    Raises:
        ValueError: if a number in it is not finite.
    """
    text = json.dumps(document, indent=2, allow_nan=False, ensure_ascii=False)
    return _NOT_SHOWN.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def columns() -> int | None:
    """The width of the terminal; None if nobody reads lines, and files get them whole.

    COLUMNS says it where there is no terminal.
    """
    stated = os.environ.get("COLUMNS", "")
    if stated.isdecimal() and int(stated) > 0:
        return int(stated)
    stream = _plain_output()
    return shutil.get_terminal_size().columns if stream.isatty() else None


def _plain_output() -> Any:
    return sys.stdout._stream if isinstance(sys.stdout, _InertOutput) else sys.stdout


def print_text(text: str, *, indent: str = "") -> None:
    """Print a paragraph, wrapped at the width of the terminal."""
    width = columns()
    if width is None or len(indent) + len(text) <= width:
        print(f"{indent}{text}")
        return
    for line in textwrap.wrap(
        text,
        max(width, len(indent) + _NARROWEST),
        initial_indent=indent,
        subsequent_indent=indent,
        break_on_hyphens=False,
        break_long_words=False,
    ):
        print(line)


def print_command(command: str, *, indent: str = "") -> None:
    """Print a command to copy; where it is wider than the terminal, in lines that go on."""
    width = columns()
    start = f"{indent}$ "
    if width is None or len(start) + len(command) <= width:
        print(f"{start}{command}")
        return
    further = " " * len(start) + "  "
    room = max(width, len(further) + _NARROWEST)
    lines = textwrap.wrap(
        f"{start}{command}",
        room - 2,
        subsequent_indent=further,
        break_on_hyphens=False,
        break_long_words=False,
        drop_whitespace=True,
    )
    print(" \\\n".join(lines))


def print_severity(severity: str, title: str) -> None:
    """Print a title with its severity before it, in a colour if a terminal shows it."""
    stream = _plain_output()
    is_coloured = stream.isatty() and "NO_COLOR" not in os.environ
    before, after = (f"\x1b[{_COLOURS.get(severity, '1')}m", "\x1b[0m") if is_coloured else ("", "")
    stream.write(before)
    print(f"[{severity}]", end="")
    stream.write(after)
    width = columns()
    room = _NARROWEST if width is None else max(_NARROWEST, width - len(severity) - 3)
    first, *others = [title] if width is None else textwrap.wrap(title, room) or [""]
    print(f" {first}")
    for line in others:
        print(f"  {line}")


def print_warning(message: str) -> None:
    """Say on standard error what nobody must overlook, red on a terminal; wrapped if it has one."""
    is_coloured = sys.stderr.isatty() and "NO_COLOR" not in os.environ
    before, after = (f"\x1b[{_COLOURS['warning']}m", "\x1b[0m") if is_coloured else ("", "")
    line = f"[warning] {printable(message, at_most=_LONGEST_ERROR)}"
    width = columns()
    lines = [line] if width is None else textwrap.wrap(line, max(width, _NARROWEST))
    print(f"{before}{chr(10).join(lines)}{after}", file=sys.stderr)


_COLOURS = {"warning": "1;31", "advice": "1;33", "note": "1;34"}  # red, yellow, blue
_NARROWEST = 12  # characters of a column or a paragraph, however narrow the terminal is


def print_columns(rows: Sequence[Sequence[str]], *, numbers: Collection[int] = ()) -> None:
    """Print aligned columns, those in `numbers` to the right; never cut.

    Where they are wider than the terminal, the widest texts are wrapped within their columns.
    """
    widths = _fitting([max(map(len, column)) for column in zip(*rows, strict=True)], numbers)
    for row in rows:
        cells = [
            _wrapped(cell, width) if len(cell) > width else [cell]
            for cell, width in zip(row, widths, strict=True)
        ]
        for lines in itertools.zip_longest(*cells, fillvalue=""):
            shown = [
                line.rjust(width) if column in numbers else line.ljust(width)
                for column, (line, width) in enumerate(zip(lines, widths, strict=True))
            ]
            print("  ".join(shown).rstrip())


def _wrapped(cell: str, width: int) -> list[str]:
    """A text in lines; a word that is too long is broken behind a dot, if it has one there."""
    lines: list[str] = []
    for line in textwrap.wrap(cell, width, break_on_hyphens=False, break_long_words=False):
        rest = line
        while len(rest) > width:
            place = max(rest.rfind(mark, 0, width) for mark in "./") + 1 or width
            lines.append(rest[:place])
            rest = rest[place:]
        lines.append(rest)
    return lines or [""]


def _fitting(widths: list[int], numbers: Collection[int]) -> list[int]:
    """Widths that fit the terminal; the widest column of text gives way first."""
    most = columns()
    texts = [place for place in range(len(widths)) if place not in numbers]
    while most is not None and texts and sum(widths) + 2 * (len(widths) - 1) > most:
        widest = max(texts, key=lambda place: widths[place])
        if widths[widest] <= _NARROWEST:
            break
        widths[widest] -= 1
    return widths


def print_error(message: str) -> None:
    """Say in one line what is wrong."""
    line = printable(" ".join(message.split()), at_most=_LONGEST_ERROR)
    print(f"rankscope: {line}", file=sys.stderr)


@contextmanager
def working(what: str) -> Iterator[None]:
    """Show a moving bar on standard error while something runs; quiet when nobody watches."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        progress.add_task(what, total=None)
        yield


@contextmanager
def reporting(what: str) -> Iterator[Report]:
    """Give a callback that draws a bar on standard error; quiet when nobody watches."""
    if not sys.stderr.isatty():
        yield ignore
        return
    from rich import progress as bars
    from rich.console import Console

    columns = (
        bars.TextColumn("{task.description}", markup=False),
        bars.BarColumn(),
        bars.TextColumn("{task.percentage:>3.0f}%"),
        bars.TimeElapsedColumn(),
        bars.TimeRemainingColumn(),
    )
    with bars.Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None)

        def report(progress: Progress) -> None:
            text = printable(f"{what}: {progress.what}")
            bar.update(task, description=text, completed=progress.done, total=progress.total)

        yield report
