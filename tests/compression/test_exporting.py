"""Exported files give what the module gives, and are smaller than the dense ones."""

import importlib
from pathlib import Path as FilePath

import pytest
import torch
from torch import Tensor, nn

from rankscope.compression import (
    Batch,
    Exporter,
    OnnxExporter,
    TorchExporter,
    Unit,
    compress,
    export,
)
from rankscope.compression.exporting import arguments, tensors
from rankscope.errors import CompressionError, MissingExtraError
from rankscope.factorize import FactorizedLinear, Path


class Images(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(32, 32, 3, padding=1)
        self.linear = nn.Linear(32, 600)

    def forward(self, images: Tensor) -> Tensor:
        features = self.convolution(images).relu().mean(dim=(2, 3))
        outputs: Tensor = self.linear(features)
        return outputs


def images() -> Tensor:
    return torch.randn(1, 32, 4, 4, generator=torch.Generator().manual_seed(0))


def made(kind: str) -> Exporter:
    return OnnxExporter() if kind == "onnx" else TorchExporter()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["torch", "onnx"])
@pytest.mark.parametrize("bits", [(), (4,)])
def test_a_file_is_smaller_and_runs_on_any_batch(
    tmp_path: FilePath, kind: str, bits: tuple[int, ...]
) -> None:
    torch.manual_seed(0)
    dense = Images()
    small = compress(dense, keep=0.15, by=Unit.BYTES, bits=bits).model
    for module in small.modules():
        if hasattr(module, "path"):
            module.path = Path.MERGED  # type: ignore[assignment]
    path = tmp_path / "model"
    exported = export(small, images(), path, made(kind), dense=dense)
    assert exported.num_bytes == path.stat().st_size
    assert exported.dense_bytes is not None
    assert exported.ratio == exported.num_bytes / exported.dense_bytes < 1
    assert exported.evaluation_path == "chain"
    assert {part.path for part in small.modules() if hasattr(part, "path")} == {Path.MERGED}
    batch = images().expand(5, -1, -1, -1).contiguous()
    (found,) = made(kind).run(path.read_bytes(), batch)
    with torch.no_grad():
        wanted = small.eval()(batch)
    torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-4)


def test_a_fixed_batch_is_kept_and_inputs_may_be_named(tmp_path: FilePath) -> None:
    class Pair(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 3)

        def forward(self, first: Tensor, second: Tensor) -> dict[str, Tensor]:
            return {"sum": self.linear(first) + second.reshape(2, 3)}

    example = {"first": torch.randn(2, 4), "second": torch.randn(6)}
    exported = export(Pair(), example, tmp_path / "pair.pt2", any_batch=False)
    assert (exported.dense_bytes, exported.ratio) == (None, None)
    assert exported.to_dict()["kind"] == "torch.export"
    assert exported.difference < 1e-6


def test_a_model_that_fixes_its_batch_is_refused_with_advice(tmp_path: FilePath) -> None:
    class Fixed(nn.Module):
        def forward(self, inputs: Tensor) -> Tensor:
            return inputs.reshape(2, 3) + 1

    with pytest.raises(CompressionError, match=r"cannot write Fixed: .*any_batch=False"):
        export(Fixed(), torch.randn(2, 3), tmp_path / "fixed.pt2")
    assert not list(tmp_path.iterdir())


class Wrong(TorchExporter):
    """Says something else than the model."""

    def run(self, data: bytes, example: Batch) -> list[Tensor]:
        return [2 * output for output in super().run(data, example)]


def test_a_file_that_gives_other_outputs_is_not_written(tmp_path: FilePath) -> None:
    with pytest.raises(CompressionError, match=r"differ from the model's by 1 of .* over 0.001"):
        export(nn.Linear(3, 2), torch.randn(2, 3), tmp_path / "wrong.pt2", Wrong())
    assert not list(tmp_path.iterdir())


class Cut(TorchExporter):
    def run(self, data: bytes, example: Batch) -> list[Tensor]:
        return [output[:1] for output in super().run(data, example)]


def test_outputs_of_another_shape_are_another_output(tmp_path: FilePath) -> None:
    with pytest.raises(CompressionError, match="differ from the model's by inf"):
        export(nn.Linear(3, 2), torch.randn(2, 3), tmp_path / "cut.pt2", Cut())


class Refusing(TorchExporter):
    def run(self, data: bytes, example: Batch) -> list[Tensor]:
        raise TypeError("no such dtype")


def test_a_file_that_does_not_run_is_not_written(tmp_path: FilePath) -> None:
    with pytest.raises(CompressionError, match=r"cannot be run on \(\(2, 3\)\): no such dtype"):
        export(nn.Linear(3, 2), torch.randn(2, 3), tmp_path / "refused.pt2", Refusing())
    with pytest.raises(CompressionError, match="onnxruntime cannot open the file"):
        OnnxExporter().run(b"no model", torch.ones(1))
    assert not list(tmp_path.iterdir())


def test_a_file_that_is_not_smaller_is_not_written(tmp_path: FilePath) -> None:
    model = nn.Sequential(nn.Linear(3, 3))
    with pytest.raises(CompressionError, match=r"bytes, not fewer than the dense model's"):
        export(model, torch.randn(2, 3), tmp_path / "same.pt2", dense=model)
    assert not list(tmp_path.iterdir())


def test_a_path_that_rebuilds_would_have_been_exported_dense(tmp_path: FilePath) -> None:
    from rankscope.factorize import FORMATS

    layer = FactorizedLinear.from_dense(nn.Linear(64, 64), FORMATS["svd"], (2,))
    layer.path = Path.REBUILT
    export(layer, torch.randn(2, 64), tmp_path / "chain.pt2")
    program = torch.export.load(tmp_path / "chain.pt2")
    found = [node.meta.get("val") for node in program.graph.nodes]
    values = [value for value in found if isinstance(value, Tensor)]
    assert values
    assert (64, 64) not in [tuple(value.shape) for value in values]


def test_an_extra_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(MissingExtraError, match=r"ONNX needs onnx, .*rankscope\[export\]"):
        OnnxExporter()


def test_models_too_large_for_one_onnx_file_are_refused() -> None:
    class Large(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.empty(2**30, device="meta"))

        def forward(self, inputs: Tensor) -> Tensor:
            return inputs

    with pytest.raises(CompressionError, match=r"4,294,967,296 bytes, .* at most 2,147,483,647"):
        OnnxExporter().write(Large(), torch.ones(1), any_batch=False)


def test_batches_become_arguments_and_outputs_a_list() -> None:
    one, two = torch.zeros(1), torch.ones(2)
    assert arguments(one) == ((one,), {})
    assert arguments((one, two)) == ((one, two), {})
    assert arguments({"one": one}) == ((), {"one": one})
    assert tensors({"a": (one, [two]), "b": 3}) == [one, two]
