"""Figures now beside earlier ones: `python -m benchmarks.compare COMMIT|FOLDER [--rows] [NAME …]`.

A commit stands for the results committed with it, a folder for those in it: where an older version
was run on this machine. Rows are the same if all that is not a measurement is: cases, formats,
sizes. Of equal rows of one file the last one counts. Prints Markdown: for every figure the median,
the least and the largest of after / before over the rows, or with --rows each of them.
"""

import json
import statistics
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from benchmarks.__main__ import HERE, NAMES, machine

Row = Mapping[str, object]
Key = tuple[tuple[str, str], ...]
# Measured, but no speeds.
NO_SPEED = ("error", "found", "MiB", "MB", "megabytes", "memory", "share", "rank", "kept", "load")


def rows_of(lines: Iterable[str]) -> dict[Key, dict[str, float]]:
    """The measured speeds of each row by what identifies it."""
    results: dict[Key, dict[str, float]] = {}
    for line in lines:
        row = {name: value for name, value in json.loads(line).items() if name not in machine()}
        speeds = {
            name: value
            for name, value in row.items()
            if isinstance(value, float) and not any(word in name for word in NO_SPEED)
        }
        identity = {
            name: str(value)
            for name, value in row.items()
            if not isinstance(value, float) and name in ("case", "format", "layer", "over", "ranks")
        }
        results[tuple(sorted(identity.items()))] = speeds
    return results


def earlier(commit: str, name: str) -> list[str]:
    """The lines of a file of results in a folder, or at a commit; none if it was not there."""
    if Path(commit).is_dir():
        path = Path(commit) / f"{name}.jsonl"
        return path.read_text("utf-8").splitlines() if path.exists() else []
    place = f"{commit}:./results/{name}.jsonl"
    shown = subprocess.run(
        ["git", "show", place], cwd=HERE, capture_output=True, text=True, check=False
    )
    return shown.stdout.splitlines()


def changes(commit: str, name: str) -> Iterator[tuple[str, str, float, float]]:
    """The case, the figure, and its value before and after, wherever both are known."""
    before = rows_of(earlier(commit, name))
    after = rows_of((HERE / "results" / f"{name}.jsonl").read_text("utf-8").splitlines())
    for key in (key for key in before if key in after):
        case = ", ".join(value for _, value in key)
        for figure in (figure for figure in before[key] if figure in after[key]):
            yield case, figure, before[key][figure], after[key][figure]


def print_rows(commit: str, names: Iterable[str]) -> None:
    print("| benchmark | case | figure | before | after | after / before |")
    print("|---|---|---|---|---|---|")
    for name in names:
        for case, figure, old, new in changes(commit, name):
            change = f"{new / old:.2f}" if old else "-"
            print(f"| {name} | {case} | {figure} | {old:g} | {new:g} | {change} |")


def print_summary(commit: str, names: Iterable[str]) -> None:
    print("| benchmark | figure | rows | after / before, median | least | largest |")
    print("|---|---|---|---|---|---|")
    for name in names:
        ratios: dict[str, list[float]] = {}
        for _, figure, old, new in changes(commit, name):
            if old:
                ratios.setdefault(figure, []).append(new / old)
        for figure, values in ratios.items():
            shown = (statistics.median(values), min(values), max(values))
            cells = " | ".join(f"{value:.2f}" for value in shown)
            print(f"| {name} | {figure.replace('_', ' ')} | {len(values)} | {cells} |")


def main(commit: str, options: list[str]) -> None:
    names = [option for option in options if option != "--rows"] or NAMES
    (print_rows if "--rows" in options else print_summary)(commit, names)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
