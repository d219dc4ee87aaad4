"""A file written by `torch.save`: a zip archive since torch 1.6, a row of pickles before.

Neither is unpickled. What the pickle describes is compared with where the values are in the file;
then they are mapped, one tensor at a time.
"""

import io
import mmap
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from rankscope.errors import ModelFileError, printable
from rankscope.files import plain_file
from rankscope.tensor_files.archive import Part, read_parts
from rankscope.tensor_files.sources import (
    ITEM_BYTES,
    Place,
    TensorEntry,
    TensorSource,
    read_mapped,
)
from rankscope.tensor_files.torch_pickle import (
    Other,
    Refused,
    Storage,
    StoredTensor,
    read_pickle,
)

# Where training scripts put the state dict beside the state of the optimizer.
_HOLDERS = ("state_dict", "model_state_dict", "model")
_SAVE_AGAIN = "save module.state_dict() with torch.save, or better as safetensors"
_MAX_PICKLE = 64_000_000  # bytes; the pickle holds names and shapes, not values
_LARGEST_SHARE = 16  # how often tensors may claim the same bytes, all in all
# What files of torch before 1.6 begin with, as two pickled integers.
_MAGIC, _PROTOCOL = 0x1950A86A20F9469CFC6C, 1001


class TorchFile(TensorSource):
    """The tensors of a state dict, or of one under "state_dict", "model_state_dict" or "model".

    Args:
        path: of the file.
        may_be_bare: whether the file may hold one tensor and no names; its entry is called "".

    Raises:
        ModelFileError: if the file is of another kind, is damaged, holds no tensors, wants to run
            code, or says that it is larger than it is.
    """

    def __init__(self, path: Path, *, may_be_bare: bool = False) -> None:
        self._path = path
        with plain_file(path) as (file, size):
            content, starts = _read_content(file, size, path)
        self._size = size
        is_bare = may_be_bare and isinstance(content, StoredTensor)
        self._tensors = _tensors({"": content} if is_bare else _state_dict(content, path), path)
        self._places = {
            name: _place(tensor, starts, path) for name, tensor in self._tensors.items()
        }
        names: dict[StoredTensor | str, list[str]] = {}
        for name, tensor in self._tensors.items():
            # Without values, two tensors are never the same one.
            names.setdefault(tensor if tensor.extent else name, []).append(name)
        self._entries = tuple(self._entry(*tied) for tied in names.values())
        self._require_total()

    @property
    def entries(self) -> tuple[TensorEntry, ...]:
        """Every tensor once, in the order of the state dict."""
        return self._entries

    def read(self, name: str) -> Any:
        """Map one tensor; see the base class."""
        return read_mapped(self._path, self._places[name], file_bytes=self._size)

    def _entry(self, name: str, *tied_names: str) -> TensorEntry:
        tensor = self._tensors[name]
        return TensorEntry(name, tensor.shape, tensor.dtype, tied_names)

    def _require_total(self) -> None:
        """Views of the same values may overlap, but not without end."""
        total = sum(self._places[entry.name].num_bytes for entry in self._entries)
        if total > _LARGEST_SHARE * self._size:
            raise ModelFileError(
                f"{self._path} has {self._size:,} bytes, but its {len(self._entries):,} tensors "
                f"claim {total:,}: they lie on top of each other."
            )


@dataclass(frozen=True)
class _Held:
    """The bytes of a storage in the file."""

    start: int
    num_bytes: int


def _read_content(file: BinaryIO, size: int, path: Path) -> tuple[Any, dict[str, _Held]]:
    """What was saved, and where the storages are."""
    start = file.read(4)
    file.seek(0)
    try:
        if start == b"PK\x03\x04":
            return _read_archive(file, size, path)
        if start[:1] == b"\x80":
            return _read_row_of_pickles(file, size, path)
    except Refused as reason:
        raise ModelFileError(
            f"{path} was not opened: {reason}. If a whole module was saved, {_SAVE_AGAIN}."
        ) from reason
    raise ModelFileError(
        f"{path} was not written by torch.save: it is neither a zip archive, as since torch 1.6, "
        "nor begins with a pickle, as before."
    )


# --- Since torch 1.6: a zip archive with data.pkl and one part for each storage -------------------


def _read_archive(file: BinaryIO, size: int, path: Path) -> tuple[Any, dict[str, _Held]]:
    parts = read_parts(file, size, path)
    pickles = [name for name in parts if name.endswith("/data.pkl") and name.count("/") == 1]
    if any(name.endswith("/constants.pkl") for name in parts):
        raise ModelFileError(f"{path} is a TorchScript archive, which is code; {_SAVE_AGAIN}.")
    packed = [part for part in parts.values() if part.is_packed]
    if packed:
        raise ModelFileError(
            f"{path}: {len(packed)} of its {len(parts)} parts are compressed, "
            f"'{printable(packed[0].name)}' to {packed[0].info.compress_size:,} from "
            f"{packed[0].num_bytes:,} bytes; torch.save never does that."
        )
    if len(pickles) != 1:
        raise ModelFileError(
            f"{path} has {len(parts)} parts, of which {len(pickles)} are called …/data.pkl; "
            "torch.save writes one."
        )
    folder = pickles[0].removesuffix("data.pkl")
    _require_byte_order(file, parts.get(f"{folder}byteorder"), path)
    content = read_pickle(io.BytesIO(_read_part(file, parts[pickles[0]], path))).content
    storages = f"{folder}data/"
    held = {
        name.removeprefix(storages): _Held(part.start, part.num_bytes)
        for name, part in parts.items()
        if name.startswith(storages)
    }
    return content, held


