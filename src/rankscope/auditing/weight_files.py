"""A model in files: its configuration, and its weights whole or in shards, read one by one."""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rankscope.errors import ModelFileError, printable
from rankscope.extras import package
from rankscope.files import file_status
from rankscope.strict_json import Numbers, read_document, shown
from rankscope.tensor_files.opening import ENDINGS, TORCH_ENDINGS, open_tensors
from rankscope.tensor_files.sources import TensorEntry, TensorSource

# --- Weights spread over several files, with an index that says which tensor is where -------------


_SHOWN = 8  # names in a message, at most


class Shards(TensorSource):
    """The tensors of all files that an index names, file by file.

    A tensor that the index leaves out is listed too: whoever loads the files gets it as well.

    Args:
        index: such as `model.safetensors.index.json`; the files are beside it.
        open_file: how one file is opened.

    Raises:
        ModelFileError: if the index is malformed, files are missing, or index and files disagree.
    """

    def __init__(self, index: Path, *, open_file: Callable[[Path], TensorSource]) -> None:
        self._index = index
        self._homes: dict[str, TensorSource] = {}
        weight_map = _weight_map(index)
        entries = []
        for file, names in _files(index, weight_map).items():
            source = open_file(index.parent / file)
            self._check(source, file, names)
            own = [entry for entry in source.entries if weight_map.get(entry.name, file) == file]
            self._add(source, own)
            entries += own
        self._entries = tuple(entries)

    @property
    def entries(self) -> tuple[TensorEntry, ...]:
        """Every tensor, file by file."""
        return self._entries

    def read(self, name: str) -> Any:
        """One tensor from its file; see the base class."""
        return self._homes[name].read(name)

    def _check(self, source: TensorSource, file: str, names: list[str]) -> None:
        held = {name for entry in source.entries for name in (entry.name, *entry.tied_names)}
        lacking = [name for name in names if name not in held]
        if lacking:
            raise ModelFileError(
                f"{self._index} says that '{printable(file)}' holds {len(names)} tensors, of which "
                f"{len(lacking)} are not there: {_join_names(lacking)}."
            )

    def _add(self, source: TensorSource, entries: list[TensorEntry]) -> None:
        for entry in entries:
            if entry.name in self._homes:
                raise ModelFileError(
                    f"{self._index}: two files hold '{printable(entry.name)}', and the index names "
                    "neither."
                )
            self._homes[entry.name] = source


def _weight_map(index: Path) -> dict[str, str]:
    weight_map = read_document(index).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise ModelFileError(f"{index} has no weight_map that names the file of each tensor.")
    for name, file in weight_map.items():
        # Only files beside the index: a stranger's index must not lead out of its folder.
        if not isinstance(file, str) or file in {"", ".", ".."} or set(file) & set("/\\"):
            raise ModelFileError(
                f"{index}: the file of tensor '{printable(name)}' must be a name in the same "
                f"folder, got {shown(file)}."
            )
    return weight_map


def _files(index: Path, weight_map: dict[str, str]) -> dict[str, list[str]]:
    """The names of the tensors of each file, the files in the order of their numbers."""
    files: dict[str, list[str]] = {file: [] for file in sorted(set(weight_map.values()))}
    for name, file in weight_map.items():
        files[file].append(name)
    missing = [file for file in files if not _is_there(index.parent / file)]
    if missing:
        raise ModelFileError(
            f"{index} names {len(files)} files, of which {len(missing)} are missing: "
            f"{_join_names(missing)}."
        )
    return files


def _is_there(path: Path) -> bool:
    try:
        file_status(path)
    except ModelFileError:  # also for a name that no file can have
        return False
    return True


