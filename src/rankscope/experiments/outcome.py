"""What a folder of results says: a table, `results.json`, and a figure once all is computed."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rankscope.diagrams.pictures.figure_file import write_figure
from rankscope.errors import ExperimentError
from rankscope.experiments.environment import Environment, merged
from rankscope.experiments.experiment import Experiment, Row
from rankscope.experiments.results import Finished, Manifest, read_finished, read_manifest
from rankscope.experiments.table import Table, table_of
from rankscope.files import write_atomically
from rankscope.resumable import ResumableFolder

TABLE, RESULTS, FIGURE = "table.md", "results.json", "figure.svg"


@dataclass(frozen=True)
class Outcome:
    """Everything that is finished in a folder.

    Args:
        experiment: whose folder it is.
        manifest: how it is run there.
        finished: rows, in the order of the experiment.
        num_runs: how many rows there will be.
    """

    experiment: Experiment
    manifest: Manifest
    finished: tuple[Finished, ...]
    num_runs: int

    @property
    def is_complete(self) -> bool:
        """Whether every row is finished."""
        return len(self.finished) == self.num_runs

    @property
    def rows(self) -> list[Row]:
        """Of every run, with its "entry", "setting" and "seed"."""
        return [finished.full_row for finished in self.finished]

    @property
    def environment(self) -> Environment:
        """What the rows were computed with; lists where they differ."""
        return merged([finished.environment for finished in self.finished])

    @property
    def seconds(self) -> float:
        """Working seconds of all rows together."""
        return sum(finished.seconds for finished in self.finished)

    @property
    def table(self) -> Table:
        """A line for each setting."""
        return table_of(self.experiment.title, self.rows)

    @property
    def summary(self) -> Table | None:
        """What follows from the rows, once they are complete."""
        rows = self._summary_rows()
        return None if rows is None else table_of("What follows", rows)

    def to_dict(self) -> dict[str, object]:
        """Plain data for JSON."""
        return {
            "experiment": self.experiment.name,
            "title": self.experiment.title,
            "quick": self.manifest.quick,
            "protocol": self.experiment.protocol,
            "rows": self.rows,
            "summary": list(self._summary_rows() or ()),
            "unfinished": self.num_runs - len(self.finished),
            "environment": self.environment,
            "seconds": self.seconds,
        }

    def _summary_rows(self) -> Sequence[Row] | None:
        if self.experiment.summary is None or not self.is_complete:
            return None
        return self.experiment.summary(self.rows)


def read_outcome(experiment: Experiment, folder: Path) -> Outcome:
    """What is finished in a folder.

    Raises:
        ExperimentError: if the folder is of another experiment, or a file is damaged.
    """
    manifest = read_manifest(folder)
    if manifest.experiment != experiment.name:
        raise ExperimentError(
            f"{str(folder)!r} is the folder of {manifest.experiment}, not of {experiment.name}."
        )
    runs = experiment.runs(quick=manifest.quick, seeds=manifest.seeds)
    found = [read_finished(folder, run.name) for run in runs]
    finished = tuple(one for one in found if one is not None)
    return Outcome(experiment, manifest, finished, len(runs))


def write_outcome(outcome: Outcome, folder: Path) -> None:
    """Write `table.md`, `results.json`, and `figure.svg` if there is one and all rows are there.

    Raises:
        MissingExtraError: if a figure cannot be drawn without matplotlib.
    """
    # Alone: what a killed process left of these files is removed by the next one.
    with ResumableFolder(folder, {}, what="experiment", waits=True):
        _write_outcome(outcome, folder)


def _write_outcome(outcome: Outcome, folder: Path) -> None:
    text = outcome.table.to_markdown()
    if outcome.summary is not None:
        text += f"\n{outcome.summary.to_markdown()}"
    write_atomically(folder / TABLE, text.encode())
    document = json.dumps(outcome.to_dict(), indent=1, allow_nan=False)
    write_atomically(folder / RESULTS, document.encode())
    figure = outcome.experiment.figure
    if figure is not None and outcome.is_complete:
        what = f"the figure of {outcome.experiment.name}"
        write_figure(folder / FIGURE, lambda: figure(outcome.rows), what=what)
