import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import save

from rankscope.errors import ModelFileError
from rankscope.tensor_files import SafetensorsFile
from rankscope.tensor_files.sources import ITEM_BYTES


def row(shape: Any, begin: Any, end: Any, dtype: Any = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def written(path: Path, header: object, *, num_bytes: int) -> Path:
    """A file with this header and that many bytes of data."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(num_bytes))
    return path


def test_names_shapes_and_dtypes_are_read_in_order(tmp_path: Path) -> None:
    header = {
        "__metadata__": {"format": "pt"},
        "second": row([2, 3], 8, 32),
        "first": row([], 0, 8, "I64"),
        "none": row([0, 5], 32, 32, "BF16"),
    }
    path = written(tmp_path / "file", header, num_bytes=32)
    file = SafetensorsFile(path)
    entries = [(entry.name, entry.shape, entry.dtype) for entry in file.entries]
    assert entries == [
        ("second", (2, 3), "float32"),
        ("first", (), "int64"),
        ("none", (0, 5), "bfloat16"),
    ]
    data = path.stat().st_size - 32
    places = [file.place(name) for name in ("second", "first", "none")]
    assert [(place.start - data, place.num_bytes) for place in places] == [(8, 24), (0, 8), (32, 0)]


def test_every_dtype_has_the_size_that_torch_gives_it() -> None:
    for name, num_bytes in ITEM_BYTES.items():
        assert getattr(torch, name).itemsize == num_bytes


@pytest.mark.parametrize(
    ("header", "num_bytes", "message"),
    [
        (b"{", 0, r"The header of .*file is not usable JSON"),
        (b'{"a": ' + b"[" * 100_000, 0, "nested too deeply"),
        (b'{"w": 1, "w": 2}', 0, "the key 'w' stands twice"),
        ({"__metadata__": 1}, 0, "the __metadata__ of its header is no object"),
        ({"w": 1}, 0, "tensor 'w' must have exactly dtype, shape and data_offsets"),
        ({"w": {"dtype": "F32", "shape": []}}, 4, "'w' must have exactly dtype, shape and data"),
        ({"w": row([1], 0, 4, "F4")}, 4, "has the dtype 'F4'; known are BOOL, U8, I8"),
        ({"w": row([1], 0, 4, ["F32"])}, 4, r"has the dtype a list of 1; known are"),
        ({"w": row([-1], 0, 4)}, 4, r"has the shape \[-1\], which no tensor can have"),
        ({"w": row([True], 0, 4)}, 4, r"has the shape \[True\], which no tensor can have"),
        ({"w": row("1", 0, 4)}, 4, "has the shape '1', which no tensor can have"),
        ({"w": row([0, 2**32, 2**32], 0, 0)}, 0, r"has the shape \[0, 4294967296, 4294967296\]"),
        ({"w": row([1] * 65, 0, 4)}, 4, r"has the shape \[1, 1, .*, which no tensor can have"),
        ({"w": row([1], 0.0, 4)}, 4, r"has data_offsets \[0\.0, 4\]; wanted two integers"),
        ({"w": row([1], 0, 10**600)}, 4, r"has data_offsets \[0, 10+; wanted two integers"),
        ({"w": row([1], 0, 10**4000)}, 4, "an integer has 4,001 digits, at most 640 are read"),
        ({"w": row([2], 0, 4)}, 4, r"shape \(2,\) and dtype F32, 8 bytes, but .* 0, 4 hold 4\."),
        ({"w": row([1], 4, 0)}, 4, r"4 bytes, but its data_offsets 4, 0 hold -4\."),
        ({"w": row([1], 4, 8)}, 8, r"'w' begins at byte (\d+) and leaves a gap after"),
        ({"v": row([2], 0, 8), "w": row([1], 4, 8)}, 8, "'w' begins at byte .* and overlaps"),
        ({"w": row([1], 0, 4)}, 3, "but its tensors end at byte .*: it is cut off"),
        ({"w": row([1], 0, 4)}, 5, "but its tensors end at byte .*: something was appended"),
    ],
)
def test_a_header_that_does_not_fit_is_refused(
    tmp_path: Path, header: object, num_bytes: int, message: str
) -> None:
    with pytest.raises(ModelFileError, match=message):
        SafetensorsFile(written(tmp_path / "file", header, num_bytes=num_bytes))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"abc", "has 3 bytes and says that its header has 6,513,249 "),
        ((9).to_bytes(8, "little") + b"{}", "has 10 bytes and says that its header has 9 "),
        (b"\xff" * 16, "header has 18,446,744,073,709,551,615 .at most 100,000,000"),
    ],
)
def test_a_header_longer_than_its_file_is_refused(
    tmp_path: Path, data: bytes, message: str
) -> None:
    (tmp_path / "file").write_bytes(data)
    with pytest.raises(ModelFileError, match=message):
        SafetensorsFile(tmp_path / "file")


def test_a_header_longer_than_the_format_allows_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "file").open("wb") as file:
        file.write((100_000_001).to_bytes(8, "little"))
        file.truncate(200_000_000)
    with pytest.raises(ModelFileError, match="header has 100,000,001 "):
        SafetensorsFile(tmp_path / "file")


def test_values_nested_to_any_depth_are_refused_in_words(tmp_path: Path) -> None:
    for key in ("dtype", "shape", "data_offsets"):
        for depth in range(2, 1100, 9):
            rest = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4], key: "HERE"}
            text = json.dumps({"w": rest}).replace('"HERE"', "[" * depth + "]" * depth)
            with pytest.raises(ModelFileError):
                SafetensorsFile(written(tmp_path / "file", text.encode(), num_bytes=4))


def damaged(change: Callable[[bytearray], object]) -> bytes:
    found = bytearray(save({"a": torch.ones(2, 3), "b": torch.zeros(5, dtype=torch.bfloat16)}))
    change(found)
    return bytes(found)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.integers(0, 160), value=st.integers(0, 255))
def test_a_changed_byte_is_refused_or_gives_a_file_that_fits(
    tmp_path: Path, place: int, value: int
) -> None:
    data = damaged(lambda found: found.__setitem__(place % len(found), value))
    (tmp_path / "file").write_bytes(data)
    try:
        file = SafetensorsFile(tmp_path / "file")
    except ModelFileError:
        return
    places = [file.place(entry.name) for entry in file.entries]
    assert max(place.start + place.num_bytes for place in places) == len(data)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(length=st.integers(1, 10**4))
def test_every_truncation_is_refused(tmp_path: Path, length: int) -> None:
    whole = damaged(lambda found: None)
    (tmp_path / "file").write_bytes(whole[: length % len(whole)])
    with pytest.raises(ModelFileError):
        SafetensorsFile(tmp_path / "file")
