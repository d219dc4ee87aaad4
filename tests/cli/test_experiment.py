"""`rankscope experiment` from the outside."""

import json
import shutil
from pathlib import Path

import pytest

from rankscope.cli.main import main
from rankscope.lab.experiments import EXPERIMENTS, find_experiment

RESULTS = Path(__file__).parents[2] / "docs" / "results"


def test_the_list_names_every_experiment(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["experiment", "list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1:]] == list(EXPERIMENTS)
    assert main(["experiment", "list", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["experiments"][0]["name"] == "cifar10-compression"


def test_a_run_is_shown_and_written_as_a_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "results"
    entry = "low-rank-32-to-64-at-2.5"
    assert main(["experiment", "run", "reshaping", "-o", str(folder), "--only", entry]) == 0
    shown = capsys.readouterr().out
    assert entry in shown
    assert "23 of 24 rows are not finished." in shown
    assert entry in (folder / "table.md").read_text()
    assert main(["experiment", "show", str(folder)]) == 0
    assert capsys.readouterr().out == shown
    assert main(["experiment", "show", str(folder), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["rows"][0]["winner"] == "plain"


def test_a_quick_run_with_seeds_writes_the_same_kinds_of_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "quick"
    arguments = ["--quick", "--seeds", "2", "--only", "random-16-to-16-at-6", "--json"]
    assert main(["experiment", "run", "reshaping", "-o", str(folder), *arguments]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [row["seed"] for row in document["rows"]] == [0, 1]
    assert document == json.loads((folder / "results.json").read_text())
    assert {"rows", "protocol", "environment", "seconds"} <= set(document)
    assert document["unfinished"] == 6


def test_an_experiment_says_what_it_does(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["experiment", "show", "digits-compression"]) == 0
    shown = capsys.readouterr().out
    assert find_experiment("digits-compression").protocol in shown
    assert "needs: nothing" in shown
    assert main(["experiment", "show", "digits-compression", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document == find_experiment("digits-compression").to_dict()


def test_what_is_to_be_decided_is_said_before_and_after(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    experiment = find_experiment("attention-forms")
    claims = experiment.claims
    assert claims is not None
    assert main(["experiment", "show", "attention-forms"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[1:3] == [claims.question, f"Hypothesis: {claims.hypothesis}"]
    assert f"Stopping rule: {experiment.stopping}" in shown
    folder = tmp_path / "attention-forms"
    folder.mkdir()
    shutil.copy(RESULTS / "attention-forms" / "results.json", folder)
    assert main(["experiment", "show", str(folder)]) == 0
    shown = capsys.readouterr().out.splitlines()
    statements = json.loads((folder / "results.json").read_text())["statements"]
    compared = [one for one in statements if one["verdict"] != "computed"]
    assert len(compared) == len(claims.pairs)
    head = next(place for place, line in enumerate(shown) if line.startswith("comparison "))
    for one, line in zip(compared, shown[head + 1 :], strict=False):
        claimed = {None: "", True: ", as claimed", False: ", not as claimed"}[one["as claimed"]]
        assert line.split("  ")[0].lower() == one["subject"].lower()
        assert f"  {one['detail']}  " in line
        assert line.endswith(f"  {one['verdict']}{claimed}")
    facts = [one for one in statements if one["verdict"] == "computed"]
    said = shown[head + 1 + len(compared) :][: len(facts)]
    assert said == [f"{one['subject']}: {one['detail']}." for one in facts]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "minilm-compression", "-o", "out", "--quick"], "has no quick version"),
        (["run", "reshaping", "-o", "out", "--seeds", "0"], "at least 1 seed is needed, got 0"),
        (["run", "reshaping", "-o", "out", "--backend", "threading"], "do not run in threads"),
        (["run", "reshaping", "-o", "out", "--backend", "slurm"], "the backend must be one of"),
        (["run", "reshaping", "-o", "out", "--jobs", "0"], "at least 1 job is needed, got 0"),
        (
            ["run", "nonsense", "-o", "out"],
            "There is no experiment 'nonsense'. `rankscope experiment list`",
        ),
        (["run", "reshaping"], "Missing option '--output'"),
        (["run", "reshaping", "-o", "out", "--minutes", "-1"], "more than 0 seconds, got -60"),
        (["run", "reshaping", "-o", "out", "--only", "x"], "reshaping has no entry 'x'"),
        (["show", "absent"], "'absent' is no folder of an experiment"),
        ([], "Missing command"),
    ],
)
def test_wrong_requests_are_one_line(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["experiment", *arguments]) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.err.count("\n") == 1


def test_without_data_the_command_says_how_to_get_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("RANKSCOPE_DATA", raising=False)
    assert main(["experiment", "run", "cifar10-compression", "-o", "out"]) == 2
    message = capsys.readouterr().err
    assert "There is no folder 'cifar-10-batches-bin'" in message
    assert "unpack it there" in message
    assert "--data" in message
