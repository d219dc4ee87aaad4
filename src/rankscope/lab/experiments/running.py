"""Run an experiment, here or on many machines, and say what its folder holds.

An `Outcome` is a table, `results.json`, and a figure of the rows that are there. `results.json`
holds everything: the rows, how they were asked for, and what each was computed with. A folder with
nothing else is read and continued like any other, so that only it, the table and the figure are
kept in docs/results.
"""

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rankscope.budget import require_within
from rankscope.compression.training.freed_memory import keep_freed_memory
from rankscope.compression.training.recipe import working_seconds
from rankscope.drawing.raster import write_figure
from rankscope.errors import ExperimentError
from rankscope.files import make_folder, write_atomically
from rankscope.lab.experiments.catalogue import find_experiment
from rankscope.lab.experiments.claims import Statement
from rankscope.lab.experiments.experiment import Experiment, Row, Run, RunContext
from rankscope.lab.experiments.results import (
    ENTRIES,
    MANIFEST,
    Environment,
    Finished,
    Manifest,
    ResultsFolder,
    merge_environments,
    read_finished,
    read_manifest,
    require_same_manifest,
    require_same_settings,
)
from rankscope.lab.experiments.statements import headline, statements_of
from rankscope.lab.experiments.table import Table, table_of
from rankscope.progress import Progress, Report, ignore
from rankscope.resumable import ResumableFolder
from rankscope.workers import Workers

TABLE, RESULTS, FIGURE = "table.md", "results.json", "figure.svg"
_WHOSE = ("entry", "setting", "seed")  # the columns of `Finished.full_row` besides its row


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
        """The row of every run, with its "entry", "setting" and "seed"."""
        return [finished.full_row for finished in self.finished]

    @property
    def environment(self) -> Environment:
        """The environment of the rows; lists where they differ."""
        return merge_environments([finished.environment for finished in self.finished])

    @property
    def seconds(self) -> float:
        """Working seconds of all rows together."""
        return sum(finished.seconds for finished in self.finished)

    @property
    def table(self) -> Table:
        """A line for each setting, with everything that is known of it."""
        return table_of(self.experiment.title, self.rows)

    @property
    def shown_table(self) -> Table:
        """The same with the columns that the experiment shows to readers."""
        return self.table.narrowed(self.experiment.columns)

    @property
    def summary(self) -> Table | None:
        """What follows from the rows, once they are complete."""
        rows = self._summary_rows()
        return None if rows is None else table_of("What follows", rows)

    @property
    def statements(self) -> tuple[Statement, ...]:
        """What the finished rows support."""
        claims = self.experiment.claims
        if claims is None:
            return ()
        return statements_of(claims, self.rows, seeds=self.manifest.seeds or 1)

    @property
    def headline(self) -> str:
        """The same in one line."""
        claims = self.experiment.claims
        if claims is None or not self.finished:
            return "Not computed yet"
        return headline(claims, self.rows, seeds=self.manifest.seeds or 1)

    def to_dict(self) -> dict[str, object]:
        """Plain data for JSON."""
        return {
            "experiment": self.experiment.name,
            "title": self.experiment.title,
            "quick": self.manifest.quick,
            "protocol": self.experiment.protocol,
            "rows": self.rows,
            "summary": list(self._summary_rows() or ()),
            "statements": [statement.to_dict() for statement in self.statements],
            "unfinished": self.num_runs - len(self.finished),
            "environment": self.environment,
            "seconds": self.seconds,
            "seconds_allowed": self.manifest.seconds,
            "seeds": self.manifest.seeds,
            **_computed_with(self.finished),
        }

    def _summary_rows(self) -> Sequence[Row] | None:
        if self.experiment.summary is None or not self.is_complete:
            return None
        return self.experiment.summary(self.rows)


def _computed_with(finished: Sequence[Finished]) -> dict[str, object]:
    """Seconds of each row, and the number of its environment in the list of different ones."""
    environments: list[Environment] = []
    for row in finished:
        if row.environment not in environments:
            environments.append(row.environment)
    runs = [
        {
            "entry": row.run,
            "seconds": row.seconds,
            "environment": environments.index(row.environment),
            "settings": row.settings,
        }
        for row in finished
    ]
    return {"runs": runs, "environments": environments}


def is_results_folder(folder: Path) -> bool:
    """Whether a folder holds results of an experiment, finished or not."""
    return (folder / MANIFEST).is_file() or (folder / RESULTS).is_file()


