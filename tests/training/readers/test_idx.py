"""Files of MNIST's format, whole and broken."""

import gzip
import struct
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.errors import DataError
from rankscope.training.datasets import read_idx


def idx_bytes(numbers: torch.Tensor) -> bytes:
    header = bytes([0, 0, 8, numbers.ndim]) + struct.pack(f">{numbers.ndim}I", *numbers.shape)
    return header + bytes(numbers.flatten().tolist())


@settings(deadline=None, max_examples=20)
@given(sizes=st.lists(st.integers(1, 5), min_size=1, max_size=3), packed=st.booleans())
def test_what_was_written_is_read(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], packed: bool
) -> None:
    numbers = torch.arange(torch.Size(sizes).numel()).to(torch.uint8).reshape(sizes)
    path = tmp_path_factory.mktemp("idx") / ("file.gz" if packed else "file")
    path.write_bytes(gzip.compress(idx_bytes(numbers)) if packed else idx_bytes(numbers))
    assert torch.equal(read_idx(path), numbers)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "starts with nothing"),
        (b"\x89PNG....", "starts with 89 50 4e 47"),
        (b"\0\0\x0d\1\0\0\0\1....", "type 0x0d, wanted bytes"),
        (b"\0\0\x08\3\0\0\0\1", "its 3 sizes need 16 bytes"),
        (b"\0\0\x08\2\0\0\0\2\0\0\0\3.....", "2 x 3 = 6 numbers, but 5 follow"),
        (b"\0\0\x08\1\0\0\0\2...", "2 = 2 numbers, but 3 follow"),
    ],
)
def test_broken_files_are_refused_with_numbers(
    tmp_path: Path, content: bytes, message: str
) -> None:
    path = tmp_path / "broken"
    path.write_bytes(content)
    with pytest.raises(DataError, match=message):
        read_idx(path)


@pytest.mark.parametrize("keep", [3, 15, -1])
def test_a_compressed_file_that_is_cut_short_is_refused(tmp_path: Path, keep: int) -> None:
    path = tmp_path / "short.gz"
    path.write_bytes(gzip.compress(idx_bytes(torch.ones(5, dtype=torch.uint8)))[:keep])
    with pytest.raises(DataError, match="cannot be read"):
        read_idx(path)
