"""A file written by `torch.save`: mapped, never executed.

`weights_only=True` lets a pickle name nothing but tensors and plain containers. The zip archive
around it is checked before: what is stored must lie in the file as it is, uncompressed.
"""

import math
import pickle
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rankscope.auditing.state_dicts import StateDict
from rankscope.errors import ModelFileError
from rankscope.files import plain_file

# Where training scripts put the state dict beside the state of the optimizer.
_HOLDERS = ("state_dict", "model_state_dict", "model")
_SAVE_AGAIN = "save module.state_dict() with torch.save, or better as safetensors"


def open_torch_file(path: Path) -> StateDict:
    """The tensors of a state dict, or of one under "state_dict", "model_state_dict" or "model".

    Raises:
        ModelFileError: if the file is of another kind, is damaged, holds no tensors, wants to run
            code, or says that it is larger than it is.
    """
    size = _check_archive(path)
    source = StateDict(_state_dict(_load(path), path), who=str(path))
    for entry in source.entries:
        # One number can be said to fill any shape (stride 0).
        num_bytes = math.prod(entry.shape) * getattr(torch, entry.dtype).itemsize
        if num_bytes > size:
            raise ModelFileError(
                f"{path}: tensor {entry.name!r} of shape {entry.shape} has {num_bytes:,} bytes, "
                f"more than the {size:,} of the whole file."
            )
    return source


def _check_archive(path: Path) -> int:
    with plain_file(path) as (file, size):
        if file.read(4) != b"PK\x03\x04":
            raise ModelFileError(
                f"{path} is no zip archive, as torch.save writes them since torch 1.6. An older "
                f"file is converted by: torch.save(torch.load({str(path)!r}, weights_only=True), …)"
            )
        members = _members(path)
        if any(member.filename.endswith("/constants.pkl") for member in members):
            raise ModelFileError(f"{path} is a TorchScript archive, which is code; {_SAVE_AGAIN}.")
        packed = [member for member in members if member.compress_type != zipfile.ZIP_STORED]
        if packed:
            raise ModelFileError(
                f"{path}: {len(packed)} of its {len(members)} parts are compressed, "
                f"{packed[0].filename!r} to {packed[0].compress_size:,} from "
                f"{packed[0].file_size:,} bytes; torch.save never does that."
            )
        total = sum(member.file_size for member in members)
        if total > size:
            raise ModelFileError(
                f"{path} has {size:,} bytes, but its {len(members)} parts claim {total:,}."
            )
        return size


def _members(path: Path) -> list[zipfile.ZipInfo]:
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.infolist()
    except Exception as error:
        # A damaged archive raises more than BadZipFile, such as struct.error.
        raise ModelFileError(f"{path} is a damaged or cut off zip archive: {error}.") from error


def _load(path: Path) -> Any:
    try:
        return torch.load(str(path), map_location="cpu", mmap=True, weights_only=True)
    except pickle.UnpicklingError as error:
        wanted = re.search(r"GLOBAL (\S+)", str(error))
        refused = "its pickle is damaged or holds more than tensors"
        if wanted:
            refused = f"it asks for {ascii(wanted[1])[:200]}, which could run any code"
        raise ModelFileError(
            f"{path} was not opened: {refused}. If a whole module was saved, {_SAVE_AGAIN}."
        ) from error
    except Exception as error:
        # Whatever a stranger's file makes torch raise, it cannot be opened.
        reason = f"{type(error).__name__}, {error}".partition("\n")[0]
        raise ModelFileError(f"{path} cannot be opened by torch: {reason}") from error


def _state_dict(loaded: object, path: Path) -> Mapping[str, object]:
    if not isinstance(loaded, Mapping):
        raise ModelFileError(f"{path} holds a {type(loaded).__name__}; wanted a state dict.")
    inner = next((loaded[key] for key in _HOLDERS if isinstance(loaded.get(key), Mapping)), loaded)
    if not any(isinstance(value, Tensor) for value in inner.values()):
        keys = ", ".join(map(repr, list(inner)[:8])) or "none"
        raise ModelFileError(
            f"{path} holds no tensors by name, nor under {', '.join(_HOLDERS)}; its keys: {keys}."
        )
    numbered = [key for key in inner if not isinstance(key, str)]
    if numbered:
        raise ModelFileError(f"{path}: the key {numbered[0]!r} of its state dict is no name.")
    return inner
