"""A campaign: a list of experiments that are computed one row after the other, for days if need be.

    [[experiments]]
    name = "depth-width"            # see `rankscope experiment list`
    folder = "depth-width-hour"     # below the folder of results; the name, if left out
    only = ["depth-8-size-48000"]   # settings or single rows; all, if left out
    seeds = 3
    minutes = 60                    # of one core for each row
    hours = 4                       # of one core for all of its rows: its share of the time

The folders of results are the only state: a row that is there is never computed again, whoever
computed it, and one that was interrupted goes on from its checkpoint. So a campaign is resumed
after a kill or a reboot by starting it again, and started twice it uses two cores: neither computes
a row that the other is at. Rows are taken seed by seed, so that a whole table is there early. Only
durations of the processor's time are used, and never the date: a clock that jumps changes nothing.
"""

import os
import shutil
import statistics
import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from rankscope.errors import ExperimentError, InUseError, OutputError, RankscopeError
from rankscope.files import make_folder, plain_file
from rankscope.lab.experiments.baselines import BaselineEntry
from rankscope.lab.experiments.catalogue import find_experiment
from rankscope.lab.experiments.experiment import Experiment, Run
from rankscope.lab.experiments.running import (
    RunOptions,
    chosen_runs,
    finished_runs,
    is_results_folder,
    row_seconds,
    run_experiment,
)
from rankscope.progress import Report, ignore
from rankscope.strict_json import (
    Flag,
    Integer,
    ListOf,
    Number,
    Object,
    Optional,
    Record,
    Text,
    parse_document,
    read_as,
)

LOWEST_PRIORITY = 19
# A row without checkpoints loses all of its time when it is interrupted.
MOST_SECONDS_WITHOUT_CHECKPOINT = 7200.0
LEAST_FREE_BYTES = 200_000_000  # on the disk of the results, before a row is begun
_HOUR = 3600.0


@dataclass(frozen=True)
class Item:
    """One experiment of a campaign, with the options of its run.

    Args:
        name: of the experiment.
        folder: of its results, below that of the campaign; empty for the name.
        only: settings or single rows; empty for all.
        seeds: how many; None for what the experiment says.
        minutes: of one core that a row may take; None for what the experiment says.
        hours: of one core that its rows may take together, those that are finished already
            included: no further row is begun after that. None for no limit.
        quick: whether to run the quick entries instead.
    """

    name: str
    folder: str = ""
    only: tuple[str, ...] = ()
    seeds: int | None = None
    minutes: float | None = None
    hours: float | None = None
    quick: bool = False

    def options(self, data: Path | None) -> RunOptions:
        """The same, as a run of the experiment takes it."""
        seconds = None if self.minutes is None else 60.0 * self.minutes
        return RunOptions(
            data=data, seconds=seconds, only=self.only, quick=self.quick, seeds=self.seeds
        )


_ITEM = Record(
    Item,
    {
        "name": Text(),
        "folder": Text(),
        "only": ListOf(Text()),
        "seeds": Optional(Integer(1)),
        "minutes": Optional(Number()),
        "hours": Optional(Number()),
        "quick": Flag(),
    },
)
_DOCUMENT = Object({"experiments": ListOf(_ITEM)})


def read_campaign(path: Path) -> tuple[Item, ...]:
    """The experiments of a campaign file, TOML or (named .json) JSON.

    Raises:
        ExperimentError: if the file cannot be read, names an experiment or a key that there is not,
            or two of its experiments share a folder.
    """
    with plain_file(path, error=ExperimentError) as (file, _):
        data = file.read()
    if path.suffix == ".json":
        document: object = parse_document(data, who=str(path), error=ExperimentError)
    else:
        try:
            document = tomllib.loads(data.decode("utf-8"))
        except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
            raise ExperimentError(f"{path} is not usable TOML: {error}.") from error
    items: tuple[Item, ...] = read_as(_DOCUMENT, document, who=str(path), error=ExperimentError)[
        "experiments"
    ]
    _require_different_folders(path, items)
    return items


