"""Weights spread over several files, with an index that says which tensor is where."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from rankscope.auditing.sources.source import TensorEntry, TensorSource
from rankscope.errors import ModelFileError
from rankscope.files import file_status
from rankscope.strict_json import read_document

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
                f"{len(lacking)} are not there: {_listed(lacking)}."
            )

    def _add(self, source: TensorSource, entries: list[TensorEntry]) -> None:
        for entry in entries:
            if entry.name in self._homes:
                raise ModelFileError(
                    f"{self._index}: two files hold {entry.name!r}, and the index names neither."
                )
            self._homes[entry.name] = source


def _weight_map(index: Path) -> dict[str, str]:
    found = read_document(index).get("weight_map")
    if not isinstance(found, dict) or not found:
        raise ModelFileError(f"{index} has no weight_map that names the file of each tensor.")
    for name, file in found.items():
        # Only files beside the index: a stranger's index must not lead out of its folder.
        if not isinstance(file, str) or file in {"", ".", ".."} or set(file) & set("/\\"):
            raise ModelFileError(
                f"{index}: the file of tensor {name!r} must be a name in the same folder, "
                f"got {ascii(file)[:80]}."
            )
    return found


def _files(index: Path, weight_map: dict[str, str]) -> dict[str, list[str]]:
    """The names of the tensors of each file, the files in the order of their numbers."""
    files: dict[str, list[str]] = {file: [] for file in sorted(set(weight_map.values()))}
    for name, file in weight_map.items():
        files[file].append(name)
    missing = [file for file in files if not _is_there(index.parent / file)]
    if missing:
        raise ModelFileError(
            f"{index} names {len(files)} files, of which {len(missing)} are missing: "
            f"{_listed(missing)}."
        )
    return files


def _is_there(path: Path) -> bool:
    try:
        file_status(path)
    except ModelFileError:  # also for a name that no file can have
        return False
    return True


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(map(repr, names[:_SHOWN])) + more
