"""Where output goes: numbers and paths to standard output, everything else to standard error."""

import json
import os
import re
import sys
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
        return int(self._stream.write(inert(text, keep="\n\t")))

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


def print_columns(rows: Sequence[Sequence[str]], *, numbers: Collection[int] = ()) -> None:
    """Print aligned columns, those in `numbers` to the right; never cut or wrapped."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [
            cell.rjust(width) if column in numbers else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        print("  ".join(cells).rstrip())


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