def _require_different_folders(path: Path, items: Sequence[Item]) -> None:
    if not items:
        raise ExperimentError(f"{path}: wanted at least one of [[experiments]], got none.")
    for number, item in enumerate(items):
        find_experiment(item.name)
        for limit, value in (("minutes", item.minutes), ("hours", item.hours)):
            if value is not None and not value > 0:
                raise ExperimentError(
                    f"{path}: {item.name} has {value:g} {limit}; wanted more than 0."
                )
        if Path(item.folder).name != item.folder:
            raise ExperimentError(
                f"{path}: the folder {item.folder!r} of {item.name} is no plain name; results are "
                f"written side by side into the folder of the campaign."
            )
        for other in items[:number]:
            if (other.folder or other.name) == (item.folder or item.name) and (
                other.name != item.name or other.minutes != item.minutes
            ):
                raise ExperimentError(
                    f"{path}: {other.name} and {item.name} write with different options into the "
                    f"folder {item.folder or item.name!r}; name another one for one of them."
                )


@dataclass(frozen=True)
class Standing:
    """How far one experiment of a campaign has come.

    Args:
        item: which.
        folder: of its results.
        finished: rows that are there.
        total: rows that are asked for.
        seconds: of one core that the finished rows took.
        expected: seconds that the other rows will take: each the mean of its setting, if a seed of
            it is finished, else that of all finished ones, else the most that it may take.
        is_measured: whether these are means.
        is_spent: whether its hours are over.
    """

    item: Item
    folder: Path
    finished: int
    total: int
    seconds: float
    expected: float
    is_measured: bool
    is_spent: bool

    @property
    def left(self) -> int:
        """Rows that are still to be computed within its hours, at most."""
        return 0 if self.is_spent else self.total - self.finished

    @property
    def seconds_left(self) -> float:
        """How long that will take, on one core."""
        if not self.left:
            return 0.0
        if self.item.hours is None:
            return self.expected
        # The last row is finished even if it ends after the hours do.
        rest = max(self.item.hours * _HOUR - self.seconds, self.expected / self.left)
        return min(self.expected, rest)

    def __str__(self) -> str:
        about = "about" if self.is_measured else "at most"
        rest = f"{about} {self.seconds_left / _HOUR:.1f} h left" if self.left else "nothing left"
        spent = ", its hours are over" if self.is_spent and self.finished < self.total else ""
        return (
            f"{self.folder.name}: {self.finished} of {self.total} rows, "
            f"{self.seconds / _HOUR:.1f} h of one core, {rest}{spent}"
        )


