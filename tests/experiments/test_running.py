"""Runs that are stopped, gone on with, and shown."""

import json
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from rankscope.errors import ExperimentError, OutputError
from rankscope.experiments.experiment import Entry, Experiment, Row, RunContext
from rankscope.experiments.reshaping import PlantedKernelEntry, Structure
from rankscope.experiments.results import read_manifest
from rankscope.experiments.running import RunOptions, read_outcome, run_experiment
from rankscope.layers.formats.format import WeightShape
from rankscope.separation.measuring.progress import Progress
from rankscope.separation.measuring.workers import Workers


@dataclass(frozen=True)
class CountingEntry(Entry):
    """Counts its runs in its folder, and fails in the first one if it is told to."""

    number: int
    fails_once: bool = False

    @property
    def name(self) -> str:
        return f"entry-{self.number}"

    def run(self, context: RunContext) -> Row:
        context.report(Progress("counting", 1, 2))
        mark = context.folder / "begun"
        if self.fails_once and not mark.exists():
            mark.write_text("half done")
            raise KeyboardInterrupt
        went_on = "yes" if mark.exists() else "no"
        return {
            "number": self.number,
            "went on": went_on,
            "seconds": context.seconds,
            "empty": None,
        }


def experiment(*entries: Entry, name: str = "counting") -> Experiment:
    return Experiment(name=name, title="Numbers", entries=entries, seconds=5.0)


def test_every_entry_is_run_once_and_an_interrupted_one_goes_on(tmp_path: Path) -> None:
    counted = experiment(CountingEntry(1), CountingEntry(2, fails_once=True), CountingEntry(3))
    with pytest.raises(KeyboardInterrupt):
        run_experiment(counted, tmp_path, RunOptions())
    finished: list[str] = []
    outcome = run_experiment(
        counted, tmp_path, RunOptions(), on_row=lambda name, row: finished.append(name)
    )
    assert finished == ["entry-2", "entry-3"]
    assert [row["went on"] for row in outcome.rows] == ["no", "yes", "no"]
    assert list((tmp_path / "work").iterdir()) == []
    again = run_experiment(
        counted, tmp_path, RunOptions(), on_row=lambda name, row: finished.append(name)
    )
    assert again == outcome
    assert len(finished) == 2


def test_the_table_is_written_from_what_is_finished(tmp_path: Path) -> None:
    counted = experiment(CountingEntry(1), CountingEntry(2000), CountingEntry(3))
    table = run_experiment(counted, tmp_path, RunOptions(only=("entry-2000",))).table
    assert table.columns == ("entry", "number", "went on", "seconds")  # "empty" says nothing
    assert table.cells() == [["entry-2000", "2,000", "no", "5"]]
    assert table.numeric_columns() == (1, 3)
    assert (tmp_path / "table.md").read_text() == (
        "# Numbers\n\n| entry | number | went on | seconds |\n| --- | --- | --- | --- |\n"
        "| entry-2000 | 2,000 | no | 5 |\n"
    )
    run_experiment(counted, tmp_path, RunOptions())
    # In the order of the experiment, not of the runs.
    assert [row["number"] for row in read_outcome(tmp_path, counted).rows] == [1, 2000, 3]


def test_progress_names_the_entry(tmp_path: Path) -> None:
    seen: list[Progress] = []
    run_experiment(experiment(CountingEntry(7)), tmp_path, RunOptions(), report=seen.append)
    assert seen == [Progress("entry-7 (1 of 1), counting", 1, 2)]


def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    counted = experiment(CountingEntry(1))
    run_experiment(counted, tmp_path, RunOptions())
    with pytest.raises(ExperimentError, match="is the folder of counting, not of other"):
        run_experiment(experiment(CountingEntry(1), name="other"), tmp_path, RunOptions())
    with pytest.raises(ExperimentError, match="begun with 5 seconds for each entry, not 7"):
        run_experiment(counted, tmp_path, RunOptions(seconds=7.0))


def test_a_damaged_row_is_refused_by_name(tmp_path: Path) -> None:
    counted = experiment(CountingEntry(1))
    run_experiment(counted, tmp_path, RunOptions())
    path = tmp_path / "entries" / "entry-1.json"
    for content, message in [
        ("{", r"entry-1\.json cannot be read"),
        ("[]", r"wanted an object, got \[\]"),
        ('{"row": [1]}', "holds no row"),
        ('{"row": {"number": ["one"]}}', "holds no row"),
    ]:
        path.write_text(content)
        with pytest.raises(ExperimentError, match=message):
            run_experiment(counted, tmp_path, RunOptions())


def test_a_damaged_manifest_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ExperimentError, match=r"no folder of an experiment: no experiment\.json"):
        read_manifest(tmp_path)
    (tmp_path / "experiment.json").write_text(json.dumps({"experiment": "counting"}))
    with pytest.raises(ExperimentError, match=r"experiment\.json is damaged: KeyError\('seconds'"):
        run_experiment(experiment(CountingEntry(1)), tmp_path, RunOptions())


def test_unknown_repeated_and_timeless_entries_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ExperimentError, match="no entry 'entry-9'; it has entry-1, entry-2"):
        run_experiment(
            experiment(CountingEntry(1), CountingEntry(2)), tmp_path, RunOptions(only=("entry-9",))
        )
    with pytest.raises(ExperimentError, match="two of its 3 entries are entry-1"):
        experiment(CountingEntry(1), CountingEntry(2), CountingEntry(1))
    with pytest.raises(ExperimentError, match="more than 0 seconds, got 0"):
        RunOptions(seconds=0.0)


