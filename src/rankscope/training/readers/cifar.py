"""The binary version of CIFAR-10: for each image a label and 3 x 32 x 32 bytes."""

from pathlib import Path

import torch
from torch import Tensor

from rankscope.errors import DataError

SHAPE = (3, 32, 32)
NUM_CLASSES = 10
_RECORD = 1 + 3 * 32 * 32


def read_cifar10(path: Path) -> tuple[Tensor, Tensor]:
    """Images (count, 3, 32, 32) of bytes, and labels (count,).

    Raises:
        DataError: if the file is not readable, holds no whole number of images, or another label.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}.") from error
    if not data or len(data) % _RECORD:
        raise DataError(
            f"{path} has {len(data):,} bytes, wanted a multiple of {_RECORD:,} (one label and "
            f"3 x 32 x 32 colours for each image). Get the binary version again."
        )
    records = torch.frombuffer(bytearray(data), dtype=torch.uint8).reshape(-1, _RECORD)
    labels = records[:, 0].long()
    if int(labels.max()) >= NUM_CLASSES:
        raise DataError(f"{path} has the label {int(labels.max())}, wanted 0..{NUM_CLASSES - 1}.")
    return records[:, 1:].reshape(-1, *SHAPE), labels
