"""Where output goes: numbers and paths to standard output, everything else to standard error."""

import json
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager

from rankscope.progress import Progress, Report, ignore


def print_json(document: Mapping[str, object]) -> None:
    """Print one RFC 8259 document; NaN and infinity are refused, not printed."""
    print(to_json(document))


def to_json(document: Mapping[str, object]) -> str:
    """The text of one RFC 8259 document, indented.

    Raises:
        ValueError: if a number in it is not finite.
    """
    return json.dumps(document, indent=2, allow_nan=False, ensure_ascii=False)


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
    print(f"rankscope: {' '.join(message.split())}", file=sys.stderr)


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
        bars.TextColumn("{task.description}"),
        bars.BarColumn(),
        bars.TextColumn("{task.percentage:>3.0f}%"),
        bars.TimeElapsedColumn(),
        bars.TimeRemainingColumn(),
    )
    with bars.Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None)

        def report(progress: Progress) -> None:
            text = f"{what}: {progress.what}"
            bar.update(task, description=text, completed=progress.done, total=progress.total)

        yield report