def read_outcome(folder: Path, experiment: Experiment | None = None) -> Outcome:
    """Read the finished rows of a folder.

    Args:
        folder: that a run wrote, or one with nothing but its `results.json`.
        experiment: whose folder it has to be; None for the one that the folder names.

    Raises:
        ExperimentError: if the folder is of another experiment, or a file is damaged.
    """
    is_packed = not (folder / MANIFEST).is_file() and (folder / RESULTS).is_file()
    packed = _read_packed(folder / RESULTS) if is_packed else None
    manifest = read_manifest(folder) if packed is None else packed[0]
    if experiment is None:
        experiment = find_experiment(manifest.experiment)
    if manifest.experiment != experiment.name:
        raise ExperimentError(
            f"{str(folder)!r} is the folder of {manifest.experiment}, not of {experiment.name}."
        )
    runs = experiment.runs(quick=manifest.quick, seeds=manifest.seeds)
    if packed is None:
        rows = [read_finished(folder, run.name) for run in runs]
    else:
        rows = [packed[1].get(run.name) for run in runs]
    finished = tuple(row for row in rows if row is not None)
    return Outcome(experiment, manifest, finished, len(runs))


def _read_packed(path: Path) -> tuple[Manifest, dict[str, Finished]]:
    """How the rows of a `results.json` were asked for, and the rows by the names of their runs."""
    try:
        document = json.loads(path.read_bytes())
        seeds = document["seeds"]
        manifest = Manifest(
            str(document["experiment"]),
            float(document["seconds_allowed"]),
            quick=bool(document["quick"]),
            seeds=None if seeds is None else int(seeds),
        )
        finished = {
            run["entry"]: Finished(
                run["entry"],
                row["setting"],
                row["seed"],
                {name: value for name, value in row.items() if name not in _WHOSE},
                float(run["seconds"]),
                document["environments"][run["environment"]],
                run.get("settings"),
            )
            for row, run in zip(document["rows"], document["runs"], strict=True)
        }
    except (OSError, ValueError, RecursionError, LookupError, TypeError) as error:
        raise ExperimentError(
            f"{path} cannot be read as results: {error!r}. Compute them again in another folder."
        ) from error
    return manifest, finished


def _unpack(experiment: Experiment, folder: Path) -> None:
    """Write the files that a run continues from, where only `results.json` is left of them."""
    if (folder / MANIFEST).is_file() or not (folder / RESULTS).is_file():
        return
    outcome = read_outcome(folder, experiment)
    make_folder(folder / ENTRIES)
    for row in outcome.finished:
        document = {
            "entry": row.run,
            "setting": row.setting,
            "seed": row.seed,
            "row": row.row,
            "seconds": row.seconds,
            "environment": row.environment,
            "settings": row.settings,
        }
        text = json.dumps(document, indent=1, allow_nan=False)
        write_atomically(folder / ENTRIES / f"{row.run}.json", text.encode())
    # Last: where it is, all rows are, whoever is killed meanwhile or begins beside us.
    ResultsFolder(folder, outcome.manifest)


def pack(folder: Path, experiment: Experiment | None = None, *, draws: bool = True) -> Outcome:
    """Write what is finished in a folder: `table.md`, `results.json` and `figure.svg`.

    Args:
        folder: that a run wrote.
        experiment: whose folder it has to be; None for the one that the folder names.
        draws: whether to draw the figure, which takes a second.

    Raises:
        ExperimentError: if the folder is of another experiment, or a file is damaged.
        MissingExtraError: if a figure cannot be drawn without matplotlib.
    """
    # Alone: what a killed process left of these files is removed by the next one, and no process
    # writes fewer rows than another has written.
    with ResumableFolder(folder, {}, what="experiment", waits=True):
        outcome = read_outcome(folder, experiment)
        _write_outcome(outcome, folder)
        if draws and outcome.finished:
            draw_outcome(outcome, folder)
    return outcome


def _write_outcome(outcome: Outcome, folder: Path) -> None:
    text = outcome.table.to_markdown()
    if outcome.summary is not None:
        text += f"\n{outcome.summary.to_markdown()}"
    write_atomically(folder / TABLE, text.encode())
    document = json.dumps(outcome.to_dict(), indent=1, allow_nan=False)
    write_atomically(folder / RESULTS, document.encode())


def draw_outcome(outcome: Outcome, folder: Path) -> None:
    """Write `figure.svg` of the rows that are there, if the experiment has one.

    Raises:
        MissingExtraError: if it cannot be drawn without matplotlib.
    """
    figure = outcome.experiment.figure
    if figure is not None:
        what = f"the figure of {outcome.experiment.name}"
        write_figure(folder / FIGURE, lambda: figure(outcome.rows), what=what)


# Run the entries of an experiment, each once, here or on many machines.


