"""Experiments: tables whose rows are computed one by one, independently.

An `Entry` computes one row. Entries know nothing of each other, so that a run can be stopped, gone
on with, or spread over machines; what they are given is a `RunContext`.

    @dataclass(frozen=True)
    class Shallow(Entry):
        width: int
        seed: int = 0

        @property
        def name(self) -> str:          # without the seed
            return f"width-{self.width}"

        def run(self, context: RunContext) -> Row:
            ...                         # fit(..., folder=place.folder)
            return {"width": self.width, "accuracy": 97.1, "losses": [2.3, 0.4]}

With `seeds=3`, every such entry is run three times, and the table shows means and intervals.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import ClassVar

from rankscope.errors import ExperimentError
from rankscope.lab.experiments.claims import Claims
from rankscope.lab.experiments.claims import Row as Row
from rankscope.lab.experiments.claims import Value as Value
from rankscope.progress import Report, ignore

# Draws finished rows as a `matplotlib.figure.Figure`, which is not imported before it is needed.
DrawRows = Callable[[Sequence[Row]], object]
SummarizeRows = Callable[[Sequence[Row]], Sequence[Row]]

KEPT = "kept"
_QUICK_SEEDS = 2
_NUMBERS = {2: "Two", 3: "Three", 5: "Five"}
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")  # of a function, which differs between processes


@dataclass(frozen=True)
class RunContext:
    """What an entry may use: a folder, data and time, with the callback of its progress.

    Args:
        folder: its own, for checkpoints; it goes on from what it finds there. It is deleted when
            the row is finished, except that `folder / "kept"` (trained weights, say) is moved to
            `kept/NAME` of the results.
        data: the data folder, see `rankscope.networks.datasets`.
        seconds: how long the entry may take, by `working_seconds`.
        report: called with the progress.
    """

    folder: Path
    data: Path | None
    seconds: float
    report: Report = ignore


class Entry(ABC):
    """One row of a table. Subclasses are frozen dataclasses, with a field `seed` if it matters.

    The row may hold text, numbers, and lists of numbers (learning curves, spectra), which are kept
    but not shown in the table.

    Attributes:
        has_checkpoints: whether `run` goes on from its folder. An entry that begins afresh after an
            interruption must not be long.
    """

    has_checkpoints: ClassVar[bool] = False

    @property
    @abstractmethod
    def name(self) -> str:
        """Name of the row and of its file: letters, digits, dots and hyphens."""

    @abstractmethod
    def run(self, context: RunContext) -> Row:
        """Compute the row; called again after an interruption, it goes on."""


@dataclass(frozen=True)
class Run:
    """An entry, run with one seed; with the one that it has, if `seed` is None."""

    entry: Entry
    seed: int | None = None

    @property
    def name(self) -> str:
        """Name of the file of its row."""
        return self.entry.name if self.seed is None else f"{self.entry.name}-seed{self.seed}"

    @property
    def settings(self) -> str:
        """Everything that the row is computed from, as text; the same in every process."""
        return _ADDRESS.sub("", repr(self.entry))


@dataclass(frozen=True)
class Experiment:
    """A table to be computed.

    Args:
        name: as the command line says it.
        title: what it asks, in one line.
        entries: the settings, with different names.
        needs: what has to be in the data folder; empty if nothing.
        seconds: how long each entry may take, unless the caller says otherwise.
        quick: settings for `--quick`: embedded data only, all in less than two minutes.
        protocol: what is done, in plain words.
        seeds: how many seeds every entry with a field `seed` is run with, unless the caller says
            otherwise.
        figure: draws the rows of a complete run, each with its "setting" and its "seed" (None if it
            has none); saved as figure.svg.
        summary: further rows that follow from those of a complete run (fits, crossings); shown
            below the table.
        claims: what it is to decide.
        columns: what pages and terminals show of the rows, in this order; empty for everything,
            which `table.md` and `results.json` have anyway.

    Raises:
        ExperimentError: if two entries have the same name, or none takes the seeds.
    """

    name: str
    title: str
    entries: tuple[Entry, ...]
    needs: str = ""
    seconds: float = 600.0
    quick: tuple[Entry, ...] = ()
    protocol: str = ""
    seeds: int = 1
    figure: DrawRows | None = None
    summary: SummarizeRows | None = None
    claims: Claims | None = None
    columns: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for entries in (self.entries, self.quick):
            names = [entry.name for entry in entries]
            repeated = sorted({name for name in names if names.count(name) > 1})
            if repeated:
                raise ExperimentError(
                    f"{self.name}: two of its {len(names)} entries are {repeated[0]}."
                )
        if self.seeds != 1:
            self._require_seeds(self.entries, self.seeds)

    def runs(self, *, quick: bool = False, seeds: int | None = None) -> tuple[Run, ...]:
        """Every entry with every seed, in order; entries without a seed are run once.

        Args:
            quick: the quick entries, with two seeds at most unless `seeds` says otherwise.
            seeds: how many; None for as many as the experiment has.

        Raises:
            ExperimentError: if there are no quick entries, or no entry takes several seeds.
        """
        entries = self.quick if quick else self.entries
        if quick and not entries:
            raise ExperimentError(f"{self.name} has no quick version; run it without --quick.")
        if seeds is not None:
            self._require_seeds(entries, seeds)
        elif self.seeds > 1:
            seeds = min(self.seeds, _QUICK_SEEDS) if quick else self.seeds
        return tuple(run for entry in entries for run in _seed_runs(entry, seeds))

    def to_dict(self) -> dict[str, object]:
        """What there is to know, as plain data for JSON."""
        return {
            "name": self.name,
            "entries": [entry.name for entry in self.entries],
            "quick": [entry.name for entry in self.quick],
            "seeds": self.seeds,
            "seconds": self.seconds,
            "needs": self.needs or "nothing",
            "title": self.title,
            "protocol": self.protocol,
            "question": "" if self.claims is None else self.claims.question,
            "hypothesis": "" if self.claims is None else self.claims.hypothesis,
            "stopping": self.stopping,
        }

    @property
    def stopping(self) -> str:
        """When no more rows are computed: once every row with every seed is there."""
        if self.claims is not None and self.claims.stopping:
            return self.claims.stopping
        if self.seeds == 1:
            return "Every row once, whatever they say."
        number = _NUMBERS.get(self.seeds, str(self.seeds))
        return f"{number} seeds of every setting, whatever they say."

    def _require_seeds(self, entries: tuple[Entry, ...], seeds: int) -> None:
        if seeds < 1:
            raise ExperimentError(f"{self.name}: at least 1 seed is needed, got {seeds}.")
        if not any(takes_seeds(entry) for entry in entries):
            raise ExperimentError(
                f"{self.name} cannot be run with {seeds} seeds: none of its {len(entries)} entries "
                f"takes one."
            )


def takes_seeds(entry: Entry) -> bool:
    """Whether an entry has a seed that its name does not say already."""
    if not is_dataclass(entry) or all(field.name != "seed" for field in fields(entry)):
        return False
    return replace(entry, seed=1).name == replace(entry, seed=0).name


def _seed_runs(entry: Entry, seeds: int | None) -> tuple[Run, ...]:
    if seeds is None or not takes_seeds(entry):
        return (Run(entry),)
    assert is_dataclass(entry), "takes_seeds says so"
    return tuple(Run(replace(entry, seed=seed), seed) for seed in range(seeds))
