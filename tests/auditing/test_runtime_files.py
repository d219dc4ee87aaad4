"""Weights of GGUF and ONNX files are audited like others."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rankscope import audit
from rankscope.auditing import open_model
from rankscope.errors import MissingExtraError, ModelFileError


def written_gguf(path: Path) -> dict[str, Any]:
    import gguf

    generator = np.random.default_rng(0)
    whole = generator.standard_normal((24, 64)).astype(np.float32)
    half = generator.standard_normal((8, 16)).astype(np.float16)
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_tensor("blk.0.ffn_up.weight", whole)
    writer.add_tensor("blk.0.attn_q.weight", half)
    kind = gguf.GGMLQuantizationType.Q8_0
    few = gguf.quantize(whole, kind)
    writer.add_tensor("blk.1.ffn_up.weight", few, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return {"blk.0.ffn_up.weight": whole, "blk.0.attn_q.weight": half}


def test_tensors_of_gguf_have_their_shapes_and_numbers(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    arrays = written_gguf(path)
    tensors = open_model(path).tensors
    assert tensors is not None
    shapes = {entry.name: (entry.shape, entry.dtype) for entry in tensors.entries}
    assert shapes["blk.1.ffn_up.weight"] == ((24, 64), "float32")
    assert shapes["blk.0.attn_q.weight"] == ((8, 16), "float16")
    for name, array in arrays.items():
        assert torch.equal(tensors.read(name), torch.from_numpy(array))
    rounded = tensors.read("blk.1.ffn_up.weight").numpy()
    assert np.abs(rounded - arrays["blk.0.ffn_up.weight"]).max() < 0.05
    assert audit(path).parameters.total == 2 * 24 * 64 + 8 * 16


def test_tensors_of_onnx_are_its_initializers(tmp_path: Path) -> None:
    import onnx

    path = tmp_path / "model.onnx"
    weight = np.random.default_rng(0).standard_normal((6, 4)).astype(np.float32)
    held = onnx.numpy_helper.from_array(weight, "linear.weight")
    node = onnx.helper.make_node("MatMul", ["x", "linear.weight"], ["y"])
    value = onnx.helper.make_tensor_value_info
    ends = [value(name, onnx.TensorProto.FLOAT, (2, size)) for name, size in (("x", 6), ("y", 4))]
    graph = onnx.helper.make_graph([node], "graph", ends[:1], ends[1:], [held])
    onnx.save(onnx.helper.make_model(graph), str(path))
    tensors = open_model(path).tensors
    assert tensors is not None
    assert torch.equal(tensors.read("linear.weight"), torch.from_numpy(weight))
    assert audit(path).parameters.total == 24


@pytest.mark.parametrize("ending", ["gguf", "onnx"])
def test_damaged_files_are_refused(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"model.{ending}"
    path.write_bytes(b"neither of them")
    with pytest.raises(ModelFileError, match=rf"is no sound {ending.upper()} file: |holds 0"):
        open_model(path)


def test_without_the_extra_the_refusal_says_which(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "gguf", None)
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    with pytest.raises(MissingExtraError, match=r"pip install 'rankscope\[gguf\]'"):
        open_model(tmp_path / "model.gguf")
