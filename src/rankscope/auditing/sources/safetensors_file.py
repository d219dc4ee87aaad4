"""A safetensors file, of which only the bytes of one tensor at a time are mapped."""

from pathlib import Path
from typing import Any

from rankscope.auditing.sources.safetensors_header import Placed, read_header
from rankscope.auditing.sources.source import TensorEntry, TensorSource
from rankscope.errors import ModelFileError
from rankscope.files import plain_file


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
