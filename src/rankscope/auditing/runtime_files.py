"""Weights in the files of other runtimes, read for an audit: GGUF (llama.cpp) and ONNX.

Both packages only parse: nothing that a file may hold is run. Numbers in few bits are read as the
fractions that they stand for.
"""

from pathlib import Path
from typing import Any

from rankscope.errors import ModelFileError
from rankscope.extras import package
from rankscope.files import file_status
from rankscope.tensor_files.sources import TensorEntry, TensorSource

RUNTIME_ENDINGS = (".gguf", ".onnx")


def open_runtime_file(path: Path) -> TensorSource:
    """The tensors of a `.gguf` or `.onnx` file.

    Raises:
        ModelFileError: if it is damaged, or refers to other files.
        MissingExtraError: if the extra `gguf` or `onnx` is not installed.
    """
    file_status(path)
    return GgufFile(path) if path.suffix == ".gguf" else OnnxFile(path)


class GgufFile(TensorSource):
    """The tensors of a GGUF file, in its order; those in few bits as float32.

    Raises:
        ModelFileError: if the file is none.
        MissingExtraError: if the extra `gguf` is not installed.
    """

    def __init__(self, path: Path) -> None:
        self._gguf: Any = package("gguf", what="A .gguf file", extra="gguf")
        try:
            held = self._gguf.GGUFReader(str(path)).tensors
        except Exception as error:
            raise ModelFileError(f"{path} is no sound GGUF file: {_reason(error)}") from error
        self._path = path
        self._tensors: dict[str, Any] = {tensor.name: tensor for tensor in held}

    @property
    def entries(self) -> tuple[TensorEntry, ...]:
        """Every tensor; shapes are those of PyTorch, the last index running fastest."""
        return tuple(
            TensorEntry(name, _sizes(tensor), self._dtype(tensor))
            for name, tensor in self._tensors.items()
        )

    def read(self, name: str) -> Any:
        """One tensor; see the base class."""
        import torch

        tensor = self._tensors[name]
        try:
            numbers = self._gguf.dequantize(tensor.data, tensor.tensor_type)
        except Exception as error:
            kind = tensor.tensor_type.name
            raise ModelFileError(
                f"{self._path}: tensor {ascii(name)[:80]} in {kind} cannot be read: "
                f"{_reason(error)}"
            ) from error
        read = torch.from_numpy(numbers.copy()).reshape(_sizes(tensor))
        return read.to(getattr(torch, self._dtype(tensor)))

    def _dtype(self, tensor: Any) -> str:
        plain = {"F64": "float64", "F16": "float16", "BF16": "bfloat16"}
        return plain.get(tensor.tensor_type.name, "float32")


def _sizes(tensor: Any) -> tuple[int, ...]:
    return tuple(int(size) for size in reversed(tensor.shape))


class OnnxFile(TensorSource):
    """The constants of an ONNX graph that hold fractions, in its order.

    Raises:
        ModelFileError: if the file is none, or its weights stand in other files.
        MissingExtraError: if the extra `onnx` is not installed.
    """

    def __init__(self, path: Path) -> None:
        self._onnx: Any = package("onnx", what="An .onnx file", extra="onnx")
        try:
            graph = self._onnx.load(str(path), load_external_data=False).graph
        except Exception as error:
            raise ModelFileError(f"{path} is no sound ONNX file: {_reason(error)}") from error
        self._path = path
        self._tensors: dict[str, Any] = {_name(held.name): held for held in graph.initializer}
        outside = [name for name, held in self._tensors.items() if held.data_location == 1]
        if outside or not self._tensors:
            raise ModelFileError(
                f"{path} holds {len(self._tensors) - len(outside)} weights, and {len(outside)} "
                "stand in other files; save it with its weights inside."
            )

    @property
    def entries(self) -> tuple[TensorEntry, ...]:
        """Every initializer."""
        return tuple(
            TensorEntry(name, tuple(held.dims), _dtype_name(self.read(name)))
            for name, held in self._tensors.items()
        )

    def read(self, name: str) -> Any:
        """One tensor; see the base class."""
        import torch

        try:
            array = self._onnx.numpy_helper.to_array(self._tensors[name])
            return torch.from_numpy(array.copy())
        except Exception as error:
            raise ModelFileError(
                f"{self._path}: tensor {ascii(name)[:80]} cannot be read: {_reason(error)}"
            ) from error


def _name(held: str | bytes) -> str:
    """What is no text arrives as bytes."""
    return held if isinstance(held, str) else held.decode("utf-8", "replace")


def _dtype_name(tensor: Any) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _reason(error: Exception) -> str:
    return (" ".join(str(error).split()) or type(error).__name__)[:200]
