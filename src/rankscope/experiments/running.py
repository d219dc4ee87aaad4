"""Run the entries of an experiment, each once, here or on many machines."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rankscope.errors import ExperimentError
from rankscope.experiments.experiment import Experiment, Row, Run, Workplace
from rankscope.experiments.outcome import Outcome, read_outcome, write_outcome
from rankscope.experiments.results import Manifest, ResultsFolder, read_finished
from rankscope.progress import Progress, Report, ignore
from rankscope.training.clock import working_seconds
from rankscope.workers import Workers

ONE_BY_ONE = Workers("sequential")
QUICK_SECONDS = 90.0  # for all quick entries together


@dataclass(frozen=True)
class RunOptions:
    """How an experiment is run.

    Args:
        data: the data folder; None for the one that RANKSCOPE_DATA names.
        seconds: for each entry; None for what the experiment says, and for quick entries for an
            equal share of 90 seconds, if that is less.
        only: names of the entries to run, or of single runs (`NAME-seed0`); empty for all.
        quick: whether to run the quick entries instead.
        seeds: how many; None for what the experiment says.
        workers: where; processes and clusters need a folder that all of them see.

    Raises:
        ExperimentError: if the seconds are none, or the workers are threads.
    """

    data: Path | None = None
    seconds: float | None = None
    only: tuple[str, ...] = ()
    quick: bool = False
    seeds: int | None = None
    workers: Workers = ONE_BY_ONE

    def __post_init__(self) -> None:
        if self.seconds is not None and not 0 < self.seconds < float("inf"):
            raise ExperimentError(f"An entry needs more than 0 seconds, got {self.seconds}.")
        if self.workers.backend == "threading":
            raise ExperimentError(
                "Experiments do not run in threads: these would share torch's random numbers and "
                "the clock, so that rows would depend on each other. Choose loky, ray or dask."
            )


def run_experiment(
    experiment: Experiment,
    folder: Path,
    options: RunOptions,
    *,
    report: Report = ignore,
    on_row: Callable[[str, Row], None] | None = None,
) -> Outcome:
    """Compute what is not finished in a folder, and write what it says.

    Args:
        experiment: whose entries are run.
        folder: gets one file for each finished run; what is there already is not run again, and
            a run that was interrupted goes on from its checkpoint.
        options: data, seconds, which entries, which seeds, and where.
        report: told how far each run is; how many are finished, if workers do them.
        on_row: told the name and the row of each run that is finished now.

    Raises:
        ExperimentError: if the folder belongs to something else, or an entry is unknown.
        DataError: if data are needed that are not there; the message says how to get them.
    """
    runs = experiment.runs(quick=options.quick, seeds=options.seeds)
    chosen = _chosen(experiment, runs, options.only)
    seconds = options.seconds or _usual_seconds(experiment, quick=options.quick)
    seeds = max((run.seed + 1 for run in runs if run.seed is not None), default=None)
    manifest = Manifest(experiment.name, seconds, quick=options.quick, seeds=seeds)
    results = ResultsFolder(folder, manifest)
    for run in chosen:
        if results.is_finished(run):
            results.clear(run)
    tasks = [
        _Task(run, results, options.data, seconds, f"{run.name} ({number} of {len(chosen)})")
        for number, run in enumerate(chosen, start=1)
        if not results.is_finished(run)
    ]
    if options.workers.backend == "sequential":
        for task in tasks:
            row = _computed(task, report)
            if on_row is not None:
                on_row(task.run.name, row)
    else:
        done = options.workers.run(_computed, tasks)
        for count, (number, row) in enumerate(done, start=1):
            report(Progress("rows", count, len(tasks)))
            if on_row is not None:
                on_row(tasks[number].run.name, row)
    outcome = read_outcome(experiment, folder)
    write_outcome(outcome, folder)
    return outcome


@dataclass(frozen=True)
class _Task:
    """One run, as a worker is given it."""

    run: Run
    results: ResultsFolder
    data: Path | None
    seconds: float
    title: str


def _computed(task: _Task, report: Report = ignore) -> Row:
    """Compute a row and write it, so that it is there even if nobody waits for it any more."""
    with task.results.computing(task.run) as work:
        earlier = read_finished(task.results.path, task.run.name)
        if earlier is not None:  # another process was faster
            shutil.rmtree(work.path)
            return earlier.row
        began = working_seconds()
        place = Workplace(work.path, task.data, task.seconds, _titled(report, task.title))
        row = task.run.entry.run(place)
        task.results.finish(task.run, row, working_seconds() - began)
    return row


def _usual_seconds(experiment: Experiment, *, quick: bool) -> float:
    if not quick:
        return experiment.seconds
    return min(experiment.seconds, QUICK_SECONDS / len(experiment.runs(quick=True)))


def _chosen(
    experiment: Experiment, runs: tuple[Run, ...], only: tuple[str, ...]
) -> tuple[Run, ...]:
    for name in only:
        if all(name not in (run.name, run.entry.name) for run in runs):
            names = ", ".join(dict.fromkeys(run.entry.name for run in runs))
            raise ExperimentError(f"{experiment.name} has no entry {name!r}; it has {names}.")
    if not only:
        return runs
    return tuple(run for run in runs if run.name in only or run.entry.name in only)


def _titled(report: Report, title: str) -> Report:
    def titled(progress: Progress) -> None:
        report(Progress(f"{title}, {progress.what}", progress.done, progress.total))

    return titled
