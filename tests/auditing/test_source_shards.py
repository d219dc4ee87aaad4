import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from rankscope.auditing import Shards
from rankscope.errors import ModelFileError
from rankscope.tensor_files import SafetensorsFile, TorchFile

INDEX = "model.safetensors.index.json"


def opened(folder: Path, weight_map: object, **files: dict[str, torch.Tensor]) -> Shards:
    for name, tensors in files.items():
        save_file(tensors, folder / f"{name}.safetensors")
    (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    return Shards(folder / INDEX, open_file=SafetensorsFile)


def test_tensors_come_from_the_files_that_the_index_names(tmp_path: Path) -> None:
    shards = opened(
        tmp_path,
        {"b": "two.safetensors", "a": "one.safetensors", "shared": "two.safetensors"},
        one={"a": torch.full((2,), 1.0), "shared": torch.full((3,), 1.0)},
        two={"b": torch.full((4,), 2.0), "shared": torch.full((5,), 2.0)},
    )
    assert [(entry.name, entry.shape) for entry in shards.entries] == [
        ("a", (2,)),
        ("b", (4,)),
        ("shared", (5,)),
    ]
    assert [float(shards.read(name)[0]) for name in ("a", "b", "shared")] == [1.0, 2.0, 2.0]


def test_a_tensor_that_the_index_leaves_out_is_listed_once(tmp_path: Path) -> None:
    a, b, more = torch.ones(1), torch.ones(2), torch.ones(3)
    weight_map = {"a": "one.safetensors", "b": "two.safetensors"}
    shards = opened(tmp_path, weight_map, one={"a": a, "more": more}, two={"b": b})
    assert [entry.name for entry in shards.entries] == ["a", "more", "b"]
    with pytest.raises(ModelFileError, match="two files hold 'more', and the index names neither"):
        opened(tmp_path, weight_map, one={"a": a, "more": more}, two={"b": b, "more": more})


def test_both_names_of_a_tied_tensor_may_stand_in_the_index(tmp_path: Path) -> None:
    weight = torch.ones(2)
    torch.save({"embedding": weight, "head": weight}, tmp_path / "one.bin")
    weight_map = {"embedding": "one.bin", "head": "one.bin"}
    (tmp_path / "index").write_text(json.dumps({"weight_map": weight_map}))
    shards = Shards(tmp_path / "index", open_file=TorchFile)
    assert [(entry.name, entry.tied_names) for entry in shards.entries] == [
        ("embedding", ("head",))
    ]


def test_missing_files_are_named(tmp_path: Path) -> None:
    weight_map = {"a": "one.safetensors", "b": "two.safetensors", "c": "three.safetensors"}
    with pytest.raises(
        ModelFileError,
        match=r"names 3 files, of which 2 are missing: 'three\.safetensors', 'two\.safetensors'",
    ):
        opened(tmp_path, weight_map, one={"a": torch.ones(1)})


def test_of_many_missing_files_the_first_are_named(tmp_path: Path) -> None:
    weight_map = {f"w{at}": f"{at:02}.safetensors" for at in range(11)}
    with pytest.raises(ModelFileError, match=r"11 are missing: '00\..* '07\.\w+' and 3 more\."):
        opened(tmp_path, weight_map)


def test_a_name_that_no_file_can_have_is_missing(tmp_path: Path) -> None:
    for name in ("x" * 5000, "a\x00b", "\ud800"):
        with pytest.raises(ModelFileError, match="names 1 files, of which 1 are missing"):
            opened(tmp_path, {"a": name})


def test_a_tensor_that_its_file_lacks_is_named(tmp_path: Path) -> None:
    weight_map = {"a": "one.safetensors", "b": "one.safetensors"}
    with pytest.raises(
        ModelFileError, match=r"'one.safetensors' holds 2 tensors, of which 1 are not there: 'b'"
    ):
        opened(tmp_path, weight_map, one={"a": torch.ones(1)})


@pytest.mark.parametrize("weight_map", [None, [], {}])
def test_an_index_without_a_map_is_refused(tmp_path: Path, weight_map: object) -> None:
    with pytest.raises(ModelFileError, match="has no weight_map"):
        opened(tmp_path, weight_map)


@pytest.mark.parametrize("file", ["../secret", "/etc/passwd", "a\\b", "..", "", 3, None])
def test_an_index_cannot_lead_out_of_its_folder(tmp_path: Path, file: object) -> None:
    with pytest.raises(ModelFileError, match="'a' must be a name in the same folder, got"):
        opened(tmp_path, {"a": file})
