"""What a folder of results says."""

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from rankscope.errors import ExperimentError, MissingExtraError
from rankscope.experiments.experiment import Entry, Experiment, Row, RunContext
from rankscope.experiments.running import RunOptions, read_outcome, run_experiment


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


def test_summary_and_figure_wait_for_the_last_row(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    drawing = replace(SQUARES, figure=drawn)
    first = run_experiment(drawing, tmp_path, RunOptions(only=("number-2-seed1", "number-3")))
    assert (first.is_complete, first.summary) == (False, None)
    assert not (tmp_path / "figure.svg").exists()
    assert run_experiment(drawing, tmp_path, RunOptions()).is_complete
    picture = (tmp_path / "figure.svg").read_bytes()
    assert b"<svg" in picture
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
