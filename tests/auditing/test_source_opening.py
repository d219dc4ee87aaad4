import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from rankscope.auditing import open_model
from rankscope.errors import ModelFileError
from rankscope.tensor_files import TensorSource

SHARED = Path(os.environ.get("RANKSCOPE_SHARED", Path(__file__).parents[3] / "shared" / "data"))
CONFIG = {"model_type": "gpt2", "n_embd": 4}


def names(tensors: TensorSource | None) -> list[str]:
    assert tensors is not None
    return [entry.name for entry in tensors.entries]


def write_config(folder: Path) -> None:
    (folder / "config.json").write_text(json.dumps(CONFIG))


def write_index(path: Path, **weight_map: str) -> None:
    path.write_text(json.dumps({"weight_map": weight_map}))


def test_a_folder_gives_configuration_and_weights(tmp_path: Path) -> None:
    write_config(tmp_path)
    save_file({"w": torch.ones(2)}, tmp_path / "model.safetensors")
    model = open_model(tmp_path)
    assert (model.name, model.config) == (str(tmp_path), CONFIG)
    assert names(model.tensors) == ["w"]


def test_a_folder_may_hold_only_one_of_the_two(tmp_path: Path) -> None:
    write_config(tmp_path)
    assert open_model(str(tmp_path)).tensors is None
    (tmp_path / "config.json").unlink()
    save_file({"w": torch.ones(2)}, tmp_path / "adapter.safetensors")
    model = open_model(tmp_path)
    assert model.config is None
    assert names(model.tensors) == ["w"]


def test_weights_of_a_folder_are_looked_for_in_the_usual_order(tmp_path: Path) -> None:
    save_file({"whole": torch.ones(1)}, tmp_path / "model.safetensors")
    save_file({"part": torch.ones(1)}, tmp_path / "part.safetensors")
    write_index(tmp_path / "model.safetensors.index.json", part="part.safetensors")
    torch.save({"torch": torch.ones(1)}, tmp_path / "pytorch_model.bin")
    torch.save({"piece": torch.ones(1)}, tmp_path / "piece.bin")
    write_index(tmp_path / "pytorch_model.bin.index.json", piece="piece.bin")
    found = []
    for file in (
        "model.safetensors",
        "model.safetensors.index.json",
        "pytorch_model.bin",
        "pytorch_model.bin.index.json",
    ):
        found += names(open_model(tmp_path).tensors)
        assert names(open_model(tmp_path / file).tensors) == found[-1:]
        (tmp_path / file).unlink()
    assert found == ["whole", "part", "torch", "piece"]


@pytest.mark.parametrize("ending", ["pt", "pth", "bin", "ckpt"])
def test_files_of_torch_are_known_by_their_endings(tmp_path: Path, ending: str) -> None:
    torch.save({"w": torch.ones(2)}, tmp_path / f"file.{ending}")
    assert names(open_model(tmp_path / f"file.{ending}").tensors) == ["w"]


def test_any_json_file_is_a_configuration(tmp_path: Path) -> None:
    (tmp_path / "my model.json").write_text('{"_source": "here"}')
    model = open_model(tmp_path / "my model.json")
    assert (model.config, model.tensors) == ({"_source": "here"}, None)


def test_parameters_of_a_module_that_are_shared_have_one_entry() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(5, 3)
            self.norm = nn.BatchNorm1d(3)
            self.head = nn.Linear(3, 5, bias=False)
            self.head.weight = self.embedding.weight

    module = Tied()
    model = open_model(module)
    assert (model.name, model.config) == ("Tied", None)
    assert model.tensors is not None
    first = model.tensors.entries[0]
    assert (first.name, first.tied_names) == ("embedding.weight", ("head.weight",))
    rest = [name for name in module.state_dict() if name not in (first.name, *first.tied_names)]
    assert names(model.tensors)[1:] == rest
    for name in rest:
        assert model.tensors.read(name).equal(module.state_dict()[name])


def test_a_folder_without_a_model_is_refused_with_what_it_holds(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match=r"holds no model: .* it holds nothing"):
        open_model(tmp_path)
    for number in range(9):
        (tmp_path / f"{number}.txt").touch()
    with pytest.raises(ModelFileError, match=r"it holds 0\.txt, .*, 7\.txt …\."):
        open_model(tmp_path)


def test_several_weights_that_nothing_joins_are_refused(tmp_path: Path) -> None:
    for name in ("a", "b"):
        save_file({"w": torch.ones(2)}, tmp_path / f"{name}.safetensors")
    with pytest.raises(ModelFileError, match=r"holds 2 safetensors files .* a\.safetensors, b\."):
        open_model(tmp_path)


def test_a_folder_that_may_not_be_read_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(_: Path) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "iterdir", denied)  # permissions mean nothing to root
    with pytest.raises(ModelFileError, match=r"Cannot read .*: Permission denied"):
        open_model(tmp_path)


def test_what_is_of_no_known_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match=r"Cannot read 'a\.package:factory': No such file"):
        open_model("a.package:factory")
    (tmp_path / "model.tflite").write_bytes(b"GGUF")
    with pytest.raises(ModelFileError, match=r"ends in '\.tflite'; wanted \.json, \.safetensors"):
        open_model(tmp_path / "model.tflite")
    with pytest.raises(ModelFileError, match=r"wanted a path or a torch\.nn\.Module, got a list"):
        open_model([nn.Linear(2, 2)])


def test_an_index_may_not_name_an_index(tmp_path: Path) -> None:
    index = tmp_path / "model.safetensors.index.json"
    write_index(index, w=index.name)
    with pytest.raises(ModelFileError, match=r"ends in '\.json'"):
        open_model(tmp_path)


def test_looking_into_a_model_loads_neither_torch_nor_numpy(tmp_path: Path) -> None:
    write_config(tmp_path)
    save_file({"w": torch.ones(2)}, tmp_path / "part.safetensors")
    write_index(tmp_path / "model.safetensors.index.json", w="part.safetensors")
    code = (
        "import sys; from rankscope.auditing.weight_files import open_model;"
        "print(open_model(sys.argv[1]).tensors.entries[0].shape,"
        "'torch' in sys.modules, 'numpy' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, timeout=120
    )
    assert done.stdout.strip() == "(2,) False False", done.stderr


@pytest.mark.skipif(not SHARED.is_dir(), reason=f"no data in {SHARED}")
def test_real_models_are_opened_and_agree_with_the_library_of_their_format() -> None:
    configs = sorted((SHARED / "configs").glob("*.json"))
    assert len(configs) > 70
    for path in configs:
        assert open_model(path).config
    for path in sorted((SHARED / "resnet_cifar10").glob("*.safetensors")):
        expected = load_file(path)
        tensors = open_model(path).tensors
        assert tensors is not None
        assert sorted(names(tensors)) == sorted(expected)
        for name, tensor in expected.items():
            assert tensors.read(name).equal(tensor)
