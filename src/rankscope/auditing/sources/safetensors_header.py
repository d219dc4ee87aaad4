"""The first bytes of a safetensors file: names, shapes, dtypes and places of its tensors.

Eight bytes (little-endian) give the length of a JSON object, which maps each name to `dtype`,
`shape` and `data_offsets`; the rest of the file is data, without gaps or overlaps. Read by hand, so
that looking into a file needs no torch and a damaged one is refused with the numbers that differ.
"""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rankscope.auditing.sources.source import TensorEntry
from rankscope.errors import ModelFileError
from rankscope.files import plain_file
from rankscope.strict_json import parse_document

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
    placed = tuple(_placed(name, row, start=8 + length, path=path) for name, row in header.items())
    _check_places(placed, start=8 + length, size=size, path=path)
    return placed


def _placed(name: str, row: Any, *, start: int, path: Path) -> Placed:
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


def _are_sizes(found: Any) -> bool:
    return (
        isinstance(found, list)
        and len(found) <= _MAX_ORDER
        and all(
            isinstance(size, int) and not isinstance(size, bool) and 0 <= size <= _LARGEST
            for size in found
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
