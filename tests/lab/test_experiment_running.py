import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch

from rankscope.errors import ExperimentError, MissingExtraError, OutputError
from rankscope.factorize import WeightShape
from rankscope.files import write_atomically
from rankscope.lab.experiments import (
    Entry,
    Experiment,
    PlantedKernelEntry,
    Row,
    RunContext,
    RunOptions,
    Structure,
    commit_of,
    environment,
    merge_environments,
    read_manifest,
    read_outcome,
    run_experiment,
)
from rankscope.progress import Progress
from rankscope.workers import Workers

# Runs that are stopped, gone on with, and shown.


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
    # What the killed run had computed is in the file that git keeps.
    packed = json.loads((tmp_path / "results.json").read_text())
    assert [row["entry"] for row in packed["rows"]] == ["entry-1"]
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
        ("{", r"entry-1\.json is not usable JSON"),
        ("[]", "holds a list of 0; wanted a JSON object"),
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
    with pytest.raises(ExperimentError, match=r"experiment\.json, at top: seconds is missing"):
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
    with pytest.raises(OutputError, match="Cannot make the folder"):
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


# Every run is a process of its own, forked from one that has imported everything.
KILLED = """
import json, os, signal, sys
from dataclasses import dataclass
from pathlib import Path
import rankscope.compression.training.loop as loop
from rankscope.lab.experiments.experiment import Entry, Experiment
from rankscope.lab.experiments.running import RunOptions, run_experiment
from rankscope.compression import Recipe, cross_entropy, fit
from rankscope.networks.datasets import load_data_set
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
torch.set_num_threads(1)
for folder in sys.argv[1:]:
    child = os.fork()
    if child == 0:
        run_experiment(digits, Path(folder), RunOptions())
        os._exit(0)
    _, status = os.waitpid(child, 0)
    made = sorted(str(path.relative_to(folder)) for path in Path(folder).rglob("*.*"))
    print(json.dumps([os.waitstatus_to_exitcode(status), made]))
"""


@pytest.mark.slow
def test_a_killed_run_ends_with_the_numbers_of_an_uninterrupted_one(tmp_path: Path) -> None:
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    whole.mkdir()
    (whole / "killed").touch()
    command = [sys.executable, "-c", KILLED, *map(str, (killed, killed, whole))]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    (ending, left), *others = [json.loads(line) for line in done.stdout.splitlines()]
    assert ending == -signal.SIGKILL
    assert [name for name in left if name.startswith("entries")] == ["entries/width-8-seed0.json"]
    assert "work/width-8-seed1/checkpoint.safetensors" in left
    assert [status for status, _ in others] == [0, 0]
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


# What a folder of results says.


@dataclass(frozen=True)
class Squares(Entry):
    number: int
    seed: int = 0

    @property
    def name(self) -> str:
        return f"number-{self.number}"

    def run(self, context: RunContext) -> Row:
        (context.folder / "kept").mkdir()
        (context.folder / "kept" / "weights").write_text(str(self.number))
        return {"square": self.number**2 + self.seed, "curve": [0.5, float(self.seed)]}


def total(rows: Sequence[Row]) -> list[Row]:
    squares = [row["square"] for row in rows]
    return [{"entry": "sum", "total": sum(one for one in squares if isinstance(one, int))}]


def drawn(rows: Sequence[Row]) -> object:
    from matplotlib.figure import Figure

    figure = Figure()
    figure.subplots().set_title(" ".join(str(row["setting"]) for row in rows))
    return figure


SQUARES = Experiment(
    name="squares",
    title="Squares",
    entries=(Squares(2), Squares(3)),
    quick=(Squares(1),),
    protocol="Numbers are squared.",
    seeds=2,
    summary=total,
)


def test_results_hold_rows_protocol_environment_and_seconds(tmp_path: Path) -> None:
    run_experiment(SQUARES, tmp_path, RunOptions())
    document = json.loads((tmp_path / "results.json").read_text())
    assert document["rows"][1] == {
        "entry": "number-2-seed1",
        "setting": "number-2",
        "seed": 1,
        "square": 5,
        "curve": [0.5, 1.0],
    }
    assert document["protocol"] == "Numbers are squared."
    assert set(document["environment"]) == {"versions", "commit", "machine", "threads"}
    assert document["seconds"] >= 0
    assert document["summary"] == [{"entry": "sum", "total": 4 + 5 + 9 + 10}]
    assert document["unfinished"] == 0
    assert "| number-2 | 2 | 4.5 ± 6.4 |" in (tmp_path / "table.md").read_text()
    assert "| sum | 28 |" in (tmp_path / "table.md").read_text()


