"""Weights come from public file formats, and fit exactly or are refused with both shapes."""

import pickle
from pathlib import Path

import numpy
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from rankscope.errors import ModelFileError
from rankscope.networks import RecurrentLanguageModel, ResNet, load_weights, read_weights

TENSORS = {"weight": torch.arange(6.0).reshape(2, 3), "bias": torch.tensor([1.0, -1.0])}


def same(found: dict[str, Tensor], expected: dict[str, Tensor]) -> bool:
    return found.keys() == expected.keys() and all(
        torch.equal(found[name], expected[name]) for name in expected
    )


def test_all_formats_hold_the_same_tensors(tmp_path: Path) -> None:
    save_file(TENSORS, tmp_path / "weights.safetensors")
    weight, bias = TENSORS["weight"].numpy(), TENSORS["bias"].numpy()
    numpy.savez(tmp_path / "weights.npz", weight=weight, bias=bias)
    torch.save(TENSORS, tmp_path / "weights.pt")
    torch.save({"state_dict": TENSORS, "epoch": 3}, tmp_path / "weights.th")
    for path in tmp_path.iterdir():
        assert same(read_weights(path), TENSORS), path


def test_a_missing_file_is_refused_by_name() -> None:
    for name in ("none.safetensors", "none.npz", "none.pth"):
        with pytest.raises(ModelFileError, match=rf"Cannot read '{name}': No such file"):
            read_weights(Path(name))


def test_another_kind_of_file_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ModelFileError, match=r"ends in '.onnx'; wanted .safetensors, .npz, .pt"):
        read_weights(Path("model.onnx"))


@pytest.mark.parametrize("ending", [".safetensors", ".npz", ".pt"])
def test_a_damaged_file_is_refused(ending: str) -> None:
    path = Path(f"damaged{ending}")
    path.write_bytes(b"")
    with pytest.raises(ModelFileError, match=rf"damaged{ending}': it is empty"):
        read_weights(path)
    path.write_bytes(b"nonsense that is long enough to look at")
    with pytest.raises(ModelFileError, match=rf"damaged{ending} (is no|was not written by)"):
        read_weights(path)


class Trap:
    """Would leave a trace if it were unpickled."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (Path.touch, (Path("trace"),))  # type: ignore[return-value]


def test_no_code_of_a_file_is_run() -> None:
    Path("trap.pt").write_bytes(pickle.dumps(Trap(), protocol=2))
    torch.save({"weight": Trap()}, "trap.pth")
    numpy.savez("trap.npz", weight=numpy.array([Trap()], dtype=object))
    for name in ("trap.pt", "trap.pth"):
        with pytest.raises(
            ModelFileError, match=rf"{name} was not opened: it asks for '.*getattr'"
        ):
            read_weights(Path(name))
    with pytest.raises(ModelFileError, match=r"array 'weight.npy' holds numpy's object; wanted"):
        read_weights(Path("trap.npz"))
    assert not Path("trace").exists()


def test_a_file_that_holds_no_state_dict_is_refused() -> None:
    torch.save({"weight": 3}, "number.pt")
    torch.save([torch.zeros(2)], "list.pt")
    for name, reason in (
        ("number.pt", "no tensors by name"),
        ("list.pt", "a list; wanted a state"),
    ):
        with pytest.raises(ModelFileError, match=rf"{name} holds {reason}"):
            read_weights(Path(name))


def test_prefix_of_data_parallel_counters_and_dtypes_do_not_matter() -> None:
    published, model = ResNet(8, width=4), ResNet(8, width=4)
    state = published.state_dict()
    given = {f"module.{n}": t.half() for n, t in state.items() if "num_batches" not in n}
    given["module.position_ids"] = torch.arange(3)
    load_weights(model, given, who="file")
    for name, tensor in model.state_dict().items():
        assert tensor.dtype == state[name].dtype
        torch.testing.assert_close(tensor, state[name].half().to(tensor.dtype), rtol=0, atol=0)


def test_of_tied_weights_one_is_enough() -> None:
    published, model = (RecurrentLanguageModel(9, width=4, is_tied=True) for _ in range(2))
    given = {n: t for n, t in published.state_dict().items() if n != "decoder.weight"}
    load_weights(model, given, who="file")
    assert model.decoder.weight is model.encoder.weight
    assert torch.equal(model.decoder.weight, published.encoder.weight)


def test_tied_weights_that_differ_in_the_file_are_refused() -> None:
    untied, model = (
        RecurrentLanguageModel(9, width=4),
        RecurrentLanguageModel(9, width=4, is_tied=True),
    )
    with pytest.raises(
        ModelFileError, match=r"file: encoder.weight and decoder.weight are one weight in the model"
    ):
        load_weights(model, untied.state_dict(), who="file")


def test_nan_is_loaded_as_it_is_and_equals_itself_in_tied_weights() -> None:
    published, model = (RecurrentLanguageModel(9, width=4, is_tied=True) for _ in range(2))
    with torch.no_grad():
        published.encoder.weight[2, 1] = float("nan")
    load_weights(model, published.state_dict(), who="file")
    assert model.decoder.weight.isnan().nonzero().tolist() == [[2, 1]]


def test_another_shape_is_refused_with_both_and_nothing_is_changed() -> None:
    model = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 5))
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    given = {name: torch.zeros_like(tensor) for name, tensor in before.items()}
    given["1.weight"] = torch.zeros(4, 2)
    with pytest.raises(
        ModelFileError,
        match=r"file: 1.weight has the shape \(4, 2\), but that of Sequential has \(5, 2\)",
    ):
        load_weights(model, given, who="file")
    assert same(model.state_dict(), before)


def test_a_missing_and_an_unknown_name_are_refused() -> None:
    model = nn.Linear(3, 2)
    with pytest.raises(ModelFileError, match=r"bias is missing \(1 of 2 names do not fit\)"):
        load_weights(model, {"weight": torch.zeros(2, 3)}, who="file")
    with pytest.raises(ModelFileError, match=r"file: extra is none of Linear's \(1 of 2 names"):
        load_weights(model, {**model.state_dict(), "extra": torch.zeros(1)}, who="file")


def test_integers_are_no_weights() -> None:
    model = nn.Linear(3, 2)
    given = {"weight": torch.ones(2, 3, dtype=torch.int8), "bias": torch.zeros(2)}
    with pytest.raises(ModelFileError, match=r"weight holds torch.int8, .* Linear torch.float32;"):
        load_weights(model, given, who="file")
