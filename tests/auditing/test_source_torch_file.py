import io
import os
import pickle
import tarfile
import zipfile
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

from rankscope.auditing.sources import TensorEntry
from rankscope.auditing.torch_files import open_torch_file
from rankscope.errors import ModelFileError


class Malicious:
    """What everybody can put into a pickle."""

    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, (self.command,)


def saved(path: Path, content: object) -> Path:
    torch.save(content, path)
    return path


def repacked(path: Path, *, compression: int = zipfile.ZIP_STORED, **extra: bytes) -> Path:
    """The archive written again, with some members more."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    folder = next(iter(members)).partition("/")[0]
    members |= {f"{folder}/{name.replace('_', '.')}": data for name, data in extra.items()}
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return path


@pytest.mark.parametrize("holder", [None, "state_dict", "model_state_dict", "model"])
def test_a_state_dict_is_found_alone_or_under_its_usual_names(
    tmp_path: Path, holder: str | None
) -> None:
    weight = torch.arange(6, dtype=torch.bfloat16).view(2, 3)
    state = {"w": weight, "count": torch.tensor(3), "tied": weight}
    content = {"epoch": 1, "loss": torch.ones(2), holder: state} if holder else state
    source = open_torch_file(saved(tmp_path / "file.pt", content))
    assert source.entries == (
        TensorEntry("w", (2, 3), "bfloat16", ("tied",)),
        TensorEntry("count", (), "int64"),
    )
    assert source.read("w").equal(weight)
    assert source.read("tied").equal(weight)


def test_tensors_are_mapped_and_cannot_change_the_file(tmp_path: Path) -> None:
    path = saved(tmp_path / "file.pt", {"w": torch.ones(4)})
    before = path.read_bytes()
    open_torch_file(path).read("w").zero_()
    assert path.read_bytes() == before


def test_a_pickle_that_wants_to_run_code_is_refused_and_does_not_run(tmp_path: Path) -> None:
    traces = tmp_path / "it ran"
    evil = Malicious(f"touch '{traces}'")
    pickle.loads(pickle.dumps(evil))  # it would
    assert traces.exists()
    traces.unlink()
    with pytest.raises(ModelFileError, match=r"asks for '\w+\.system', which could run any code"):
        open_torch_file(saved(tmp_path / "zip.pt", {"w": torch.ones(2), "evil": evil}))
    (tmp_path / "bare.pt").write_bytes(pickle.dumps(evil))
    with pytest.raises(ModelFileError, match="is no zip archive"):
        open_torch_file(tmp_path / "bare.pt")
    torch.save({"evil": evil}, tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    with pytest.raises(ModelFileError, match="is no zip archive"):
        open_torch_file(tmp_path / "old.pt")
    assert not traces.exists()


def test_a_whole_module_is_refused_with_what_to_save_instead(tmp_path: Path) -> None:
    path = saved(tmp_path / "file.pt", nn.Linear(2, 2))
    with pytest.raises(
        ModelFileError, match=r"linear\.Linear', which .* save module\.state_dict\(\)"
    ):
        open_torch_file(path)


def test_a_pickle_that_no_tensor_needs_is_refused(tmp_path: Path) -> None:
    path = saved(tmp_path / "file.pt", {"w": torch.ones(2)})
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("file/data.pkl", b"\x80\x02(lp0\nI1\nq\x00R.")
        archive.writestr("file/version", b"3\n")
    with pytest.raises(ModelFileError, match="its pickle is damaged or holds more than tensors"):
        open_torch_file(path)


def test_archives_of_other_kinds_are_refused(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "old.pt", "w") as archive:
        archive.addfile(tarfile.TarInfo("storages"), io.BytesIO())
    with pytest.raises(ModelFileError, match=r"since torch 1\.6\. An older file is converted by"):
        open_torch_file(tmp_path / "old.pt")
    script = repacked(saved(tmp_path / "script.pt", {"w": torch.ones(2)}), constants_pkl=b"")
    with pytest.raises(ModelFileError, match="is a TorchScript archive, which is code"):
        open_torch_file(script)


def test_a_compressed_archive_is_refused_before_it_is_unpacked(tmp_path: Path) -> None:
    path = saved(tmp_path / "file.pt", {"w": torch.ones(2)})
    repacked(path, compression=zipfile.ZIP_DEFLATED, bomb=bytes(10**7))
    with pytest.raises(ModelFileError, match=r"of its \d+ parts are compressed, 'file/data.pkl'"):
        open_torch_file(path)


def test_parts_that_lie_on_top_of_each_other_are_refused(tmp_path: Path) -> None:
    """The other kind of zip bomb: many entries of the directory name the same bytes."""
    path = saved(tmp_path / "file.pt", {"w": torch.ones(10**5)})
    with zipfile.ZipFile(path, "a") as archive:
        archive.filelist += archive.filelist * 3
        archive.writestr("last", b"")
    with pytest.raises(ModelFileError, match=r"has \d+,\d+ bytes, but its \d+ parts claim 1,6"):
        open_torch_file(path)


def test_one_number_cannot_claim_to_be_a_large_tensor(tmp_path: Path) -> None:
    path = saved(tmp_path / "file.pt", {"w": torch.ones(1).expand(10**6, 10**6)})
    size = path.stat().st_size
    with pytest.raises(
        ModelFileError,
        match=rf"'w' of shape \(1000000, 1000000\) has 4,000,000,000,000 bytes, .* the {size:,} of",
    ):
        open_torch_file(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([torch.ones(2)], "holds a list; wanted a state dict"),
        ({"a": 1, "b": {"w": torch.ones(2)}}, "holds no tensors by name, .* its keys: 'a', 'b'"),
        ({}, "its keys: none"),
        ({0: torch.ones(2)}, "the key 0 of its state dict is no name"),
    ],
)
def test_a_file_without_a_state_dict_is_refused(
    tmp_path: Path, content: object, message: str
) -> None:
    with pytest.raises(ModelFileError, match=message):
        open_torch_file(saved(tmp_path / "file.pt", content))


def test_an_archive_without_a_pickle_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "file.pt", "w") as archive:
        archive.writestr("readme.txt", "hello")
    with pytest.raises(ModelFileError, match=r"cannot be opened by torch: \w+Error, "):
        open_torch_file(tmp_path / "file.pt")


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(length=st.integers(1, 10**4))
def test_every_truncation_is_refused(tmp_path: Path, length: int) -> None:
    whole = saved(tmp_path / "whole.pt", {"w": torch.ones(2)}).read_bytes()
    (tmp_path / "file.pt").write_bytes(whole[: 1 + length % (len(whole) - 1)])
    with pytest.raises(ModelFileError):
        open_torch_file(tmp_path / "file.pt")


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.integers(0, 10**4), value=st.integers(0, 255))
def test_a_changed_byte_gives_tensors_or_a_refusal(tmp_path: Path, place: int, value: int) -> None:
    data = bytearray(saved(tmp_path / "whole.pt", {"w": torch.ones(2)}).read_bytes())
    data[place % len(data)] = value
    (tmp_path / "file.pt").write_bytes(data)
    with suppress(ModelFileError):
        for entry in open_torch_file(tmp_path / "file.pt").entries:
            assert entry.name
