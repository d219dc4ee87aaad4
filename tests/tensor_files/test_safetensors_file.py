import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

from rankscope.errors import ModelFileError
from rankscope.tensor_files import SafetensorsFile

DTYPES = [
    *(torch.bool, torch.uint8, torch.int8, torch.uint16, torch.int16, torch.int32, torch.int64),
    *(torch.uint32, torch.uint64, torch.float16, torch.bfloat16, torch.float32, torch.float64),
    *(torch.complex64, torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e8m0fnu),
    *(torch.float8_e4m3fnuz, torch.float8_e5m2fnuz),
]


def same_bits(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Equal with the same signs, payloads and shapes; comparing values would lose NaN."""
    if (first.dtype, first.shape) != (second.dtype, second.shape):
        return False
    return torch.equal(first.reshape(-1).view(torch.uint8), second.reshape(-1).view(torch.uint8))


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    dtype=st.sampled_from(DTYPES),
    shape=st.lists(st.integers(0, 4), max_size=3),
    padding=st.integers(0, 9),
    seed=st.integers(0, 2**16),
)
def test_tensors_come_back_bit_by_bit(
    tmp_path: Path, dtype: torch.dtype, shape: list[int], padding: int, seed: int
) -> None:
    """Any padding of the header: old files do not start their data at a multiple of eight."""
    draw = torch.Generator().manual_seed(seed)
    num_bytes = torch.Size(shape).numel() * dtype.itemsize
    top = 2 if dtype == torch.bool else 256
    data = torch.randint(0, top, (num_bytes,), dtype=torch.uint8, generator=draw)
    tensor = data.view(dtype).view(shape)
    save_file({"w": tensor}, tmp_path / "aligned")
    source = SafetensorsFile(tmp_path / "aligned")
    assert same_bits(source.read("w"), tensor)

    whole = (tmp_path / "aligned").read_bytes()
    length = int.from_bytes(whole[:8], "little")
    text = whole[8 : 8 + length].rstrip() + b" " * padding
    moved = len(text).to_bytes(8, "little") + text + whole[8 + length :]
    (tmp_path / "moved").write_bytes(moved)
    again = SafetensorsFile(tmp_path / "moved")
    assert again.entries == source.entries
    assert again.entries[0].dtype == str(dtype).removeprefix("torch.")
    assert same_bits(again.read("w"), tensor)


def test_writing_to_a_tensor_does_not_change_the_file(tmp_path: Path) -> None:
    save_file({"w": torch.ones(4)}, tmp_path / "file")
    before = (tmp_path / "file").read_bytes()
    SafetensorsFile(tmp_path / "file").read("w").zero_()
    assert (tmp_path / "file").read_bytes() == before


def test_a_name_that_is_not_there_is_a_key_error(tmp_path: Path) -> None:
    save_file({"w": torch.ones(4)}, tmp_path / "file")
    with pytest.raises(KeyError, match="absent"):
        SafetensorsFile(tmp_path / "file").read("absent")


def test_a_file_without_tensors_has_no_entries(tmp_path: Path) -> None:
    save_file({}, tmp_path / "file")
    assert SafetensorsFile(tmp_path / "file").entries == ()


def test_a_file_that_shrank_after_it_was_opened_is_not_touched(tmp_path: Path) -> None:
    save_file({"w": torch.ones(4096)}, tmp_path / "file")
    source = SafetensorsFile(tmp_path / "file")
    size = (tmp_path / "file").stat().st_size
    with (tmp_path / "file").open("r+b") as file:
        file.truncate(100)
    with pytest.raises(ModelFileError, match=f"had {size:,} bytes when it was opened, now 100"):
        source.read("w")


def sparse_file(path: Path, *, num_tensors: int, tensor_bytes: int) -> None:
    """Some large tensors of zeros that take no room on the disk, and a small one between them."""
    header, begin = {}, 0
    for number in range(num_tensors):
        for name, size in ((f"large.{number}", tensor_bytes), (f"small.{number}", 8)):
            offsets = [begin, begin + size]
            header[name] = {"dtype": "F32", "shape": [size // 4], "data_offsets": offsets}
            begin += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + begin)


READ_WITH_LITTLE_MEMORY = """
import resource, sys
from pathlib import Path
import numpy, torch
from rankscope.tensor_files import SafetensorsFile

torch.ones(64, 64) @ torch.ones(64, 64)
used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 1_500_000_000, used + 1_500_000_000))
source = SafetensorsFile(Path(sys.argv[1]))
for entry in source.entries:
    tensor = source.read(entry.name)
    assert tensor[0] == tensor[-1] == 0
    del tensor
print(sum(entry.shape[0] * 4 for entry in source.entries))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="address space is limited and read by Linux")
def test_a_file_of_many_gigabytes_is_read_one_tensor_at_a_time(tmp_path: Path) -> None:
    """With room for 1.5 GB: mapping the whole takes 8 GB, keeping one tensor for the next 2 GB."""
    sparse_file(tmp_path / "file", num_tensors=8, tensor_bytes=10**9)
    done = subprocess.run(
        [sys.executable, "-c", READ_WITH_LITTLE_MEMORY, str(tmp_path / "file")],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) == 8 * (10**9 + 8)