@dataclass(frozen=True)
class Campaign:
    """Experiments with the folder of their results.

    Args:
        items: in the order in which they are computed.
        results: has a folder for each.
        data: the data folder; None for the one that RANKSCOPE_DATA names.
    """

    items: tuple[Item, ...]
    results: Path
    data: Path | None = None

    def standings(self) -> tuple[Standing, ...]:
        """How far each experiment has come.

        Raises:
            ExperimentError: if an option does not fit its experiment, a folder holds something
                else or rows of another version, or a row may be too long for its kind.
        """
        return tuple(self._standing(item) for item in self.items)

    def run(
        self, *, report: Report = ignore, on_row: Callable[[str, "Campaign"], None] | None = None
    ) -> None:
        """Compute every row that is left, on one thread at the lowest priority.

        An experiment that fails is left, and the next one is begun; a disk that is full ends all.
        Rows that another process is at are left to it.

        Args:
            report: called with the progress of each row.
            on_row: called with the name of each row after it was written.

        Raises:
            ExperimentError: before anything is computed, as `standings`; in the end, if an
                experiment failed.
            OutputError: if results cannot be written.
        """
        self.standings()
        make_folder(self.results)
        with _alone_and_last():
            failures = [
                f"{item.folder or item.name}: {failure}"
                for item in self.items
                if (failure := self._run_item(item, report, on_row)) is not None
            ]
        if failures:
            raise ExperimentError(
                f"{len(failures)} of {len(self.items)} experiments failed. {failures[0]}"
            )

    def _run_item(
        self,
        item: Item,
        report: Report,
        on_row: Callable[[str, "Campaign"], None] | None,
    ) -> str | None:
        """Compute the rows of an experiment; what went wrong, if it cannot go on."""
        experiment, options = find_experiment(item.name), item.options(self.data)
        folder = self._folder(item)
        for run in _by_seed(chosen_runs(experiment, options)):
            if self._standing(item).is_spent:
                return None
            if run.name in finished_runs(experiment, folder, options):
                continue
            self._require_space()
            single = RunOptions(
                data=options.data,
                seconds=options.seconds,
                only=(run.name,),
                quick=options.quick,
                seeds=options.seeds,
            )
            try:
                run_experiment(experiment, folder, single, report=report)
            except OutputError:
                raise
            except InUseError:
                continue
            except RankscopeError as error:
                return str(error)
            if on_row is not None:
                on_row(run.name, self)
        return None

    def _folder(self, item: Item) -> Path:
        return self.results / (item.folder or item.name)

    def _standing(self, item: Item) -> Standing:
        experiment, options = find_experiment(item.name), item.options(self.data)
        runs = chosen_runs(experiment, options)
        most = row_seconds(experiment, options)
        _require_checkpoints(experiment, runs, most)
        folder = self._folder(item)
        seconds = finished_runs(experiment, folder, options) if is_results_folder(folder) else {}
        spent = sum(seconds.get(run.name, 0.0) for run in runs)
        # A baseline takes seconds, however long the others may.
        known = [
            (run.entry.name, seconds[run.name])
            for run in runs
            if run.name in seconds and not isinstance(run.entry, BaselineEntry)
        ]
        left = [run for run in runs if run.name not in seconds]
        return Standing(
            item,
            folder,
            len(runs) - len(left),
            len(runs),
            spent,
            sum(_expected_seconds(run, known, most) for run in left),
            bool(known),
            item.hours is not None and spent >= item.hours * _HOUR,
        )

    def _require_space(self) -> None:
        free = shutil.disk_usage(self.results).free
        if free < LEAST_FREE_BYTES:
            raise OutputError(
                f"The disk of {str(self.results)!r} has {free:,} bytes left; a row is not begun "
                f"with less than {LEAST_FREE_BYTES:,}. Make room and start the campaign again."
            )


def _expected_seconds(run: Run, known: Sequence[tuple[str, float]], most: float) -> float:
    """What a row will take, by the settings and seconds of finished ones."""
    of_setting = [seconds for setting, seconds in known if setting == run.entry.name]
    return statistics.fmean(of_setting or [seconds for _, seconds in known] or [most])


def _require_checkpoints(experiment: Experiment, runs: Sequence[Run], seconds: float) -> None:
    long = [
        run
        for run in runs
        if not run.entry.has_checkpoints and not isinstance(run.entry, BaselineEntry)
    ]
    if long and seconds > MOST_SECONDS_WITHOUT_CHECKPOINT:
        raise ExperimentError(
            f"{experiment.name}: {long[0].name} keeps no checkpoints, so it may take "
            f"{MOST_SECONDS_WITHOUT_CHECKPOINT / 60:g} minutes at most, not {seconds / 60:g}."
        )


def _by_seed(runs: Sequence[Run]) -> Iterator[Run]:
    """All runs with the first seed, then all with the second."""
    seeds = sorted({run.seed or 0 for run in runs})
    return (run for seed in seeds for run in runs if (run.seed or 0) == seed)


class _alone_and_last:
    """One thread, so that times compare, at the lowest priority; the threads come back."""

    def __enter__(self) -> None:
        self._threads = torch.get_num_threads()
        torch.set_num_threads(1)
        if hasattr(os, "nice"):
            os.nice(LOWEST_PRIORITY)

    def __exit__(self, *_: object) -> None:
        torch.set_num_threads(self._threads)
