"""Saved models come back to the bit, and folders are whole or untouched."""

import copy
import json
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from rankscope.compression import Compressed, Unit, compress, load, save, saving
from rankscope.errors import CompressionError, ModelFileError, OutputError
from rankscope.factorize import FactorizedLinear


class Mixed(nn.Module):
    """Every class that can be compressed, tied weights, and a normalization."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(40, 16)
        self.recurrent = nn.GRU(16, 16, batch_first=True)
        self.attention = nn.MultiheadAttention(16, 2, batch_first=True)
        self.convolution = nn.Conv1d(16, 16, 3, padding=1)
        self.norm = nn.BatchNorm1d(16)
        self.linear = nn.Linear(16, 32)
        self.head = nn.Linear(32, 40, bias=False)
        self.other = nn.Linear(32, 40, bias=False)
        self.other.weight = self.head.weight

    def forward(self, numbers: Tensor) -> Tensor:
        states, _ = self.recurrent(self.embedding(numbers))
        mixed, _ = self.attention(states, states, states)
        features = self.norm(self.convolution(mixed.mT)).mT
        hidden = self.linear(features).relu()
        outputs: Tensor = self.head(hidden) + self.other(hidden)
        return outputs


def mixed() -> Mixed:
    torch.manual_seed(0)
    model = Mixed()
    with torch.no_grad():
        model(numbers())  # statistics of its own
    return model


def numbers() -> Tensor:
    return torch.randint(40, (3, 7), generator=torch.Generator().manual_seed(0))


def small(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(16, 24), nn.ReLU(), nn.Linear(24, 4))


def require_same(one: nn.Module, other: nn.Module, inputs: Tensor) -> None:
    state = other.state_dict()
    assert set(one.state_dict()) == set(state)
    for name, value in one.state_dict().items():
        assert torch.equal(value, state[name]), name
        assert value.dtype == state[name].dtype
    with torch.no_grad():
        torch.testing.assert_close(one.eval()(inputs), other(inputs))


@pytest.mark.parametrize("bits", [(), (8,), (4,)])
def test_a_model_of_all_classes_comes_back(tmp_path: Path, bits: tuple[int, ...]) -> None:
    dense = mixed()
    compressed = compress(dense, keep=0.5, by=Unit.BYTES, bits=bits)
    kinds = {row.kind for row in compressed.plan.rows if row.format is not None}
    assert len(kinds) >= 3
    save(compressed, tmp_path / "out", dense=dense, example=numbers())
    loaded = load(tmp_path / "out", into=Mixed)
    assert not any(part.training for part in loaded.modules())
    require_same(compressed.model, loaded, numbers())
    assert loaded.get_submodule("head").cores is loaded.get_submodule("other").cores
    assert sorted(path.name for path in tmp_path.rglob("*.*")) == [
        "model.safetensors",
        "plan.json",
    ]


def test_tied_weights_are_written_once(tmp_path: Path) -> None:
    dense = mixed()
    compressed = compress(dense, keep=0.8, leave=["head"])
    save(compressed, tmp_path)
    stored = (tmp_path / "model.safetensors").stat().st_size
    held = sum(tensor.nbytes for tensor in compressed.model.state_dict().values())
    assert stored < held


def test_the_cores_of_a_tied_weight_are_there_once_and_change_together(tmp_path: Path) -> None:
    small_model = compress(mixed(), keep=0.4, bits=(8,)).model
    names = [name for name in small_model.state_dict() if name.startswith(("head", "other"))]
    assert names
    assert all(name.startswith("head.cores.") for name in names)
    again = copy.deepcopy(small_model)
    head, other = again.get_submodule("head"), again.get_submodule("other")
    assert isinstance(head, FactorizedLinear)
    assert isinstance(other, FactorizedLinear)
    assert head.cores is other.cores
    assert head.cores is not small_model.get_submodule("head").cores
    assert torch.equal(other.weight, head.weight)


def test_a_built_in_network_is_rebuilt_by_its_name(tmp_path: Path) -> None:
    from rankscope.networks import build

    compressed = compress(build("digits"), keep=0.3)
    save(compressed, tmp_path / "digits", built_in="digits")
    loaded = load(tmp_path / "digits")
    for name, value in compressed.model.state_dict().items():
        assert torch.equal(value, loaded.state_dict()[name])


def test_half_precision_comes_back_in_half_precision(tmp_path: Path) -> None:
    dense = small().to(torch.bfloat16)
    compressed = compress(dense, keep=0.5)
    save(compressed, tmp_path, dense=small())
    loaded = load(tmp_path, into=small)
    require_same(compressed.model, loaded, torch.randn(2, 16, dtype=torch.bfloat16))


def test_the_dense_model_is_left_as_it_is(tmp_path: Path) -> None:
    dense = small()
    save(compress(dense, keep=0.5), tmp_path, dense=dense)
    before = {name: value.clone() for name, value in dense.state_dict().items()}
    loaded = load(tmp_path, into=dense)
    assert loaded is not dense
    assert isinstance(dense[0], nn.Linear)  # type: ignore[index]
    for name, value in dense.state_dict().items():
        assert torch.equal(value, before[name])


def test_a_model_in_the_folder_is_replaced_and_other_files_stay(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    for seed in (0, 1):
        compressed = compress(small(seed), keep=0.5)
        save(compressed, tmp_path)
    require_same(compressed.model, load(tmp_path, into=small), torch.randn(2, 16))
    assert {path.name for path in tmp_path.iterdir()} == {
        "model.safetensors",
        "notes.txt",
        "plan.json",
    }


def test_an_interruption_between_the_two_files_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(compress(small(0), keep=0.5), tmp_path)
    replace_file = Path.replace

    def interrupt(self: Path, target: Path) -> Path:
        if Path(target) == tmp_path / "plan.json":
            raise KeyboardInterrupt
        return replace_file(self, target)

    monkeypatch.setattr(Path, "replace", interrupt)
    with pytest.raises(KeyboardInterrupt):
        save(compress(small(1), keep=0.5), tmp_path)
    monkeypatch.undo()
    with pytest.raises(ModelFileError, match="was changed, or is of another model"):
        load(tmp_path, into=small)
    assert {path.name for path in tmp_path.iterdir()} == {"model.safetensors", "plan.json"}


def test_outputs_that_are_not_finite_are_not_saved(tmp_path: Path) -> None:
    compressed = compress(small(), keep=0.5)
    with torch.no_grad():
        compressed.model.get_parameter("2.bias")[1] = float("nan")
    with pytest.raises(CompressionError, match="gives 2 NaN or infinite numbers of 8"):
        save(compressed, tmp_path / "out", example=torch.randn(2, 16))
    assert not list(tmp_path.iterdir())


def test_a_plan_of_another_model_is_not_saved(tmp_path: Path) -> None:
    compressed = compress(small(), keep=0.5)
    other = compress(small(), keep=0.4)
    with pytest.raises(ModelFileError, match="names do not fit"):
        save(Compressed(other.model, compressed.plan), tmp_path / "out", dense=small())
    assert not list(tmp_path.iterdir())


def test_numbers_outside_of_the_state_are_noticed(tmp_path: Path) -> None:
    class Shifted(nn.Module):
        def __init__(self, shift: float) -> None:
            super().__init__()
            self.linear, self.shift = nn.Linear(16, 16), shift

        def forward(self, inputs: Tensor) -> Tensor:
            outputs: Tensor = self.linear(inputs) + self.shift
            return outputs

    compressed = compress(Shifted(1.0), keep=0.5)
    with pytest.raises(CompressionError, match="outputs that differ by 1"):
        save(
            compressed,
            tmp_path / "out",
            dense=Shifted(0.0),
            example=torch.randn(2, 16),
        )


def test_state_that_is_no_tensor_is_refused(tmp_path: Path) -> None:
    class Extra(nn.Module):
        def __init__(self, inner: nn.Module) -> None:
            super().__init__()
            self.inner = inner

        def get_extra_state(self) -> str:
            return "words"

        def set_extra_state(self, state: object) -> None:
            pass

    compressed = compress(small(), keep=0.5)
    with pytest.raises(CompressionError, match="_extra_state of the model's state is a str"):
        save(Compressed(Extra(compressed.model), compressed.plan), tmp_path / "out")


def test_numbers_that_are_not_read_back_are_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compressed = compress(small(), keep=0.5)

    def forget(folder: Path, into: nn.Module) -> nn.Module:
        model = load(folder, into=into)
        with torch.no_grad():
            model.get_parameter("2.bias").zero_()
        return model

    monkeypatch.setattr(saving, "load", forget)
    with pytest.raises(CompressionError, match=r"2\.bias is not read back as it was written"):
        save(compressed, tmp_path / "out", dense=small())
    assert not list(tmp_path.iterdir())


def test_a_file_in_the_way_and_a_parent_that_is_a_file_are_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    compressed = compress(small(), keep=0.5)
    with pytest.raises(OutputError, match="a file of that name is in the way"):
        save(compressed, tmp_path / "file")
    with pytest.raises(OutputError, match="Cannot write"):
        save(compressed, tmp_path / "file" / "inside")


def test_the_plan_is_json_that_names_no_code(tmp_path: Path) -> None:
    save(compress(small(), keep=0.5), tmp_path)
    plan = json.loads((tmp_path / "plan.json").read_text())
    assert plan["built_in"] is None
    assert set(plan["weights"]) == {"file", "bytes", "sha256"}
    assert plan["kept_parameters"] <= 0.5 * plan["dense_parameters"]
