import io
import math
import os
import pickle
import tarfile
import tracemalloc
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

from rankscope.errors import ModelFileError
from rankscope.tensor_files import TensorEntry, TorchFile


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
    source = TorchFile(saved(tmp_path / "file.pt", content))
    assert source.entries == (
        TensorEntry("w", (2, 3), "bfloat16", ("tied",)),
        TensorEntry("count", (), "int64"),
    )
    assert source.read("w").equal(weight)
    assert source.read("tied").equal(weight)


def test_tensors_are_mapped_and_cannot_change_the_file(tmp_path: Path) -> None:
    path = saved(tmp_path / "file.pt", {"w": torch.ones(4)})
    before = path.read_bytes()
    TorchFile(path).read("w").zero_()
    assert path.read_bytes() == before


def test_a_pickle_that_wants_to_run_code_is_refused_and_does_not_run(tmp_path: Path) -> None:
    traces = tmp_path / "it ran"
    evil = Malicious(f"touch '{traces}'")
    pickle.loads(pickle.dumps(evil))  # it would
    assert traces.exists()
    traces.unlink()
    with pytest.raises(ModelFileError, match=r"asks for '\w+\.system', which could run any code"):
        TorchFile(saved(tmp_path / "zip.pt", {"w": torch.ones(2), "evil": evil}))
    (tmp_path / "bare.pt").write_bytes(pickle.dumps(evil))
    torch.save({"evil": evil}, tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    for name in ("bare.pt", "old.pt"):
        with pytest.raises(ModelFileError, match=r"\w+\.system', which could run any code"):
            TorchFile(tmp_path / name)
    assert not traces.exists()


def test_a_whole_module_is_refused_with_what_to_save_instead(tmp_path: Path) -> None:
    path = saved(tmp_path / "file.pt", nn.Linear(2, 2))
    with pytest.raises(
        ModelFileError, match=r"linear\.Linear', which .* save module\.state_dict\(\)"
    ):
        TorchFile(path)


def test_a_pickle_that_no_tensor_needs_is_refused(tmp_path: Path) -> None:
    path = saved(tmp_path / "file.pt", {"w": torch.ones(2)})
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("file/data.pkl", b"\x80\x02(lp0\nI1\nq\x00R.")
        archive.writestr("file/version", b"3\n")
    with pytest.raises(ModelFileError, match="its pickle is damaged or holds more than tensors"):
        TorchFile(path)


def test_archives_of_other_kinds_are_refused(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "old.pt", "w") as archive:
        archive.addfile(tarfile.TarInfo("storages"), io.BytesIO())
    with pytest.raises(ModelFileError, match="neither a zip archive, as since torch"):
        TorchFile(tmp_path / "old.pt")
    script = repacked(saved(tmp_path / "script.pt", {"w": torch.ones(2)}), constants_pkl=b"")
    with pytest.raises(ModelFileError, match="is a TorchScript archive, which is code"):
        TorchFile(script)


def test_a_compressed_archive_is_refused_before_it_is_unpacked(tmp_path: Path) -> None:
    path = saved(tmp_path / "file.pt", {"w": torch.ones(2)})
    repacked(path, compression=zipfile.ZIP_DEFLATED, bomb=bytes(10**7))
    with pytest.raises(ModelFileError, match=r"of its \d+ parts are compressed, 'file/data.pkl'"):
        TorchFile(path)


def test_parts_that_lie_on_top_of_each_other_are_refused(tmp_path: Path) -> None:
    """The other kind of zip bomb: many entries of the directory name the same bytes."""
    path = saved(tmp_path / "file.pt", {"w": torch.ones(10**5)})
    with zipfile.ZipFile(path, "a") as archive:
        archive.filelist += archive.filelist * 3
        archive.writestr("last", b"")
    with pytest.raises(ModelFileError, match=r"has \d+,\d+ bytes, but its \d+ parts claim 1,6"):
        TorchFile(path)


def test_one_number_cannot_claim_to_be_a_large_tensor(tmp_path: Path) -> None:
    path = saved(tmp_path / "file.pt", {"w": torch.ones(1).expand(10**6, 10**6)})
    with pytest.raises(
        ModelFileError,
        match=r"of shape \(1000000, 1000000\) and strides \(0, 0\) claims 4,000,000,000,000 bytes, "
        r"from value 0 on, of a storage of 4; save it as tensor\.contiguous\(\)",
    ):
        TorchFile(path)


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
        TorchFile(saved(tmp_path / "file.pt", content))


def test_an_archive_without_a_pickle_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "file.pt", "w") as archive:
        archive.writestr("readme.txt", "hello")
    with pytest.raises(ModelFileError, match=r"has 1 parts, of which 0 are called …/data.pkl"):
        TorchFile(tmp_path / "file.pt")


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(length=st.integers(1, 10**4))
def test_every_truncation_is_refused(tmp_path: Path, length: int) -> None:
    whole = saved(tmp_path / "whole.pt", {"w": torch.ones(2)}).read_bytes()
    (tmp_path / "file.pt").write_bytes(whole[: 1 + length % (len(whole) - 1)])
    with pytest.raises(ModelFileError):
        TorchFile(tmp_path / "file.pt")


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.integers(0, 10**4), value=st.integers(0, 255))
def test_a_changed_byte_gives_tensors_or_a_refusal(tmp_path: Path, place: int, value: int) -> None:
    data = bytearray(saved(tmp_path / "whole.pt", {"w": torch.ones(2)}).read_bytes())
    data[place % len(data)] = value
    (tmp_path / "file.pt").write_bytes(data)
    with suppress(ModelFileError):
        for entry in TorchFile(tmp_path / "file.pt").entries:
            assert entry.name


