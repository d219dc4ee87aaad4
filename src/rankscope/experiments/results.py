"""The folder of an experiment: one JSON file for each finished row, and the table made of them."""

import json
import math
import os
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from rankscope.errors import ExperimentError, OutputError
from rankscope.experiments.experiment import Row, Value
from rankscope.files import write_atomically

MANIFEST = "experiment.json"
TABLE = "table.md"
_ENTRIES, _WORK = "entries", "work"


@dataclass(frozen=True)
class Manifest:
    """What a folder is the folder of: the experiment, and the seconds that every entry may take."""

    experiment: str
    seconds: float


@dataclass(frozen=True)
class Table:
    """The rows of an experiment that are finished, under the names of their columns."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]

    def cells(self) -> list[list[str]]:
        """The rows as text, a hyphen where a row has no value."""
        return [[_text(row.get(column)) for column in self.columns] for row in self.rows]

    def numeric_columns(self) -> tuple[int, ...]:
        """The places of the columns that hold numbers."""
        return tuple(
            place
            for place, column in enumerate(self.columns)
            if any(isinstance(row.get(column), int | float) for row in self.rows)
        )

    def to_markdown(self) -> str:
        """As a Markdown table."""
        lines = [self.columns, ["---"] * len(self.columns), *self.cells()]
        body = "\n".join(f"| {' | '.join(line)} |" for line in lines)
        return f"# {self.title}\n\n{body}\n"


class ResultsFolder:
    """The folder of one run of an experiment.

    Args:
        path: created if it is not there.
        manifest: a folder goes on with the same only.

    Raises:
        ExperimentError: if the folder belongs to something else.
        OutputError: if it cannot be written.
    """

    def __init__(self, path: Path, manifest: Manifest) -> None:
        self.path = path
        try:
            (path / _ENTRIES).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OutputError(f"Cannot create {str(path)!r}: {error.strerror}.") from error
        if (path / MANIFEST).is_file():
            _require_same(path, manifest)
        else:
            write_atomically(path / MANIFEST, _json(asdict(manifest)))

    def work(self, entry: str) -> Path:
        """Where an entry keeps what it has not finished."""
        return self.path / _WORK / entry

    def finished(self, entry: str) -> Row | None:
        """The row of an entry, None if it is not finished."""
        path = self.path / _ENTRIES / f"{entry}.json"
        return read_row(path) if path.is_file() else None

    def finish(self, entry: str, row: Row) -> None:
        """Write the row of an entry, with the machine it was computed on.

        Raises:
            ExperimentError: if one of its numbers is not finite.
        """
        for column, value in row.items():
            if isinstance(value, float) and not math.isfinite(value):
                raise ExperimentError(f"{entry}: {column} is {value}, which is no result.")
        machine = {
            "processor": platform.processor() or platform.machine(),
            "cores": os.cpu_count(),
            "threads": torch.get_num_threads(),
            "torch": torch.__version__,
        }
        document = {"entry": entry, "row": row, "machine": machine}
        write_atomically(self.path / _ENTRIES / f"{entry}.json", _json(document))


def read_manifest(folder: Path) -> Manifest:
    """What a folder is the folder of.

    Raises:
        ExperimentError: if it is none of an experiment.
    """
    path = folder / MANIFEST
    if not path.is_file():
        raise ExperimentError(f"{str(folder)!r} is no folder of an experiment: no {MANIFEST}.")
    fields = _read(path)
    try:
        return Manifest(str(fields["experiment"]), float(str(fields["seconds"])))
    except (KeyError, ValueError) as error:
        raise ExperimentError(f"{path} is damaged: {error!r}.") from error


def read_row(path: Path) -> Row:
    """The row that a file holds.

    Raises:
        ExperimentError: if the file is damaged.
    """
    row = _read(path).get("row")
    if not isinstance(row, dict) or not all(
        value is None or isinstance(value, str | int | float) for value in row.values()
    ):
        raise ExperimentError(f"{path} is damaged: it holds no row. Delete it to compute it again.")
    return row


def read_table(folder: Path, title: str, entries: tuple[str, ...]) -> Table:
    """The finished rows of a folder, in the order of the entries.

    Raises:
        ExperimentError: if a file is damaged.
    """
    paths = [folder / _ENTRIES / f"{entry}.json" for entry in entries]
    found = [
        {"entry": entry, **read_row(path)}
        for entry, path in zip(entries, paths, strict=True)
        if path.is_file()
    ]
    # Columns that no row has a value for say nothing.
    columns = dict.fromkeys(
        column
        for row in found
        for column in row
        if any(other.get(column) is not None for other in found)
    )
    return Table(title, tuple(columns), tuple(found))


def _require_same(path: Path, wanted: Manifest) -> None:
    found = read_manifest(path)
    if found.experiment != wanted.experiment:
        raise ExperimentError(
            f"{str(path)!r} is the folder of {found.experiment}, not of {wanted.experiment}. "
            f"Name another folder."
        )
    if found.seconds != wanted.seconds:
        raise ExperimentError(
            f"{str(path)!r} was begun with {found.seconds:g} seconds for each entry, not "
            f"{wanted.seconds:g}: rows would not compare. Ask for the same, or name another folder."
        )


def _read(path: Path) -> dict[str, object]:
    try:
        document = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise ExperimentError(f"{path} cannot be read: {error}.") from error
    if not isinstance(document, dict):
        raise ExperimentError(f"{path} is damaged: wanted an object, got {str(document)[:60]}.")
    return document


def _json(document: Mapping[str, object]) -> bytes:
    return json.dumps(document, indent=1, allow_nan=False).encode()


def _text(value: Value) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else value
