"""One call from a model to its audit."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

import rankscope
from rankscope.auditing import audit, expected_tensors
from rankscope.errors import ConfigurationError, ModelFileError

GPT2: dict[str, object] = {
    "model_type": "gpt2",
    "n_embd": 16,
    "n_layer": 2,
    "n_head": 4,
    "n_positions": 8,
    "vocab_size": 20,
}


def write_model(folder: Path, config: dict[str, object]) -> Path:
    generator = torch.Generator().manual_seed(0)
    tensors = {
        tensor.name: torch.randn(tensor.shape, generator=generator)
        for tensor in expected_tensors(config)
        if not tensor.is_tied
    }
    folder.mkdir(exist_ok=True)
    save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder


def test_a_folder_is_audited_from_its_shape_and_its_weights(tmp_path: Path) -> None:
    found = audit(write_model(tmp_path / "model", GPT2))
    assert found.configuration is not None
    assert (found.configuration.depth, found.configuration.width) == (2, 16)
    stored = sum(torch.tensor(row.shape).prod().item() for row in found.tensors)
    assert found.parameters.total == stored
    assert all(row.matrices or row.reason for row in found.tensors)
    document = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert document["parameters"]["total"] == found.parameters.total
    assert [finding["id"] for finding in document["findings"]]


def test_weights_alone_are_counted_by_part(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "model", GPT2)
    alone = audit(folder / "model.safetensors")
    assert alone.configuration is None
    assert alone.parameters == audit(folder).parameters


def test_a_configuration_alone_has_no_tensors(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "model", GPT2)
    found = audit(folder / "config.json")
    assert found.tensors == ()
    assert "depth-regime" in [finding.id for finding in found.findings]


def test_a_module_and_a_saved_state_are_audited(tmp_path: Path) -> None:
    module = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Flatten(), nn.Linear(8, 4))
    found = audit(module, name="mine")
    assert found.source == "mine"
    assert found.parameters.total == sum(weight.numel() for weight in module.parameters())
    torch.save(module.state_dict(), tmp_path / "model.pt")
    assert audit(tmp_path / "model.pt").parameters == found.parameters


def test_statistics_of_batches_are_no_parameters() -> None:
    module = nn.Sequential(nn.Conv2d(2, 4, 3, stride=2), nn.BatchNorm2d(4))
    assert audit(module).parameters.total == sum(weight.numel() for weight in module.parameters())


def test_the_weightiest_finding_comes_first(tmp_path: Path) -> None:
    config = {**GPT2, "vocab_size": 4}
    found = audit(write_model(tmp_path / "model", config))
    assert found.findings[0].id == "embedding-bottleneck"
    severities = [finding.severity for finding in found.findings]
    assert severities == sorted(severities, reverse=True)


def test_a_configuration_that_contradicts_its_weights_names_both_numbers(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "model", GPT2)
    (folder / "config.json").write_text(json.dumps({**GPT2, "n_layer": 3}), encoding="utf-8")
    with pytest.raises(ConfigurationError, match=r"3 blocks in the configuration, but 2"):
        audit(folder)
    wider = {**GPT2, "n_embd": 32}
    (folder / "config.json").write_text(json.dumps(wider), encoding="utf-8")
    with pytest.raises(ConfigurationError, match=r"contradicts the weights.*32.*16.*more"):
        audit(folder)


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        (
            torch.tensor([[1.0, float("nan")]]),
            r"a\.weight .* \(1 of 2 entries is NaN, 0 infinite\)",
        ),
        (
            torch.tensor([[1.0, float("inf")]]),
            r"a\.weight .* \(0 of 2 entries are NaN, 1 infinite\)",
        ),
        (torch.zeros(0, 4), r"a\.weight .* \(no entries: shape \(0, 4\)\), and 1 more are none"),
        (torch.ones(2, 2, dtype=torch.int8), r"a\.weight .* \(int8 entries"),
    ],
)
def test_weights_that_no_model_should_have_are_refused_by_name(
    weight: torch.Tensor, message: str, tmp_path: Path
) -> None:
    tensors = {"a.weight": weight, "steps": torch.tensor(3)}
    if weight.numel() == 0:
        tensors["b.weight"] = weight
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(ModelFileError, match=message):
        audit(tmp_path / "model.safetensors")


def test_buffers_of_integers_are_no_reason_to_refuse(tmp_path: Path) -> None:
    tensors = {"a.weight": torch.ones(2, 2), "position_ids": torch.arange(4).reshape(1, 4)}
    save_file(tensors, tmp_path / "model.safetensors")
    assert len(audit(tmp_path / "model.safetensors").tensors) == 2


def test_nothing_is_audited_where_there_is_nothing(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="holds no model"):
        audit(tmp_path)


def test_the_embedded_transformer_is_the_default() -> None:
    found = rankscope.audit()
    assert found.source == "the embedded transformer"
    assert found.configuration is not None
    assert found.configuration.family == "gpt2"
    assert len(found.tensors) > 10


def test_what_the_configuration_does_not_name_is_counted_and_said(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "model", GPT2)
    named = audit(folder).parameters
    tensors = load_file(folder / "model.safetensors")
    tensors["adapter.weight"] = torch.randn(500, 500)
    tensors["copy.weight"] = tensors["transformer.wte.weight"].clone()
    tensors["h.0.attn.bias"] = torch.ones(1, 1, 8, 8).tril()  # a mask, not learned
    tensors["steps"] = torch.tensor(3)
    save_file(tensors, folder / "model.safetensors")
    found = audit(folder)
    assert found.parameters.total == named.total + 250_000
    assert found.parameters.other == named.other + 250_000
    finding = next(one for one in found.findings if one.id == "unnamed-tensors")
    assert finding.value == 250_000
    assert "250,000 parameters that the configuration does not name, in 1 tensors" in finding.title
    assert "adapter.weight" in finding.title


def test_numbers_whose_squares_overflow_are_refused(tmp_path: Path) -> None:
    weight = torch.full((3, 4), 1e200, dtype=torch.float64)
    weight[0, 0], weight[1, 1] = float("inf"), 1.0
    save_file({"fc.weight": weight}, tmp_path / "model.safetensors")
    with pytest.raises(
        ModelFileError,
        match=r"0 of 12 entries are NaN, 1 infinite, 10 above 1e\+140, too large to be squared",
    ):
        audit(tmp_path / "model.safetensors")