DTYPES = (torch.float32, torch.bfloat16, torch.float64, torch.int8, torch.bool, torch.complex64)


@st.composite
def views(draw: st.DrawFn) -> torch.Tensor:
    """Any view of any storage: permuted, cut, with steps, without values, of order zero."""
    shape = draw(st.lists(st.integers(0, 4), max_size=4))
    whole = torch.arange(math.prod(shape)).reshape(shape).to(draw(st.sampled_from(DTYPES)))
    order = draw(st.permutations(range(whole.ndim)))
    view = whole.permute(order)
    for axis in range(view.ndim):
        start, step = draw(st.integers(0, 2)), draw(st.integers(1, 3))
        view = view.transpose(0, axis)[start::step].transpose(0, axis)
    return view


@settings(
    deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(tensors=st.lists(views(), min_size=1, max_size=4), is_old=st.booleans())
def test_every_view_is_read_as_torch_reads_it(
    tmp_path: Path, tensors: list[torch.Tensor], is_old: bool
) -> None:
    state = {f"w{number}": tensor for number, tensor in enumerate(tensors)}
    state["parameter"] = nn.Parameter(torch.zeros(2, 3).T)
    path = tmp_path / "file.pt"
    torch.save(state, path, _use_new_zipfile_serialization=not is_old)
    source = TorchFile(path)
    for entry in source.entries:
        for name in (entry.name, *entry.tied_names):
            assert source.read(name).dtype == state[name].dtype
            assert source.read(name).equal(state[name].detach())


def test_unsigned_integers_of_newer_versions_are_read(tmp_path: Path) -> None:
    tensor = torch.arange(6).to(torch.uint16).reshape(2, 3).T
    source = TorchFile(saved(tmp_path / "file.pt", {"w": tensor}))
    assert source.entries == (TensorEntry("w", (3, 2), "uint16"),)
    assert source.read("w").equal(tensor)


class Zeros:
    """A pickle that makes a buffer of any length, which `weights_only` allows."""

    def __reduce__(self) -> tuple[object, tuple[int]]:
        return bytearray, (3_200_000_000,)


def test_a_small_file_cannot_ask_for_much_memory(tmp_path: Path) -> None:
    path = saved(tmp_path / "file.pt", {"w": torch.ones(2), "more": Zeros()})
    assert path.stat().st_size < 2000
    tracemalloc.start()
    assert TorchFile(path).read("w").equal(torch.ones(2))
    assert tracemalloc.get_traced_memory()[1] < 2_000_000
    tracemalloc.stop()


@pytest.mark.parametrize(
    ("tensor", "kind"),
    [
        (lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]), "nested tensor"),
        (lambda: torch.eye(3).to_sparse(), "sparse tensor"),
        (lambda: torch.empty(3, device="meta"), "tensor on the meta device, without values"),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_tensors_that_are_not_dense_are_refused_by_kind(
    tmp_path: Path, tensor: Callable[[], torch.Tensor], kind: str
) -> None:
    path = saved(tmp_path / "file.pt", {"w": torch.ones(2), "odd": tensor()})
    with pytest.raises(ModelFileError, match=f"'odd' is a {kind}; only dense tensors are read"):
        TorchFile(path)


def test_a_storage_that_claims_more_than_its_part_is_refused(tmp_path: Path) -> None:
    path = saved(tmp_path / "file.pt", {"w": torch.ones(7)})
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data[:20] if name.endswith("data/0") else data)
    with pytest.raises(ModelFileError, match=r"storage '0' claims 28 bytes, .* holds 20 of it"):
        TorchFile(path)


def test_views_on_top_of_each_other_are_refused_beyond_a_share(tmp_path: Path) -> None:
    weight = torch.ones(3000)
    path = saved(tmp_path / "few.pt", {f"w{n}": weight[n:] for n in range(5)})
    assert len(TorchFile(path).entries) == 5
    saved(path, {f"w{n}": weight[n:] for n in range(300)})
    with pytest.raises(ModelFileError, match=r"its 300 tensors claim 3,4\d\d,\d+: they lie on top"):
        TorchFile(path)


def test_a_file_of_an_old_version_that_is_cut_off_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "file.pt"
    torch.save({"w": torch.ones(99)}, path, _use_new_zipfile_serialization=False)
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(ModelFileError, match=r"is cut off: storage '\d+' claims 396 from byte"):
        TorchFile(path)


def test_a_file_of_the_other_byte_order_is_refused(tmp_path: Path) -> None:
    path = saved(tmp_path / "file.pt", {"w": torch.ones(2)})
    data = path.read_bytes().replace(b"little", b"bigger")
    path.write_bytes(data)
    with pytest.raises(ModelFileError, match="byte order 'bigger', but this machine has little"):
        TorchFile(path)
