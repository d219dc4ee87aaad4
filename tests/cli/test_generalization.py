"""`rankscope generalization` from the command line."""

import json
from functools import partial
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from tests.cli.conftest import answer_of, refusal_of

from rankscope.cli.main import main

FACTORY = """
import torch
from torch import nn
from rankscope.factorize.cp_layers import CPConv2d, CPLinear

def network():
    generator = torch.Generator().manual_seed(0)
    return nn.Sequential(
        CPConv2d(1, 4, 3, rank=4, padding=1, generator=generator),
        nn.ReLU(),
        nn.Flatten(),
        CPLinear(64, 3, rank=3, generator=generator),
    )
"""


@pytest.fixture
def factory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    name = f"own_networks_{abs(hash(request.node.name))}"
    (tmp_path / f"{name}.py").write_text(FACTORY, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return f"{name}:network"


def write_samples(path: Path, labels: torch.Tensor) -> str:
    generator = torch.Generator().manual_seed(0)
    inputs = torch.rand(len(labels), 1, 4, 4, generator=generator)
    save_file({"inputs": inputs, "labels": labels}, path)
    return str(path)


@pytest.fixture
def labelled(tmp_path: Path) -> str:
    return write_samples(tmp_path / "samples.safetensors", torch.arange(8) % 3)


answer, refusal = partial(answer_of, "generalization"), partial(refusal_of, "generalization")


@pytest.mark.parametrize("search", ["direct", "paper", "measured"])
@pytest.mark.parametrize(("form", "tolerance"), [("triangle", "inf"), ("exact", "l2")])
def test_a_model_of_ones_own_is_analysed_in_every_way(
    capsys: pytest.CaptureFixture[str],
    factory: str,
    labelled: str,
    search: str,
    form: str,
    tolerance: str,
) -> None:
    options = ("--search", search, "--form", form, "--tolerance", tolerance, "--jacobians", "2")
    found = answer(capsys, factory, "--data", labelled, "--margin", "0.5", *options)
    assert (found["search"], found["form"], found["tolerance"]) == (search, form, tolerance)
    assert [layer["name"] for layer in found["layers"]] == ["0", "3"]
    assert found["samples"] == 8
    assert found["deviation"] <= 0.5
    assert {"rigorous", "arora-order"} <= {bound["name"] for bound in found["bounds"]}


@pytest.mark.slow
def test_people_get_tables_and_files(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, factory: str, labelled: str
) -> None:
    pytest.importorskip("matplotlib")
    folder = tmp_path / "out"
    command = ["generalization", factory, "--data", labelled, "-o", str(folder), "--samples", "5"]
    assert main(command) == 0
    printed = capsys.readouterr().out
    assert "cushion" in printed
    assert "on 5 samples" in printed
    assert "vacuous" in printed
    assert (folder / "generalization.svg").is_file()
    document = json.loads((folder / "generalization.json").read_text(encoding="utf-8"))
    assert document["margin"] == 1.0
    assert document["samples"] == 5


@pytest.mark.slow
def test_the_embedded_network_is_measured_on_its_training_samples(
    capsys: pytest.CaptureFixture[str],
) -> None:
    pytest.importorskip("sklearn")
    command = ("digits", "--data", "digits", "--margin", "1", "--samples", "50", "--jacobians", "0")
    found = answer(capsys, *command)
    assert [layer["rank"] for layer in found["layers"]] == [9, 144, 288, 10]
    assert "arora-order" not in [bound["name"] for bound in found["bounds"]]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--margin", "0"), "must be positive and finite, got 0.0"),
        (("--margin=-1",), "must be positive and finite, got -1.0"),
        (("--search", "slow"), "--search takes one of direct, paper, measured, got 'slow'"),
        (("--form", "round"), "--form takes one of triangle, exact, got 'round'"),
        (("--tolerance", "l1"), "--tolerance takes one of inf, l2, paper, got 'l1'"),
        (("--bits", "1"), "bits must be 2..16, got 1"),
    ],
)
def test_wrong_options_are_refused(
    capsys: pytest.CaptureFixture[str],
    factory: str,
    labelled: str,
    options: tuple[str, ...],
    message: str,
) -> None:
    assert message in refusal(capsys, factory, "--data", labelled, *options)


def test_labels_out_of_range_and_empty_samples_are_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, factory: str
) -> None:
    wrong = write_samples(tmp_path / "wrong.safetensors", torch.arange(8))
    assert "labels must be 0..2" in refusal(capsys, factory, "--data", wrong)
    empty = write_samples(tmp_path / "empty.safetensors", torch.arange(0))
    assert "at least 1; got inputs of shape (0, 1, 4, 4)" in refusal(
        capsys, factory, "--data", empty
    )


def test_an_untrained_network_asks_for_weights(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("sklearn")
    assert "--weights" in refusal(capsys, "cp-digits", "--data", "digits", "--samples", "5")


def test_a_folder_that_cannot_be_made_is_an_error(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, factory: str, labelled: str
) -> None:
    (tmp_path / "taken").write_text("", encoding="utf-8")
    options = ("--data", labelled, "--jacobians", "0", "-o", str(tmp_path / "taken" / "inside"))
    assert "Cannot make the folder" in refusal(capsys, factory, *options)