def _read_part(file: BinaryIO, part: Part, path: Path) -> bytes:
    if part.num_bytes > _MAX_PICKLE:
        raise ModelFileError(
            f"{path}: '{printable(part.name)}' has {part.num_bytes:,} bytes; at most "
            f"{_MAX_PICKLE:,} of names and shapes are read."
        )
    file.seek(part.start)
    return file.read(part.num_bytes)


def _require_byte_order(file: BinaryIO, part: Part | None, path: Path) -> None:
    order = "little" if part is None else _read_part(file, part, path)[:20].decode("latin-1")
    if order != sys.byteorder:
        raise ModelFileError(
            f"{path} was saved with the byte order '{printable(order)}', but this machine has "
            f"{sys.byteorder}; {_SAVE_AGAIN}."
        )


# --- Before torch 1.6: five pickles, then the storages one after the other ------------------------


def _read_row_of_pickles(file: BinaryIO, size: int, path: Path) -> tuple[Any, dict[str, _Held]]:
    # Mapped, because reading from a map never allocates more than there is.
    with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        if read_pickle(data).content != _MAGIC or read_pickle(data).content != _PROTOCOL:
            raise ModelFileError(
                f"{path} was not written by torch.save: it begins with another pickle."
            )
        system = read_pickle(data).content
        if not isinstance(system, dict) or system.get("little_endian") is not True:
            raise ModelFileError(f"{path} was not saved with the byte order little; {_SAVE_AGAIN}.")
        pickled = read_pickle(data)
        keys = read_pickle(data).content
        held: dict[str, _Held] = {}
        for key in keys if isinstance(keys, list) else ():
            if key not in pickled.storages:
                raise Refused("the list of its storages is damaged")
            held[key] = _next_storage(data, pickled.storages[key], size, path)
    return pickled.content, held


def _next_storage(data: mmap.mmap, storage: Storage, size: int, path: Path) -> _Held:
    """The storage at which a file stands: the count of its values, and these."""
    start = data.tell() + 8
    count = int.from_bytes(data.read(8), "little")
    num_bytes = count * _item_bytes(storage)
    if start + num_bytes > size:
        raise ModelFileError(
            f"{path} has {size:,} bytes and is cut off: storage '{printable(storage.key)}' claims "
            f"{num_bytes:,} from byte {start:,} on."
        )
    data.seek(start + num_bytes)
    return _Held(start, num_bytes)


# --- From what was saved to tensors by name -------------------------------------------------------


def _state_dict(content: object, path: Path) -> Mapping[Any, object]:
    if not isinstance(content, Mapping):
        raise ModelFileError(f"{path} holds a {_kind(content)}; wanted a state dict.")
    holders = (content.get(key) for key in _HOLDERS)
    inner = next((held for held in holders if isinstance(held, Mapping)), content)
    if not any(isinstance(value, StoredTensor) for value in inner.values()):
        keys = ", ".join(printable(repr(key), at_most=60) for key in list(inner)[:8]) or "none"
        raise ModelFileError(
            f"{path} holds no tensors by name, nor under {', '.join(_HOLDERS)}; its keys: {keys}."
        )
    return inner


def _tensors(state: Mapping[Any, object], path: Path) -> dict[str, StoredTensor]:
    """The tensors among the values; others, such as counters, are no weights and are left out."""
    tensors = {}
    for key, value in state.items():
        if not isinstance(key, str):
            what = key.kind if isinstance(key, Other) else repr(key)
            raise ModelFileError(f"{path}: the key {printable(what)} of its state dict is no name.")
        if isinstance(value, Other) and "tensor" in value.kind:
            raise ModelFileError(
                f"{path}: '{printable(key)}' is a {value.kind}; only dense tensors are read."
            )
        if isinstance(value, StoredTensor):
            tensors[key] = value
    return tensors


def _place(tensor: StoredTensor, storages: Mapping[str, _Held], path: Path) -> Place:
    storage, item = tensor.storage, ITEM_BYTES[tensor.dtype]
    claimed = storage.num_values * _item_bytes(storage)
    held = storages.get(storage.key, _Held(0, 0))
    if claimed > held.num_bytes:
        raise ModelFileError(
            f"{path}: storage '{printable(storage.key)}' claims {claimed:,} bytes, but the file "
            f"holds {held.num_bytes:,} of it."
        )
    start = held.start + tensor.offset * item
    return Place(start, tensor.extent * item, tensor.dtype, tensor.shape, tensor.strides)


def _item_bytes(storage: Storage) -> int:
    return 1 if storage.dtype is None else ITEM_BYTES[storage.dtype]


def _kind(content: object) -> str:
    if isinstance(content, Other):
        return printable(content.kind)
    return "tensor" if isinstance(content, StoredTensor) else type(content).__name__