ONE_BY_ONE = Workers("sequential")
_MOST_SEEDS = 1000
QUICK_SECONDS = 90.0  # for all quick entries together


@dataclass(frozen=True)
class RunOptions:
    """Options of a run of an experiment.

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
        require_within("experiment", "the number of seeds", self.seeds or 0, _MOST_SEEDS)
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
        report: called with the progress of each run; how many are finished, if workers do them.
        on_row: called with the name and the row of each run that is finished now.

    Raises:
        ExperimentError: if the folder belongs to something else, or an entry is unknown.
        DataError: if data are needed that are not there; the message says how to get them.
    """
    chosen = chosen_runs(experiment, options)
    seconds = row_seconds(experiment, options)
    manifest = _manifest(experiment, options)
    _unpack(experiment, folder)
    results = ResultsFolder(folder, manifest)
    for run in chosen:
        if results.is_finished(run):
            results.clear(run)
    tasks = [
        _Task(run, results, options.data, seconds, f"{run.name} ({number} of {len(chosen)})")
        for number, run in enumerate(chosen, start=1)
        if not results.is_finished(run)
    ]
    # Packed after every row: all that a killed run has computed is in the files that are kept.
    if options.workers.backend == "sequential":
        for task in tasks:
            row = _compute_row(task, report)
            pack(folder, experiment, draws=False)
            if on_row is not None:
                on_row(task.run.name, row)
    else:
        done = options.workers.run(_compute_row, tasks)
        for count, (number, row) in enumerate(done, start=1):
            pack(folder, experiment, draws=False)
            report(Progress("rows", count, len(tasks)))
            if on_row is not None:
                on_row(tasks[number].run.name, row)
    return pack(folder, experiment)


@dataclass(frozen=True)
class _Task:
    """One run, as a worker is given it."""

    run: Run
    results: ResultsFolder
    data: Path | None
    seconds: float
    title: str


def _compute_row(task: _Task, report: Report = ignore) -> Row:
    """Compute a row and write it, so that it is there even if nobody waits for it any more."""
    with task.results.computing(task.run) as work:
        earlier = read_finished(task.results.path, task.run.name)
        if earlier is not None:  # another process was faster
            shutil.rmtree(work.path)
            return earlier.row
        began = working_seconds()
        context = RunContext(
            work.path, task.data, task.seconds, _title_progress(report, task.title)
        )
        keep_freed_memory()
        row = task.run.entry.run(context)
        task.results.finish(task.run, row, working_seconds() - began)
    return row


def row_seconds(experiment: Experiment, options: RunOptions) -> float:
    """How long a row may take."""
    if options.seconds is not None:
        return options.seconds
    if not options.quick:
        return experiment.seconds
    return min(experiment.seconds, QUICK_SECONDS / len(experiment.runs(quick=True)))


def _manifest(experiment: Experiment, options: RunOptions) -> Manifest:
    runs = experiment.runs(quick=options.quick, seeds=options.seeds)
    seeds = max((run.seed + 1 for run in runs if run.seed is not None), default=None)
    return Manifest(
        experiment.name, row_seconds(experiment, options), quick=options.quick, seeds=seeds
    )


def finished_runs(experiment: Experiment, folder: Path, options: RunOptions) -> dict[str, float]:
    """The seconds of the rows that a folder holds, by the names of their runs.

    Raises:
        ExperimentError: if a run with these options would not go on from that folder.
    """
    if not is_results_folder(folder):
        return {}
    outcome = read_outcome(folder, experiment)
    require_same_manifest(folder, outcome.manifest, _manifest(experiment, options))
    runs = {run.name: run for run in chosen_runs(experiment, options)}
    for row in outcome.finished:
        if row.run in runs:
            require_same_settings(folder, row, runs[row.run])
    return {row.run: row.seconds for row in outcome.finished}


def chosen_runs(experiment: Experiment, options: RunOptions) -> tuple[Run, ...]:
    """The runs that options ask for.

    Raises:
        ExperimentError: if there is no entry of a name, or none takes the seeds.
    """
    runs = experiment.runs(quick=options.quick, seeds=options.seeds)
    only = options.only
    for name in only:
        if all(name not in (run.name, run.entry.name) for run in runs):
            names = ", ".join(dict.fromkeys(run.entry.name for run in runs))
            raise ExperimentError(f"{experiment.name} has no entry {name!r}; it has {names}.")
    if not only:
        return runs
    return tuple(run for run in runs if run.name in only or run.entry.name in only)


def _title_progress(report: Report, title: str) -> Report:
    if report is ignore:
        return ignore

    def titled(progress: Progress) -> None:
        report(Progress(f"{title}, {progress.what}", progress.done, progress.total))

    return titled