def test_a_row_that_is_not_finite_is_no_result(tmp_path: Path) -> None:
    @dataclass(frozen=True)
    class Broken(CountingEntry):
        def run(self, context: RunContext) -> Row:
            return {"error": float("nan")}

    with pytest.raises(ExperimentError, match="entry-1: error is nan"):
        run_experiment(experiment(Broken(1)), tmp_path, RunOptions())

    @dataclass(frozen=True)
    class BrokenCurve(CountingEntry):
        def run(self, context: RunContext) -> Row:
            return {"losses": [1.0, float("inf")]}

    with pytest.raises(ExperimentError, match="entry-1: losses is inf"):
        run_experiment(experiment(BrokenCurve(1)), tmp_path, RunOptions())


def test_a_folder_that_cannot_be_made_is_an_output_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(OutputError, match="Cannot create"):
        run_experiment(experiment(CountingEntry(1)), tmp_path / "file", RunOptions())


def test_threads_are_refused_with_the_reason() -> None:
    with pytest.raises(ExperimentError, match=r"share torch's random numbers .* Choose loky, ray"):
        RunOptions(workers=Workers("threading", 2))


@pytest.mark.slow
def test_processes_give_the_rows_of_one_process(tmp_path: Path) -> None:
    # An entry of the package: processes cannot import one of this file.
    entries = (PlantedKernelEntry(Structure.LOW_RANK, WeightShape(8, 8, (3, 3)), 0.3),)
    planted = Experiment("planted", "Planted", entries, seeds=2)
    alone = run_experiment(planted, tmp_path / "alone", RunOptions())
    seen: list[Progress] = []
    finished: dict[str, Row] = {}
    spread = run_experiment(
        planted,
        tmp_path / "spread",
        RunOptions(workers=Workers("loky", 2)),
        report=seen.append,
        on_row=finished.__setitem__,
    )
    assert spread.rows == alone.rows
    assert seen == [Progress("rows", 1, 2), Progress("rows", 2, 2)]
    assert sorted(finished) == [str(row["entry"]) for row in spread.rows]


KILLED = """
import os, signal, sys
from dataclasses import dataclass
from pathlib import Path
import rankscope.training.loop as loop
from rankscope.experiments.experiment import Entry, Experiment
from rankscope.experiments.running import RunOptions, run_experiment
from rankscope.training import Recipe, cross_entropy, fit
from rankscope.training.datasets import load_data_set
import torch
from torch import nn

loop.CHECKPOINT_SECONDS = -1.0  # after every step

@dataclass(frozen=True)
class Digits(Entry):
    width: int
    seed: int = 0

    @property
    def name(self):
        return f"width-{self.width}"

    def run(self, place):
        torch.manual_seed(self.seed)
        model = nn.Sequential(nn.Flatten(), nn.Linear(64, self.width), nn.ReLU(), nn.Dropout(0.2),
                              nn.Linear(self.width, 10))
        data = load_data_set("digits").train
        def progress(state):
            mark = place.folder.parents[1] / "killed"
            if self.seed == 1 and state.what.startswith("epoch 2") and state.done == 4:
                if not mark.exists():
                    mark.touch()
                    os.kill(os.getpid(), signal.SIGKILL)
        history = fit(model, cross_entropy, data, Recipe(epochs=3, batch_size=200, seed=self.seed),
                      folder=place.folder, progress=progress)
        return {"samples": history.samples, "losses": [one.loss for one in history.records],
                "norm": float(model[1].weight.norm())}

digits = Experiment("digits", "Digits", (Digits(8),), seeds=3)
run_experiment(digits, Path(sys.argv[1]), RunOptions())
"""


@pytest.mark.slow
def test_a_killed_run_ends_with_the_numbers_of_an_uninterrupted_one(tmp_path: Path) -> None:
    def run(folder: Path) -> int:
        command = [sys.executable, "-c", KILLED, str(folder)]
        return subprocess.run(command, timeout=300, check=False).returncode

    killed, whole = tmp_path / "killed", tmp_path / "whole"
    assert run(killed) == -signal.SIGKILL
    assert sorted(path.name for path in (killed / "entries").iterdir()) == ["width-8-seed0.json"]
    assert (killed / "work" / "width-8-seed1" / "checkpoint.safetensors").is_file()
    assert run(killed) == 0
    whole.mkdir()
    (whole / "killed").touch()
    assert run(whole) == 0
    rows = [json.loads((one / "results.json").read_text())["rows"] for one in (killed, whole)]
    assert rows[0] == rows[1]
    assert [row["samples"] for row in rows[0]] == [3 * 1437] * 3


def test_quick_entries_share_ninety_seconds(tmp_path: Path) -> None:
    entries = (CountingEntry(1), CountingEntry(2), CountingEntry(3))
    counted = Experiment("counting", "Numbers", entries, quick=entries)
    rows = run_experiment(counted, tmp_path / "quick", RunOptions(quick=True)).rows
    assert [row["seconds"] for row in rows] == [30.0] * 3
    short = Experiment("counting", "Numbers", entries, quick=entries, seconds=5.0)
    rows = run_experiment(short, tmp_path / "short", RunOptions(quick=True)).rows
    assert [row["seconds"] for row in rows] == [5.0] * 3
