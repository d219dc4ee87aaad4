"""Weights in files, read tensor by tensor: safetensors, shards, and .pt without running it."""

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rankscope.auditing.sources import OpenedModel, TensorEntry, TensorSource
from rankscope.errors import ModelFileError
from rankscope.files import file_status, plain_file
from rankscope.strict_json import Numbers, parse_document, read_document

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
                f"{self._index} says that {file!r} holds {len(names)} tensors, of which "
                f"{len(lacking)} are not there: {_join_names(lacking)}."
            )

    def _add(self, source: TensorSource, entries: list[TensorEntry]) -> None:
        for entry in entries:
            if entry.name in self._homes:
                raise ModelFileError(
                    f"{self._index}: two files hold {entry.name!r}, and the index names neither."
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
                f"{index}: the file of tensor {name!r} must be a name in the same folder, "
                f"got {ascii(file)[:80]}."
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
    return ", ".join(map(repr, names[:_SHOWN])) + more


# --- The first bytes of a safetensors file: names, shapes, dtypes and places of its tensors -------


_MAX_HEADER = 100_000_000  # set by the format
_LARGEST = 2**63 - 1  # torch counts with 64-bit integers
_MAX_ORDER = 64
# Torch's name and the bytes of one entry. Four- and six-bit floats are left out: torch has no
# dtype whose entries they are.
_DTYPES = {
    "BOOL": ("bool", 1),
    "U8": ("uint8", 1),
    "I8": ("int8", 1),
    "F8_E4M3": ("float8_e4m3fn", 1),
    "F8_E5M2": ("float8_e5m2", 1),
    "F8_E4M3FNUZ": ("float8_e4m3fnuz", 1),
    "F8_E5M2FNUZ": ("float8_e5m2fnuz", 1),
    "F8_E8M0": ("float8_e8m0fnu", 1),
    "U16": ("uint16", 2),
    "I16": ("int16", 2),
    "F16": ("float16", 2),
    "BF16": ("bfloat16", 2),
    "U32": ("uint32", 4),
    "I32": ("int32", 4),
    "F32": ("float32", 4),
    "U64": ("uint64", 8),
    "I64": ("int64", 8),
    "F64": ("float64", 8),
    "C64": ("complex64", 8),
}


@dataclass(frozen=True)
class Placed:
    """A tensor and where its data are: bytes start..stop of the file."""

    entry: TensorEntry
    start: int
    stop: int


def read_header(path: Path) -> tuple[Placed, ...]:
    """Every tensor of a safetensors file, in the order of its header; no data are read.

    Raises:
        ModelFileError: if the file is not exactly what the format says.
    """
    with plain_file(path) as (file, size):
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > min(size - 8, _MAX_HEADER):
            raise ModelFileError(
                f"{path} is no safetensors file, or is cut off: it has {size:,} bytes and says "
                f"that its header has {length:,} (at most {_MAX_HEADER:,} are allowed)."
            )
        header = parse_document(file.read(length), who=f"The header of {path}")
    if not isinstance(header.pop("__metadata__", {}), dict):
        raise ModelFileError(f"{path}: the __metadata__ of its header is no object.")
    placed = tuple(
        _read_place(name, row, start=8 + length, path=path) for name, row in header.items()
    )
    _check_places(placed, start=8 + length, size=size, path=path)
    return placed


def _read_place(name: str, row: Any, *, start: int, path: Path) -> Placed:
    who = f"{path}: tensor {ascii(name)[:200]}"
    if not isinstance(row, dict) or set(row) != {"dtype", "shape", "data_offsets"}:
        raise ModelFileError(f"{who} must have exactly dtype, shape and data_offsets.")
    dtype, shape, offsets = row["dtype"], row["shape"], row["data_offsets"]
    if not isinstance(dtype, str) or dtype not in _DTYPES:
        raise ModelFileError(
            f"{who} has the dtype {ascii(dtype)[:80]}; known are {', '.join(_DTYPES)}."
        )
    if not _are_sizes(shape) or math.prod(size for size in shape if size) > _LARGEST:
        raise ModelFileError(f"{who} has the shape {ascii(shape)[:80]}, which no tensor can have.")
    if not _are_sizes(offsets) or len(offsets) != 2:
        raise ModelFileError(f"{who} has data_offsets {ascii(offsets)[:80]}; wanted two integers.")
    name_of_dtype, item_bytes = _DTYPES[dtype]
    begin, end = offsets
    if end - begin != math.prod(shape) * item_bytes:
        raise ModelFileError(
            f"{who} has shape {tuple(shape)} and dtype {dtype}, {math.prod(shape) * item_bytes:,} "
            f"bytes, but its data_offsets {begin}, {end} hold {end - begin:,}."
        )
    return Placed(TensorEntry(name, tuple(shape), name_of_dtype), start + begin, start + end)


def _are_sizes(sizes: Any) -> bool:
    return (
        isinstance(sizes, list)
        and len(sizes) <= _MAX_ORDER
        and all(
            isinstance(size, int) and not isinstance(size, bool) and 0 <= size <= _LARGEST
            for size in sizes
        )
    )


def _check_places(placed: tuple[Placed, ...], *, start: int, size: int, path: Path) -> None:
    """Each tensor begins where the one before it ends, and the last one at the end of the file."""
    for row in sorted(placed, key=lambda row: (row.start, row.stop)):
        if row.start != start:
            what = "overlaps" if row.start < start else "leaves a gap after"
            raise ModelFileError(
                f"{path}: tensor {ascii(row.entry.name)[:200]} begins at byte {row.start:,} and "
                f"{what} the data before it, which end at byte {start:,}."
            )
        start = row.stop
    if start != size:
        raise ModelFileError(
            f"{path} has {size:,} bytes, but its tensors end at byte {start:,}: "
            f"{'it is cut off' if size < start else 'something was appended'}."
        )


# --- A safetensors file, of which only the bytes of one tensor at a time are mapped ---------------


class SafetensorsFile(TensorSource):
    """The tensors of a safetensors file, in the order of its header.

    Raises:
        ModelFileError: if the file is not exactly what the format says.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        places = read_header(path)
        self._entries = tuple(placed.entry for placed in places)
        self._places: dict[str, Placed] = {placed.entry.name: placed for placed in places}
        self._size = max((placed.stop for placed in self._places.values()), default=0)

    @property
    def entries(self) -> tuple[TensorEntry, ...]:
        """Every tensor, in the order of the header."""
        return self._entries

    def read(self, name: str) -> Any:
        """Map one tensor; see the base class."""
        import numpy
        import torch

        placed = self._places[name]
        dtype = getattr(torch, placed.entry.dtype)
        num_bytes = placed.stop - placed.start
        if num_bytes == 0:
            return torch.empty(placed.entry.shape, dtype=dtype)  # nothing cannot be mapped
        with plain_file(self._path) as (file, size):
            # Touching mapped bytes behind the end of a file would kill the process.
            if size < self._size:
                raise ModelFileError(
                    f"{self._path} had {self._size:,} bytes when it was opened, now {size:,}."
                )
            # "c": copied on writing, so that nobody can change the file through the tensor.
            mapped = numpy.memmap(file, "uint8", "c", offset=placed.start, shape=(num_bytes,))
        data = torch.from_numpy(mapped)
        if placed.start % dtype.itemsize:
            data = data.clone()  # old files are not aligned, new memory is
        return data.view(dtype).view(placed.entry.shape)


# --- From a path or a module to an opened model ---------------------------------------------------


_CONFIG = "config.json"
_INDEX = ".index.json"
_TORCH_ENDINGS = (".pt", ".pth", ".bin", ".ckpt")
# What a folder may call its weights; the first that is there is taken, as Hugging Face does.
_WEIGHTS = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)


def open_model(what: object) -> OpenedModel:
    """Open a model without reading its weights and without running any of its code.

    Args:
        what: a folder with `config.json`, weights, or both (whole or in shards); a configuration
            `*.json`; weights in `*.safetensors`, or in `*.pt`, `*.pth`, `*.bin` or `*.ckpt` as
            `torch.save` writes them; an index of shards; or a `torch.nn.Module`.

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
        shown = ", ".join(names[:8]) + (" …" if len(names) > 8 else "") if names else "nothing"
        raise ModelFileError(
            f"{str(folder)!r} holds no model: wanted {_CONFIG}, {', '.join(_WEIGHTS)} or one file "
            f"*.safetensors; it holds {shown}."
        )
    return OpenedModel(str(folder), config, None if weights is None else _open_weights(weights))


def _read_configuration(path: Path) -> dict[str, Any]:
    # Python writes infinities into JSON, and some configurations have them.
    return read_document(path, numbers=Numbers.ANY)


def _weights_among(names: list[str], folder: Path) -> Path | None:
    usual = [name for name in _WEIGHTS if name in names]
    candidates = usual[:1] or [name for name in names if name.endswith(".safetensors")]
    if len(candidates) > 1:
        raise ModelFileError(
            f"{str(folder)!r} holds {len(candidates)} safetensors files and no model.safetensors"
            f"{_INDEX} that joins them; give one of them: {', '.join(candidates[:8])}."
        )
    return folder / candidates[0] if candidates else None


def _open_weights(path: Path) -> TensorSource:
    if path.name.endswith(_INDEX):
        return Shards(path, open_file=_open_file)
    return _open_file(path)


def _open_file(path: Path) -> TensorSource:
    if path.suffix == ".safetensors":
        return SafetensorsFile(path)
    if path.suffix in _TORCH_ENDINGS:
        from rankscope.auditing.torch_files import open_torch_file

        return open_torch_file(path)
    raise ModelFileError(
        f"{str(path)!r} ends in {path.suffix!r}; wanted .json, .safetensors, "
        f"{', '.join(_TORCH_ENDINGS)}, or a folder."
    )
