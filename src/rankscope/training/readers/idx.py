"""The idx format of MNIST and Fashion-MNIST: a few big-endian sizes, then bytes."""

import gzip
import math
import struct
import zlib
from pathlib import Path

import torch
from torch import Tensor

from rankscope.errors import DataError

_BYTES = 0x08  # the code of unsigned bytes, the only type these data sets use


def read_idx(path: Path) -> Tensor:
    """All numbers of an idx file, plain or compressed (.gz), as bytes.

    Raises:
        DataError: if the file is not readable, of another type, too short or too long.
    """
    data = _read(path)
    if len(data) < 4 or data[:2] != b"\0\0":
        raise DataError(f"{path} is no idx file: it starts with {data[:4].hex(' ') or 'nothing'}.")
    kind, order = data[2], data[3]
    if kind != _BYTES:
        raise DataError(f"{path} holds numbers of type {kind:#04x}, wanted bytes ({_BYTES:#04x}).")
    start = 4 + 4 * order
    if len(data) < start:
        raise DataError(f"{path} is cut short: its {order} sizes need {start} bytes of header.")
    sizes = struct.unpack(f">{order}I", data[4:start])
    if len(data) - start != math.prod(sizes):
        raise DataError(
            f"{path} says it holds {' x '.join(map(str, sizes))} = {math.prod(sizes):,} numbers, "
            f"but {len(data) - start:,} follow. Get the file again."
        )
    return torch.frombuffer(bytearray(data[start:]), dtype=torch.uint8).reshape(sizes)


def _read(path: Path) -> bytes:
    try:
        data = path.read_bytes()
        return gzip.decompress(data) if path.suffix == ".gz" else data
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} cannot be read: {error}. Get the file again.") from error