def test_rows_outlive_a_kill_while_the_file_that_git_keeps_is_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = run_experiment(SQUARES, tmp_path / "whole", RunOptions(seeds=2))
    folder = tmp_path / "packed"
    folder.mkdir()
    shutil.copy(tmp_path / "whole" / "results.json", folder)
    written: list[Path] = []

    def killed(path: Path, data: bytes) -> None:
        if len(written) == 2:
            raise KeyboardInterrupt
        written.append(path)
        write_atomically(path, data)

    monkeypatch.setattr("rankscope.lab.experiments.running.write_atomically", killed)
    with pytest.raises(KeyboardInterrupt):
        run_experiment(SQUARES, folder, RunOptions(seeds=2))
    monkeypatch.undo()
    finished: list[str] = []
    again = run_experiment(
        SQUARES, folder, RunOptions(seeds=2), on_row=lambda name, row: finished.append(name)
    )
    assert finished == []
    assert again.rows == whole.rows


def test_what_a_run_keeps_outlives_its_work(tmp_path: Path) -> None:
    run_experiment(SQUARES, tmp_path, RunOptions(seeds=1))
    assert (tmp_path / "kept" / "number-3-seed0" / "weights").read_text() == "3"
    assert list((tmp_path / "work").iterdir()) == []


def test_seeds_are_added_but_quick_and_seedless_runs_are_not_mixed(tmp_path: Path) -> None:
    run_experiment(SQUARES, tmp_path, RunOptions(seeds=1))
    finished: list[str] = []
    run_experiment(
        SQUARES, tmp_path, RunOptions(seeds=3), on_row=lambda name, row: finished.append(name)
    )
    assert len(finished) == 4
    # Fewer seeds do not take away what is there.
    assert len(run_experiment(SQUARES, tmp_path, RunOptions(seeds=1)).rows) == 6
    with pytest.raises(ExperimentError, match="without --quick and with 3 seeds, not with --quick"):
        run_experiment(SQUARES, tmp_path, RunOptions(quick=True))
    with pytest.raises(ExperimentError, match="with 3 seeds, not without --quick and with no seed"):
        run_experiment(replace(SQUARES, seeds=1), tmp_path, RunOptions())


def test_a_figure_is_drawn_of_what_is_there_and_the_summary_waits_for_the_last_row(
    tmp_path: Path,
) -> None:
    pytest.importorskip("matplotlib")
    drawing = replace(SQUARES, figure=drawn)
    first = run_experiment(drawing, tmp_path, RunOptions(only=("number-2-seed1", "number-3")))
    assert (first.is_complete, first.summary) == (False, None)
    partial = (tmp_path / "figure.svg").read_bytes()
    assert run_experiment(drawing, tmp_path, RunOptions()).is_complete
    picture = (tmp_path / "figure.svg").read_bytes()
    assert b"<svg" in picture
    assert picture != partial
    run_experiment(drawing, tmp_path, RunOptions())
    assert (tmp_path / "figure.svg").read_bytes() == picture


def test_a_figure_without_matplotlib_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
    with pytest.raises(MissingExtraError, match=r"figure of squares needs matplotlib.*\[draw\]"):
        run_experiment(replace(SQUARES, figure=drawn), tmp_path, RunOptions())


def test_a_folder_is_read_by_its_own_experiment_only(tmp_path: Path) -> None:
    run_experiment(SQUARES, tmp_path, RunOptions(quick=True))
    assert [row["square"] for row in read_outcome(tmp_path, SQUARES).rows] == [1, 2]
    with pytest.raises(ExperimentError, match="is the folder of squares, not of cubes"):
        read_outcome(tmp_path, replace(SQUARES, name="cubes"))


