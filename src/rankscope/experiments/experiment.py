"""What an experiment is: a table whose rows are computed one by one, each for itself.

An `Entry` computes one row. Entries know nothing of each other, so that a run can be stopped, gone
on with, or spread over machines; what they are given is a `Workplace`.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path

from rankscope.errors import ExperimentError
from rankscope.separation.measuring.progress import Report, ignore

Value = str | int | float | None
Row = dict[str, Value]


@dataclass(frozen=True)
class Workplace:
    """What an entry is given to work with.

    Args:
        folder: its own, for checkpoints; it goes on from what it finds there.
        data: the data folder, see `rankscope.training.datasets`.
        seconds: how long the entry may take, by `working_seconds`.
        report: told how far it is.
    """

    folder: Path
    data: Path | None
    seconds: float
    report: Report = ignore


class Entry(ABC):
    """One row of a table, with its own seed. Subclasses are frozen dataclasses."""

    @property
    @abstractmethod
    def name(self) -> str:
        """Of the row, and of its file: letters, digits, dots and hyphens."""

    @abstractmethod
    def run(self, place: Workplace) -> Row:
        """Compute the row; called again after an interruption, it goes on."""


@dataclass(frozen=True)
class Experiment:
    """A table to be computed.

    Args:
        name: as the command line says it.
        title: what it asks, in one line.
        entries: one for each row, with different names.
        needs: what has to be in the data folder; empty if nothing.
        seconds: how long each entry may take, unless the caller says otherwise.

    Raises:
        ExperimentError: if two entries have the same name.
    """

    name: str
    title: str
    entries: tuple[Entry, ...]
    needs: str = ""
    seconds: float = 600.0

    def __post_init__(self) -> None:
        names = [entry.name for entry in self.entries]
        repeated = sorted({name for name in names if names.count(name) > 1})
        if repeated:
            raise ExperimentError(
                f"{self.name}: two of its {len(names)} entries are {repeated[0]}."
            )

    def entry(self, name: str) -> Entry:
        """One of the entries, by name.

        Raises:
            ExperimentError: if there is none of that name.
        """
        for entry in self.entries:
            if entry.name == name:
                return entry
        names = ", ".join(entry.name for entry in self.entries)
        raise ExperimentError(f"{self.name} has no entry {name!r}; it has {names}.")
