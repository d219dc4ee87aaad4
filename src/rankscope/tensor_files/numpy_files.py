"""Arrays of numpy: one in a `.npy` file, several by name in a `.npz` archive.

The header of every array says its dtype and shape; both are compared with the bytes that follow
before they are read. Arrays of Python objects, which only a pickle can hold, are refused.
"""

import io
import math
import warnings
import zipfile
import zlib
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any, BinaryIO

from rankscope.errors import ModelFileError, printable
from rankscope.files import plain_file
from rankscope.tensor_files.archive import Part, read_parts
from rankscope.tensor_files.sources import (
    LARGEST,
    MAX_ORDER,
    Place,
    TensorEntry,
    TensorSource,
    read_mapped,
)

_MAX_HEADER = 65_536  # bytes: the first version of the format cannot have more
# Kinds of numpy's dtypes with their bytes, and torch's names.
_DTYPES = {
    "b1": "bool",
    **{f"i{size}": f"int{8 * size}" for size in (1, 2, 4, 8)},
    **{f"u{size}": f"uint{8 * size}" for size in (1, 2, 4, 8)},
    **{f"f{size}": f"float{8 * size}" for size in (2, 4, 8)},
    **{f"c{size}": f"complex{8 * size}" for size in (8, 16)},
}


@dataclass(frozen=True)
class _Header:
    """What an array says about itself, and how long it says so."""

    place: Place
    is_swapped: bool
    num_bytes: int


class NumpyFile(TensorSource):
    """The one array of a `.npy` file, as an entry without a name.

    Raises:
        ModelFileError: if the file is damaged, or holds anything but numbers.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        with plain_file(path) as (file, self._size):
            self._header = _read_header(file.read(_MAX_HEADER), 0, self._size, who=str(path))

    @property
    def entries(self) -> tuple[TensorEntry, ...]:
        """The one array."""
        return (TensorEntry("", self._header.place.shape, self._header.place.dtype),)

    def read(self, name: str) -> Any:
        """Map the array; see the base class."""
        if name:
            raise KeyError(name)
        return _read_stored(self._path, self._header, file_bytes=self._size)


class NumpyArchive(TensorSource):
    """The arrays of a `.npz` file, in their order; packed ones are unpacked when they are read.

    Raises:
        ModelFileError: if the archive is damaged, claims more than it can hold, or holds anything
            but arrays of numbers.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._parts: dict[str, tuple[Part, _Header]] = {}
        with plain_file(path) as (file, self._size):
            if file.read(2) != b"PK":
                raise ModelFileError(f"{path} is no zip archive, as numpy.savez writes them.")
            for name, part in read_parts(file, self._size, path).items():
                who = f"{path}: array '{printable(name)}'"
                start = _read_start(file, part, path)
                header = _read_header(start, part.start, part.num_bytes, who=who)
                self._parts[name.removesuffix(".npy")] = part, header

    @property
    def entries(self) -> tuple[TensorEntry, ...]:
        """Every array, in the order of the archive."""
        return tuple(
            TensorEntry(name, header.place.shape, header.place.dtype)
            for name, (_, header) in self._parts.items()
        )

    def read(self, name: str) -> Any:
        """Map or unpack one array; see the base class."""
        part, header = self._parts[name]
        if not part.is_packed:
            return _read_stored(self._path, header, file_bytes=self._size)
        with plain_file(self._path) as (file, _):
            data = _unpack(file, part, part.num_bytes, self._path)
        return _as_tensor(data[header.num_bytes :], header)


def _read_start(file: BinaryIO, part: Part, path: Path) -> bytes:
    count = min(part.num_bytes, _MAX_HEADER)
    if part.is_packed:
        return _unpack(file, part, count, path)
    file.seek(part.start)
    return file.read(count)


def _unpack(file: BinaryIO, part: Part, count: int, path: Path) -> bytes:
    """The first bytes of a packed part: never more than it said that it has."""
    try:
        with zipfile.ZipFile(file) as archive, archive.open(part.info) as opened:
            data = opened.read(count)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise ModelFileError(
            f"{path}: '{printable(part.name)}' is damaged: {printable(str(error))}."
        ) from error
    if len(data) != count:
        raise ModelFileError(
            f"{path}: '{printable(part.name)}' says that it has {part.num_bytes:,} bytes, but only "
            f"{len(data):,} are there."
        )
    return data


def _read_header(data: bytes, start: int, size: int, *, who: str) -> _Header:
    """Read the header at the start of an array of `size` bytes at byte `start` of a file."""
    from numpy.lib import format as numpy_format

    file = io.BytesIO(data)
    try:
        version = numpy_format.read_magic(file)
        # The third version differs from the second only in names of fields, which are refused.
        read = (
            numpy_format.read_array_header_1_0
            if version == (1, 0)
            else numpy_format.read_array_header_2_0
        )
        with warnings.catch_warnings():  # headers of Python 2 are read like others
            warnings.simplefilter("ignore")
            shape, is_fortran, dtype = read(file)
    except Exception as error:
        # Numpy reads the header as an expression: damage raises errors of its parser, too.
        raise ModelFileError(
            f"{who} is damaged, or not what numpy.save writes: it has {size:,} bytes, and its "
            "header cannot be read."
        ) from error
    code = f"{dtype.kind}{dtype.itemsize}"
    if dtype.hasobject or dtype.fields or dtype.subdtype or code not in _DTYPES:
        raise ModelFileError(
            f"{who} holds numpy's {printable(str(dtype), at_most=60)}; wanted numbers that torch "
            "has too."
        )
    if len(shape) > MAX_ORDER or any(not 0 <= number <= LARGEST for number in shape):
        raise ModelFileError(f"{who} has the shape {printable(str(shape))}, which none can have.")
    num_bytes, length = math.prod(shape) * dtype.itemsize, file.tell()
    if length + num_bytes != size:
        raise ModelFileError(
            f"{who} has the shape {printable(str(shape))}, {num_bytes:,} bytes, but "
            f"{size - length:,} follow its header."
        )
    strides = tuple(accumulate((1, *shape[:-1]), int.__mul__)) if is_fortran and shape else None
    place = Place(start + length, num_bytes, _DTYPES[code], tuple(shape), strides)
    return _Header(place, not dtype.isnative, length)


def _read_stored(path: Path, header: _Header, *, file_bytes: int) -> Any:
    if not header.is_swapped:
        return read_mapped(path, header.place, file_bytes=file_bytes)
    with plain_file(path) as (file, _):
        file.seek(header.place.start)
        return _as_tensor(file.read(header.place.num_bytes), header)


def _as_tensor(data: bytes, header: _Header) -> Any:
    """Values that were read into memory, in the byte order of this machine."""
    import numpy
    import torch

    place = header.place
    if len(data) != place.num_bytes:
        raise ModelFileError(f"An array has {len(data):,} bytes; it had {place.num_bytes:,}.")
    dtype = numpy.dtype(place.dtype)
    values = numpy.frombuffer(data, dtype.newbyteorder() if header.is_swapped else dtype)
    tensor = torch.from_numpy(values.astype(dtype))
    if place.strides is None:
        return tensor.reshape(place.shape)
    return tensor.as_strided(place.shape, place.strides)
