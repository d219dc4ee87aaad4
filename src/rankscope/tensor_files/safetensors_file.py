"""A safetensors file: its header is checked byte by byte, and one tensor at a time is mapped."""

import math
from pathlib import Path
from typing import Any

from rankscope.errors import ModelFileError, printable
from rankscope.files import plain_file
from rankscope.strict_json import parse_document, shown
from rankscope.tensor_files.sources import (
    ITEM_BYTES,
    LARGEST,
    MAX_ORDER,
    Place,
    TensorEntry,
    TensorSource,
    read_mapped,
)

_MAX_HEADER = 100_000_000  # set by the format
# The format's names and torch's. Four- and six-bit floats are left out: torch has no dtype whose
# entries they are.
_DTYPES = {
    "BOOL": "bool",
    "U8": "uint8",
    "I8": "int8",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "F8_E4M3FNUZ": "float8_e4m3fnuz",
    "F8_E5M2FNUZ": "float8_e5m2fnuz",
    "F8_E8M0": "float8_e8m0fnu",
    "U16": "uint16",
    "I16": "int16",
    "F16": "float16",
    "BF16": "bfloat16",
    "U32": "uint32",
    "I32": "int32",
    "F32": "float32",
    "U64": "uint64",
    "I64": "int64",
    "F64": "float64",
    "C64": "complex64",
}


class SafetensorsFile(TensorSource):
    """The tensors of a safetensors file, in the order of its header.

    Raises:
        ModelFileError: if the file is not exactly what the format says.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._places, self._size = _read_header(path)
        self._entries = tuple(
            TensorEntry(name, place.shape, place.dtype) for name, place in self._places.items()
        )

    @property
    def entries(self) -> tuple[TensorEntry, ...]:
        """Every tensor, in the order of the header."""
        return self._entries

    def read(self, name: str) -> Any:
        """Map one tensor; see the base class."""
        return read_mapped(self._path, self._places[name], file_bytes=self._size)

    def place(self, name: str) -> Place:
        """Where the values of a tensor are in the file."""
        return self._places[name]


def _read_header(path: Path) -> tuple[dict[str, Place], int]:
    """The place of every tensor, in the order of the header, and the bytes of the whole file."""
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
    places = {
        name: _read_place(name, row, start=8 + length, path=path) for name, row in header.items()
    }
    _check_places(places, start=8 + length, size=size, path=path)
    return places, size


def _read_place(name: str, row: Any, *, start: int, path: Path) -> Place:
    who = f"{path}: tensor '{printable(name)}'"
    if not isinstance(row, dict) or set(row) != {"dtype", "shape", "data_offsets"}:
        raise ModelFileError(f"{who} must have exactly dtype, shape and data_offsets.")
    dtype, shape, offsets = row["dtype"], row["shape"], row["data_offsets"]
    if not isinstance(dtype, str) or dtype not in _DTYPES:
        raise ModelFileError(f"{who} has the dtype {shown(dtype)}; known are {', '.join(_DTYPES)}.")
    if not _are_sizes(shape) or math.prod(size for size in shape if size) > LARGEST:
        raise ModelFileError(f"{who} has the shape {ascii(shape)[:80]}, which no tensor can have.")
    if not _are_sizes(offsets) or len(offsets) != 2:
        raise ModelFileError(f"{who} has data_offsets {ascii(offsets)[:80]}; wanted two integers.")
    num_bytes = math.prod(shape) * ITEM_BYTES[_DTYPES[dtype]]
    begin, end = offsets
    if end - begin != num_bytes:
        raise ModelFileError(
            f"{who} has shape {tuple(shape)} and dtype {dtype}, {num_bytes:,} bytes, but its "
            f"data_offsets {begin}, {end} hold {end - begin:,}."
        )
    return Place(start + begin, num_bytes, _DTYPES[dtype], tuple(shape))


def _are_sizes(sizes: Any) -> bool:
    return (
        isinstance(sizes, list)
        and len(sizes) <= MAX_ORDER
        and all(
            isinstance(size, int) and not isinstance(size, bool) and 0 <= size <= LARGEST
            for size in sizes
        )
    )


def _check_places(places: dict[str, Place], *, start: int, size: int, path: Path) -> None:
    """Each tensor begins where the one before it ends, and the last one at the end of the file."""
    for name, place in sorted(places.items(), key=lambda row: (row[1].start, row[1].num_bytes)):
        if place.start != start:
            what = "overlaps" if place.start < start else "leaves a gap after"
            raise ModelFileError(
                f"{path}: tensor '{printable(name)}' begins at byte {place.start:,} and {what} the "
                f"data before it, which end at byte {start:,}."
            )
        start = place.start + place.num_bytes
    if start != size:
        raise ModelFileError(
            f"{path} has {size:,} bytes, but its tensors end at byte {start:,}: "
            f"{'it is cut off' if size < start else 'something was appended'}."
        )
