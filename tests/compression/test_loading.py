"""Folders that are damaged, tampered with, or of another model are refused with numbers."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from rankscope.compression import compress, load, save
from rankscope.errors import CompressionError, ModelFileError


def dense(width: int = 24) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, width), nn.ReLU(), nn.Linear(width, 4))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save(compress(dense(), keep=0.5), tmp_path / "saved", dense=dense())
    return tmp_path / "saved"


def edit_plan(folder: Path, edit: Callable[[Any], None]) -> None:
    plan = json.loads((folder / "plan.json").read_text())
    edit(plan)
    (folder / "plan.json").write_text(json.dumps(plan))


def edit_weights(folder: Path, edit: Callable[[dict[str, Tensor]], None]) -> None:
    """Change the weights and, as a forger would, the hash in the plan with them."""
    path = folder / "model.safetensors"
    tensors = load_file(path)
    edit(tensors)
    save_file(tensors, path)
    seal(folder)


def seal(folder: Path) -> None:
    data = (folder / "model.safetensors").read_bytes()
    new = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    edit_plan(folder, lambda plan: plan["weights"].update(new))


def test_a_file_that_is_cut_off_is_refused_with_both_sizes(folder: Path) -> None:
    path = folder / "model.safetensors"
    data = path.read_bytes()
    path.write_bytes(data[:-5])
    with pytest.raises(ModelFileError, match=f"{len(data) - 5:,} bytes.* for {len(data):,}"):
        load(folder, into=dense)


def test_a_byte_that_was_changed_is_refused(folder: Path) -> None:
    path = folder / "model.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    found = hashlib.sha256(data).hexdigest()
    with pytest.raises(ModelFileError, match=f"SHA-256 {found}"):
        load(folder, into=dense)


def test_a_plan_that_is_cut_off_is_refused(folder: Path) -> None:
    path = folder / "plan.json"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(ModelFileError, match=r"plan\.json is not usable JSON"):
        load(folder, into=dense)


@pytest.mark.parametrize("name", ["plan.json", "model.safetensors"])
def test_a_file_that_is_missing_is_named(folder: Path, name: str) -> None:
    (folder / name).unlink()
    with pytest.raises(ModelFileError, match=f"{name}.*: No such file"):
        load(folder, into=dense)


def test_weights_that_are_no_safetensors_are_refused(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"\x80\x04 a pickle, say")
    seal(folder)
    with pytest.raises(ModelFileError, match="is no safetensors file"):
        load(folder, into=dense)


def test_tensors_that_do_not_fit_are_refused(folder: Path) -> None:
    edit_weights(folder, lambda tensors: tensors.update({"2.bias": torch.zeros(9)}))
    with pytest.raises(ModelFileError, match=r"2.bias has the shape \(9,\), but .* has \(4,\)"):
        load(folder, into=dense)


def test_tensors_that_are_missing_or_unknown_are_refused(folder: Path) -> None:
    edit_weights(folder, lambda tensors: tensors.update({"3.bias": tensors.pop("2.bias")}))
    with pytest.raises(ModelFileError, match=r"2.bias is missing \(2 of"):
        load(folder, into=dense)


def test_tensors_of_another_kind_are_refused(folder: Path) -> None:
    edit_weights(
        folder, lambda tensors: tensors.update({"2.bias": torch.zeros(4, dtype=torch.int8)})
    )
    with pytest.raises(ModelFileError, match=r"2.bias is int8 .* but float32 by the plan"):
        load(folder, into=dense)


def test_ranks_that_cannot_be_are_refused_before_memory_is_taken(folder: Path) -> None:
    edit_plan(folder, lambda plan: plan["layers"][0].update(ranks=[10**12]))
    with pytest.raises(CompressionError, match=r"does not fit the model.*1000000000000"):
        load(folder, into=dense)


def test_an_unknown_format_is_refused(folder: Path) -> None:
    edit_plan(folder, lambda plan: plan["layers"][0].update(format="os.system"))
    with pytest.raises(CompressionError, match=r"unknown format 'os.system'"):
        load(folder, into=dense)


def test_another_model_is_refused_with_both_shapes(folder: Path) -> None:
    with pytest.raises(CompressionError, match=r"shape \(24, 16\), the model has \(25, 16\)"):
        load(folder, into=dense(25))
    with pytest.raises(CompressionError, match="compresses '0', which is no weight"):
        load(folder, into=nn.Linear(2, 2))


def test_a_model_that_is_not_built_in_has_to_be_passed(folder: Path) -> None:
    with pytest.raises(CompressionError, match="pass the dense model"):
        load(folder)
    edit_plan(folder, lambda plan: plan.update(built_in="os:system"))
    with pytest.raises(ModelFileError, match="a network 'os:system', but built in are digits"):
        load(folder)
    load(folder, into=dense())  # the caller's word counts
