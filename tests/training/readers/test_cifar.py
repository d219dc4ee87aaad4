"""Binary batches of CIFAR-10, whole and broken."""

from pathlib import Path

import pytest
import torch

from rankscope.errors import DataError
from rankscope.training.datasets import read_cifar10


def test_a_record_is_a_label_and_the_colours_one_after_the_other(tmp_path: Path) -> None:
    path = tmp_path / "batch.bin"
    planes = b"\1" * 1024 + b"\2" * 1024 + b"\3" * 1024
    path.write_bytes(b"\7" + planes + b"\0" + planes[::-1])
    images, labels = read_cifar10(path)
    assert images.dtype == torch.uint8
    assert labels.tolist() == [7, 0]
    assert images[:, :, 31, 5].tolist() == [[1, 2, 3], [3, 2, 1]]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "has 0 bytes, wanted a multiple of 3,073"),
        (bytes(3072), "has 3,072 bytes"),
        (b"\x0a" + bytes(3072), r"has the label 10, wanted 0\.\.9"),
    ],
)
def test_broken_batches_are_refused_with_numbers(
    tmp_path: Path, content: bytes, message: str
) -> None:
    path = tmp_path / "batch.bin"
    path.write_bytes(content)
    with pytest.raises(DataError, match=message):
        read_cifar10(path)


def test_a_missing_batch_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"absent\.bin cannot be read"):
        read_cifar10(tmp_path / "absent.bin")