def test_results_of_version_0_1_0_are_read(tmp_path: Path) -> None:
    (tmp_path / "entries").mkdir()
    (tmp_path / "experiment.json").write_text('{"experiment": "squares", "seconds": 5.0}')
    old = {"entry": "number-2", "row": {"square": 4, "seconds": 2.5}, "machine": {"cores": 2}}
    (tmp_path / "entries" / "number-2.json").write_text(json.dumps(old))
    outcome = read_outcome(tmp_path, replace(SQUARES, seeds=1))
    assert outcome.rows == [
        {"entry": "number-2", "setting": "number-2", "seed": None, "square": 4, "seconds": 2.5}
    ]
    document = outcome.to_dict()
    assert document["seconds"] == 2.5
    assert document["environment"] == {"machine": {"cores": 2}}


def _keep_only_results(folder: Path) -> None:
    shutil.rmtree(folder / "entries")
    (folder / "experiment.json").unlink()


def test_a_folder_with_nothing_but_results_says_the_same_and_is_continued(tmp_path: Path) -> None:
    before = run_experiment(SQUARES, tmp_path, RunOptions(only=("number-2",)))
    document = json.loads((tmp_path / "results.json").read_text())
    assert [run["entry"] for run in document["runs"]] == ["number-2-seed0", "number-2-seed1"]
    assert len(document["environments"]) == 1
    _keep_only_results(tmp_path)
    assert read_outcome(tmp_path, SQUARES) == before
    finished: list[str] = []
    after = run_experiment(
        SQUARES, tmp_path, RunOptions(), on_row=lambda name, row: finished.append(name)
    )
    assert finished == ["number-3-seed0", "number-3-seed1"]
    assert after.finished[:2] == before.finished


def test_rows_that_were_computed_differently_keep_their_environments(tmp_path: Path) -> None:
    run_experiment(SQUARES, tmp_path, RunOptions())
    path = tmp_path / "entries" / "number-3-seed1.json"
    row = json.loads(path.read_text())
    path.write_text(json.dumps({**row, "environment": {"commit": "abc"}, "seconds": 7.0}))
    outcome = run_experiment(SQUARES, tmp_path, RunOptions())
    _keep_only_results(tmp_path)
    assert read_outcome(tmp_path, SQUARES) == outcome
    assert outcome.finished[-1].environment == {"commit": "abc"}
    document = json.loads((tmp_path / "results.json").read_text())
    assert [run["environment"] for run in document["runs"]] == [0, 0, 0, 1]
    assert document["runs"][-1]["seconds"] == 7.0


@pytest.mark.parametrize("text", ["{", "[]", '{"experiment": "squares"}'])
def test_results_that_cannot_be_read_are_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "results.json").write_text(text)
    with pytest.raises(ExperimentError, match=r"results.json cannot be read as results: .*another"):
        read_outcome(tmp_path, SQUARES)


# What rows were computed with.


def git(folder: Path, *arguments: str) -> str:
    name = ("-c", "user.name=n", "-c", "user.email=e@example.org")
    done = subprocess.run(
        ["git", "-C", str(folder), *name, *arguments], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_the_environment_names_versions_and_threads() -> None:
    result = environment()
    versions = result["versions"]
    assert isinstance(versions, dict)
    assert versions["torch"] == torch.__version__
    assert result["threads"] == torch.get_num_threads()


def test_a_commit_is_marked_when_its_files_were_changed(tmp_path: Path) -> None:
    assert commit_of(tmp_path) is None
    (tmp_path / "code").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "code" / "a.py").write_text("1")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "first")
    commit = git(tmp_path, "rev-parse", "HEAD")
    assert commit_of(tmp_path / "code") == commit
    # A folder of the repository that holds none of its files, as installed packages.
    assert commit_of(tmp_path / "other") is None
    (tmp_path / "code" / "a.py").write_text("2")
    assert commit_of(tmp_path / "code") == f"{commit}+"


def test_without_git_there_is_no_commit(tmp_path: Path) -> None:
    assert commit_of(tmp_path / "absent") is None


def test_what_differs_is_listed_once() -> None:
    assert merge_environments([{"a": 1, "b": [2]}, {"a": 1, "b": [3]}, {"b": [2]}]) == {
        "a": 1,
        "b": [[2], [3]],
    }
    assert merge_environments([]) == {}
