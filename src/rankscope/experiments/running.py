"""Run the entries of an experiment, one after the other, each once."""

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rankscope.errors import ExperimentError
from rankscope.experiments.experiment import Experiment, Row, Workplace
from rankscope.experiments.results import TABLE, Manifest, ResultsFolder, Table, read_table
from rankscope.files import write_atomically
from rankscope.separation.measuring.progress import Progress, Report, ignore


@dataclass(frozen=True)
class RunOptions:
    """How an experiment is run.

    Args:
        data: the data folder; None for the one that RANKSCOPE_DATA names.
        seconds: for each entry; None for what the experiment says.
        only: names of the entries to run; empty for all.

    Raises:
        ExperimentError: if the seconds are none.
    """

    data: Path | None = None
    seconds: float | None = None
    only: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.seconds is not None and not 0 < self.seconds < float("inf"):
            raise ExperimentError(f"An entry needs more than 0 seconds, got {self.seconds}.")


def run_experiment(
    experiment: Experiment,
    folder: Path,
    options: RunOptions,
    *,
    report: Report = ignore,
    on_row: Callable[[str, Row], None] | None = None,
) -> Table:
    """Compute what is not finished in a folder, and write the table of what is.

    Args:
        experiment: whose entries are run.
        folder: gets one file for each finished entry; what is there already is not run again, and
            an entry that was interrupted goes on from its checkpoint.
        options: data, seconds, and which entries.
        report: told how far each entry is.
        on_row: told the name and the row of each entry that is finished now.

    Raises:
        ExperimentError: if the folder belongs to something else, or an entry is unknown.
        DataError: if data are needed that are not there; the message says how to get them.
    """
    names = options.only or tuple(entry.name for entry in experiment.entries)
    entries = [experiment.entry(name) for name in names]
    seconds = options.seconds or experiment.seconds
    results = ResultsFolder(folder, Manifest(experiment.name, seconds))
    for number, entry in enumerate(entries, start=1):
        if results.finished(entry.name) is not None:
            continue
        work = results.work(entry.name)
        work.mkdir(parents=True, exist_ok=True)
        title = f"{entry.name} ({number} of {len(entries)})"
        row = entry.run(Workplace(work, options.data, seconds, _titled(report, title)))
        results.finish(entry.name, row)
        shutil.rmtree(work)
        if on_row is not None:
            on_row(entry.name, row)
    return write_table(experiment, folder)


def write_table(experiment: Experiment, folder: Path) -> Table:
    """Write `table.md` from the files of a folder, and give it back."""
    names: Sequence[str] = [entry.name for entry in experiment.entries]
    table = read_table(folder, experiment.title, tuple(names))
    write_atomically(folder / TABLE, table.to_markdown().encode())
    return table


def _titled(report: Report, title: str) -> Report:
    def titled(progress: Progress) -> None:
        report(Progress(f"{title}, {progress.what}", progress.done, progress.total))

    return titled