def _join_names(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(f"'{printable(name)}'" for name in names[:_SHOWN]) + more


# --- Files of other runtimes: GGUF (llama.cpp) and ONNX, which their packages only parse ----------


RUNTIME_ENDINGS = (".gguf", ".onnx")


def open_runtime_file(path: Path) -> TensorSource:
    """The tensors of a `.gguf` or `.onnx` file; those in few bits as the fractions they stand for.

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


# --- From a path or a module to an opened model ---------------------------------------------------


_CONFIG = "config.json"
_INDEX = ".index.json"
# What a folder may call its weights; the first that is there is taken, as Hugging Face does.
_WEIGHTS = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)


@dataclass(frozen=True)
class OpenedModel:
    """A model, opened but not read.

    Args:
        name: the path or the class it was opened from.
        config: the document of its `config.json`, or None if it has none.
        tensors: its weights, or None if only the configuration is known.
    """

    name: str
    config: Mapping[str, object] | None
    tensors: TensorSource | None


def open_model(what: object) -> OpenedModel:
    """Open a model without reading its weights and without running any of its code.

    Args:
        what: a folder with `config.json`, weights, or both (whole or in shards); a configuration
            `*.json`; weights in any file that `open_tensors` opens; an index of shards; or a
            `torch.nn.Module`.

    Raises:
        ModelFileError: if it is none of these, or is missing, damaged or unsafe.
    """
    if isinstance(what, str | Path):
        return _open_path(Path(what))
    # Who has a module has loaded torch; asking sys.modules does not load it for anyone else.
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(what, torch.nn.Module):
        raise ModelFileError(
            f"open_model: wanted a path or a torch.nn.Module, got a {type(what).__name__}."
        )
    from rankscope.auditing.state_dicts import StateDict

    name = type(what).__name__
    # The parameters themselves, not copies, so that tied ones are seen to be the same.
    return OpenedModel(name, None, StateDict(what.state_dict(keep_vars=True), who=name))


def _open_path(path: Path) -> OpenedModel:
    file_status(path)
    if path.is_dir():
        return _open_folder(path)
    if path.name.endswith(".json") and not path.name.endswith(_INDEX):
        return OpenedModel(str(path), _read_configuration(path), None)
    return OpenedModel(str(path), None, _open_weights(path))


def _open_folder(folder: Path) -> OpenedModel:
    try:
        names = sorted(path.name for path in folder.iterdir())
    except OSError as error:
        raise ModelFileError(f"Cannot read {str(folder)!r}: {error.strerror}.") from error
    config = _read_configuration(folder / _CONFIG) if _CONFIG in names else None
    weights = _weights_among(names, folder)
    if config is None and weights is None:
        first = ", ".join(map(printable, names[:8])) + (" …" if len(names) > 8 else "")
        raise ModelFileError(
            f"{str(folder)!r} holds no model: wanted {_CONFIG}, {', '.join(_WEIGHTS)} or one file "
            f"*.safetensors; it holds {first or 'nothing'}."
        )
    return OpenedModel(str(folder), config, None if weights is None else _open_weights(weights))


def _read_configuration(path: Path) -> dict[str, Any]:
    # Python writes infinities into JSON, and some configurations have them.
    return read_document(path, numbers=Numbers.ANY)


def _weights_among(names: list[str], folder: Path) -> Path | None:
    usual = [name for name in _WEIGHTS if name in names]
    candidates = usual[:1] or [name for name in names if name.endswith(".safetensors")]
    if len(candidates) > 1:
        first = ", ".join(map(printable, candidates[:8]))
        raise ModelFileError(
            f"{str(folder)!r} holds {len(candidates)} safetensors files and no model.safetensors"
            f"{_INDEX} that joins them; give one of them: {first}."
        )
    return folder / candidates[0] if candidates else None


def _open_weights(path: Path) -> TensorSource:
    if path.name.endswith(_INDEX):
        return Shards(path, open_file=_open_file)
    return _open_file(path)


def _open_file(path: Path) -> TensorSource:
    if path.suffix in ENDINGS:
        return open_tensors(path)
    if path.suffix in RUNTIME_ENDINGS:
        return open_runtime_file(path)
    raise ModelFileError(
        f"{str(path)!r} ends in {path.suffix!r}; wanted .json, .safetensors, .npz, "
        f"{', '.join((*TORCH_ENDINGS, *RUNTIME_ENDINGS))}, or a folder."
    )
