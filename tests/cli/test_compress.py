"""`rankscope compress` from the command line."""

import json
from functools import partial
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from tests.cli.conftest import answer_of, refusal_of
from torch import nn

from rankscope.cli.main import main
from rankscope.compression import load

FACTORY = """
import torch
from torch import nn

def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(40, 40), nn.ReLU(), nn.Linear(40, 6))

def number():
    return 3
"""


@pytest.fixture
def factory(tmp_path: Path, request: pytest.FixtureRequest) -> str:
    name = f"own_networks_{abs(hash(request.node.name))}"
    (tmp_path / f"{name}.py").write_text(FACTORY, encoding="utf-8")
    return name


answer, refusal = partial(answer_of, "compress"), partial(refusal_of, "compress")


def test_a_dry_run_prints_what_machines_read(capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(capsys, "digits", "--keep", "0.3", "--dry-run", "--formats", "svd,tucker")
    assert found["dense_parameters"] == 19178
    assert found["kept_parameters"] <= 0.3 * 19178
    assert (found["keep"], found["by"]) == (0.3, "parameters")
    layers = {layer["name"]: layer for layer in found["layers"]}
    assert set(layers) == {"conv1", "conv2", "conv3", "linear"}
    assert sum(layer["kept"] for layer in layers.values()) == found["kept_parameters"]
    assert layers["linear"]["format"] == "svd"
    assert 0 < layers["linear"]["error"] < 1
    assert layers["conv1"]["reason"].startswith("reads a single channel")


def test_a_second_budget_is_met_as_well(capsys: pytest.CaptureFixture[str]) -> None:
    options = ("digits", "--keep", "0.5", "--dry-run", "--formats", "svd")
    found = answer(capsys, *options, "--also", "flops=0.3")
    assert found["also"] == {"flops": 0.3}
    assert found["kept"]["flops"] <= 0.3 * found["dense"]["flops"]
    assert "--also takes a unit and a share, like latency=0.5, got 'flops'" in refusal(
        capsys, *options, "--also", "flops"
    )
    assert "got 'seconds=0.5'" in refusal(capsys, *options, "--also", "seconds=0.5")


def test_people_get_a_table_and_what_ratio_means(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compress", "digits", "--keep", "0.5", "--dry-run", "--formats", "svd"]) == 0
    printed = capsys.readouterr().out
    assert "Ratio is kept / dense" in printed
    assert "parameters" in printed
    assert "conv2" in printed


def test_units_count_on_the_usual_input_of_a_built_in_network(
    capsys: pytest.CaptureFixture[str],
) -> None:
    command = ("digits", "--by", "flops", "--keep", "0.5", "--dry-run", "--formats", "svd")
    found = answer(capsys, *command)
    assert 0 < found["kept"]["flops"] <= 0.5 * found["dense"]["flops"]


def test_a_factory_with_weights_and_data_is_compressed_and_loads_again(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, factory: str
) -> None:
    dense = nn.Sequential(nn.Linear(40, 40), nn.ReLU(), nn.Linear(40, 6))
    inputs = torch.randn(100, 40)
    save_file(dense.state_dict(), tmp_path / "weights.safetensors")
    save_file({"inputs": inputs}, tmp_path / "inputs.safetensors")
    found = answer(
        capsys,
        f"{factory}:network",
        *("--weights", "weights.safetensors", "--data", "inputs.safetensors"),
        *("--keep", "0.5", "-o", "small"),
    )
    assert found["scoring"] == "loss"
    small = load(tmp_path / "small", into=dense)
    kept = sum(parameter.numel() for parameter in small.parameters())
    assert kept == found["kept_parameters"] <= 0.5 * found["dense_parameters"]
    outputs = dense(inputs)
    assert float((small(inputs) - outputs).detach().norm() / outputs.detach().norm()) < 1


def test_bits_tolerance_and_leave_reach_the_plan(
    capsys: pytest.CaptureFixture[str], factory: str
) -> None:
    model = f"{factory}:network"
    found = answer(capsys, model, "--by", "bytes", "--keep", "0.3", "--bits", "8", "--dry-run")
    assert 8 in {layer["bits"] for layer in found["layers"]}
    found = answer(capsys, model, "--tolerance", "0", "--dry-run", "--leave", "2")
    assert [layer["format"] for layer in found["layers"]] == [None, None]
    assert found["layers"][1]["reason"] == "left alone as asked"
    command = (model, "--by", "flops", "--input", "3,40", "--keep", "0.6", "--dry-run")
    assert answer(capsys, *command)["dense"]["flops"] == 2 * 3 * (1600 + 240)


def test_wrong_requests_list_the_right_ones(
    capsys: pytest.CaptureFixture[str], factory: str
) -> None:
    dry = "--dry-run"
    assert "latency, got 'time'" in refusal(capsys, "digits", dry, "--by", "time")
    assert "tensor-ring" in refusal(capsys, "digits", dry, "--formats", "svd,tt")
    assert "like 32,8, got 'few'" in refusal(capsys, "digits", dry, "--bits", "few")
    assert "-o FOLDER, or plan with --dry-run" in refusal(capsys, "digits")
    assert "There is no model 'resnet'. Did you mean resnet" in refusal(capsys, "resnet", dry)
    assert "gives a int" in refusal(capsys, f"{factory}:number", dry)
    assert "'nothing' is none of them" in refusal(capsys, "digits", dry, "--data", "nothing")
    message = refusal(capsys, f"{factory}:network", dry, "--data", ".")
    assert "takes from the folder '.' is not known" in message


def test_weights_of_another_shape_are_refused_naming_both(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, factory: str
) -> None:
    other = nn.Sequential(nn.Linear(40, 40), nn.ReLU(), nn.Linear(40, 7))
    save_file(other.state_dict(), tmp_path / "other.safetensors")
    message = refusal(capsys, f"{factory}:network", "--dry-run", "--weights", "other.safetensors")
    assert "(7,)" in message
    assert "(6,)" in message


def test_nan_in_a_weights_file_is_refused_with_the_name_of_its_weight(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, factory: str
) -> None:
    state = nn.Sequential(nn.Linear(40, 40), nn.ReLU(), nn.Linear(40, 6)).state_dict()
    state["2.weight"][3, 5] = float("nan")
    state["2.weight"][4, 0] = float("inf")
    save_file(state, tmp_path / "broken.safetensors")
    message = refusal(capsys, f"{factory}:network", "--dry-run", "--weights", "broken.safetensors")
    assert "2.weight holds 2 NaN or infinite numbers of 240" in message


def test_data_of_unequal_lengths_are_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    save_file({"a": torch.zeros(3, 2), "b": torch.zeros(4, 2)}, tmp_path / "data.safetensors")
    message = refusal(capsys, "digits", "--dry-run", "--data", "data.safetensors")
    assert "got {'a': 3, 'b': 4}" in message


@pytest.mark.slow
def test_an_untrained_network_is_planned_with_a_note_but_not_written(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RANKSCOPE_DATA", raising=False)
    found = answer(capsys, "resnet20", "--keep", "0.5", "--dry-run", "--formats", "svd")
    assert found["notes"][0].startswith("The weights are untrained: There is no resnet_cifar10/")
    assert "There is no resnet_cifar10/" in refusal(capsys, "resnet20", "-o", "out")


@pytest.mark.slow
def test_a_written_model_is_measured_beside_the_dense_one(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    folder = tmp_path / "small"
    assert main(["compress", "digits", "--keep", "0.5", "--data", "digits", "-o", str(folder)]) == 0
    printed = capsys.readouterr().out
    assert "latency at batch 1" in printed
    assert "latency at batch 64" in printed
    report = json.loads((folder / "report.json").read_bytes())
    (score,) = report["scores"]
    assert score["name"] == "accuracy"
    assert f"{score['dense']:.2%}" in printed
    assert f"{score['compressed']:.2%}" in printed
    assert [total["unit"] for total in report["totals"]] == ["parameters", "bytes", "flops"]


@pytest.mark.slow
def test_measured_losses_are_kept_until_the_model_is_written(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    command = ["compress", "digits", "--keep", "0.5", "--data", "digits", "-o", str(tmp_path / "o")]
    with monkeypatch.context() as patch:
        # The end of a process while it factorizes, after planning.
        patch.setattr("rankscope.compression.applying.carry_out", _interrupt)
        assert main(command) == 130
    assert {path.name for path in tmp_path.iterdir()} == {"o.losses.json"}
    capsys.readouterr()
    with monkeypatch.context() as patch:
        patch.setattr("rankscope.compression.loss_scores._measure", _interrupt)
        assert main(command) == 0
    assert {path.name for path in tmp_path.iterdir()} == {"o"}


def _interrupt(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def test_a_collapse_is_said_loudly_with_the_command_that_repairs(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    folder, data = tmp_path / "small", ["--data", "digits"]
    command = ["compress", "digits", "--keep", "0.05", *data, "--scores", "weights"]
    assert main([*command, "-o", str(folder), "--json"]) == 0
    captured = capsys.readouterr()
    json.loads(captured.out)
    (score,) = json.loads((folder / "report.json").read_bytes())["scores"]
    assert score["compressed"] < 0.9 * score["dense"]
    assert f"collapsed: accuracy {score['compressed']:.2%}, {score['dense']:.2%}" in captured.err
    again = f"rankscope {' '.join(command)} --repair 20 --output {folder}"
    assert sorted(captured.err.strip().partition("gives: ")[2].split()) == sorted(again.split())


def test_without_inputs_nobody_knows_what_a_model_is_worth(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["compress", "digits", "--keep", "0.5", "-o", str(tmp_path / "small")]) == 0
    assert "give inputs with --data or --text, and it is scored" in capsys.readouterr().err


def test_outputs_that_are_no_logits_are_compared_and_repaired(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    factory: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(1)
    save_file({"inputs": torch.randn(64, 40)}, "inputs.safetensors")
    command = ["compress", f"{factory}:network", "--keep", "0.3", "--data", "inputs.safetensors"]
    errors = []
    for wish in ([], ["--repair", "0.02"]):
        assert main([*command, *wish, "-o", f"small{len(wish)}"]) == 0
        (score,) = json.loads(Path(f"small{len(wish)}", "report.json").read_bytes())["scores"]
        assert (score["name"], score["dense"]) == ("output error", 0.0)
        errors.append(score["compressed"])
    assert errors[1] < errors[0]
    assert "collapsed: output error" in capsys.readouterr().err
