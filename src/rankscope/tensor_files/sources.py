"""What a file of tensors is: entries that are known without reading, and tensors read one by one.

Every reader of this package follows the same rules. The table of contents is read first; what it
says is compared with the bytes that the file has, and refused if it claims more; only then is
anything allocated, and mostly it is mapped. Nothing in a file is ever run.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rankscope.errors import ModelFileError
from rankscope.files import plain_file

LARGEST = 2**63 - 1  # torch counts with 64-bit integers
MAX_ORDER = 64
# Torch's names of its dtypes, with the bytes of one entry.
ITEM_BYTES = {
    "bool": 1,
    "uint8": 1,
    "int8": 1,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
    "float8_e4m3fnuz": 1,
    "float8_e5m2fnuz": 1,
    "float8_e8m0fnu": 1,
    "uint16": 2,
    "int16": 2,
    "float16": 2,
    "bfloat16": 2,
    "uint32": 4,
    "int32": 4,
    "float32": 4,
    "uint64": 8,
    "int64": 8,
    "float64": 8,
    "complex64": 8,
    "complex128": 16,
}


@dataclass(frozen=True)
class TensorEntry:
    """A tensor that has not been read.

    Args:
        name: as in the file.
        shape: its shape; any size may be zero.
        dtype: torch's name for it, such as "float32" or "bfloat16".
        tied_names: other names of the very same tensor, which have no entry of their own.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    tied_names: tuple[str, ...] = ()


class TensorSource(ABC):
    """Tensors in their order, read one at a time; a source keeps none of those it has read."""

    @property
    @abstractmethod
    def entries(self) -> tuple[TensorEntry, ...]:
        """Every tensor once, known without reading any."""

    @abstractmethod
    def read(self, name: str) -> Any:
        """One `torch.Tensor` by the name of its entry, in its own dtype, on the CPU.

        It may be a view of a file: treat it as read-only.

        Raises:
            KeyError: if no entry has that name.
            ModelFileError: if the tensor cannot be read any more, or has no values.
        """


@dataclass(frozen=True)
class Place:
    """Where the values of a tensor are in a file, uncompressed.

    Args:
        start: byte of its first value.
        num_bytes: from there on, to the end of its last value.
        dtype: torch's name.
        shape: of the tensor.
        strides: in values; None if they lie one after the other.
    """

    start: int
    num_bytes: int
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None = None


def read_mapped(path: Path, place: Place, *, file_bytes: int) -> Any:
    """A tensor whose values are mapped from a file, so that reading allocates next to nothing.

    Args:
        path: of the file.
        place: in the file.
        file_bytes: how many the file had when its table of contents was read.

    Raises:
        ModelFileError: if the file has become shorter.
    """
    import numpy
    import torch

    dtype = getattr(torch, place.dtype)
    if place.num_bytes == 0:
        return torch.empty(place.shape, dtype=dtype)  # nothing cannot be mapped
    with plain_file(path) as (file, size):
        # Touching mapped bytes behind the end of a file would kill the process.
        if size < file_bytes:
            raise ModelFileError(
                f"{path} had {file_bytes:,} bytes when it was opened, now {size:,}."
            )
        # "c": copied on writing, so that nobody can change the file through the tensor.
        mapped = numpy.memmap(file, "uint8", "c", offset=place.start, shape=(place.num_bytes,))
    data = torch.from_numpy(mapped)
    if place.start % dtype.itemsize:
        data = data.clone()  # old files are not aligned, new memory is
    values = data.view(dtype)
    if place.strides is None:
        return values.view(place.shape)
    return values.as_strided(place.shape, place.strides)
