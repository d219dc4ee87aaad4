import io
import zipfile
from pathlib import Path

import numpy
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from rankscope.errors import ModelFileError
from rankscope.tensor_files import NumpyArchive, NumpyFile, TensorEntry

KINDS = ("b1", "i1", "u1", "<i2", ">i2", "<i8", ">u4", "<f2", ">f4", "<f8", "<c8", ">c16")
SHAPES = arrays.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4)
ARRAYS = st.sampled_from(KINDS).flatmap(lambda kind: arrays.arrays(numpy.dtype(kind), SHAPES))


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(array=ARRAYS, is_fortran=st.booleans(), is_packed=st.booleans())
def test_every_array_is_read_as_numpy_reads_it(
    tmp_path: Path, array: numpy.ndarray, is_fortran: bool, is_packed: bool
) -> None:
    array = numpy.array(array, order="F" if is_fortran else "C")
    numpy.save(tmp_path / "one.npy", array)
    save = numpy.savez_compressed if is_packed else numpy.savez
    save(tmp_path / "many.npz", first=array, second=numpy.ones(2))
    file, archive = NumpyFile(tmp_path / "one.npy"), NumpyArchive(tmp_path / "many.npz")
    assert [entry.name for entry in archive.entries] == ["first", "second"]
    for tensor in (file.read(""), archive.read("first")):
        assert str(tensor.dtype) == f"torch.{array.dtype.name}"
        numpy.testing.assert_array_equal(tensor.numpy(), array)


def test_an_array_without_a_name_has_an_entry_without_one(tmp_path: Path) -> None:
    numpy.save(tmp_path / "one.npy", numpy.zeros((2, 3), "float32"))
    file = NumpyFile(tmp_path / "one.npy")
    assert file.entries == (TensorEntry("", (2, 3), "float32"),)
    with pytest.raises(KeyError):
        file.read("other")


def header(shape: tuple[int, ...], kind: str = "<f8") -> bytes:
    file = io.BytesIO()
    fields = {"descr": kind, "fortran_order": False, "shape": shape}
    numpy.lib.format.write_array_header_1_0(file, fields)
    return file.getvalue()


def test_an_array_that_claims_more_than_its_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "one.npy").write_bytes(header((10**5, 10**4)) + bytes(16))
    message = r"shape \(100000, 10000\), 8,000,000,000 bytes, but 16 follow its header"
    with pytest.raises(ModelFileError, match=message):
        NumpyFile(tmp_path / "one.npy")
    with zipfile.ZipFile(tmp_path / "many.npz", "w") as archive:
        archive.writestr("w.npy", header((10**5, 10**4)) + bytes(16))
    with pytest.raises(ModelFileError, match=rf"array 'w.npy' has the {message}"):
        NumpyArchive(tmp_path / "many.npz")


@pytest.mark.slow
def test_a_packed_array_far_larger_than_its_file_is_refused_unread(tmp_path: Path) -> None:
    with (
        zipfile.ZipFile(tmp_path / "bomb.npz", "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("w.npy", "w", force_zip64=True) as file,
    ):
        file.write(header((2**25,)))
        for _ in range(2**8):
            file.write(bytes(2**20))
    size = (tmp_path / "bomb.npz").stat().st_size
    message = (
        rf"has {size:,} bytes and claims to hold 268,435,\d+ when unpacked; at most 134,217,728"
    )
    with pytest.raises(ModelFileError, match=message):
        NumpyArchive(tmp_path / "bomb.npz")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (header((1,), "|O") + bytes(8), "holds numpy's object; wanted numbers"),
        (header((1,), "<U4") + bytes(16), "holds numpy's <U4; wanted numbers"),
        (header((1,), "<M8[s]") + bytes(8), "holds numpy's datetime64"),
        (b"\x93NUMPY\x01\x00", "is damaged, or not what numpy.save writes: it has 8 bytes"),
        (b"nonsense", "is damaged, or not what numpy.save writes"),
    ],
)
def test_what_holds_no_numbers_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "one.npy").write_bytes(content)
    with pytest.raises(ModelFileError, match=message):
        NumpyFile(tmp_path / "one.npy")


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.integers(0, 10**4), value=st.integers(0, 255), is_packed=st.booleans())
def test_a_changed_byte_gives_arrays_or_a_refusal(
    tmp_path: Path, place: int, value: int, is_packed: bool
) -> None:
    path = tmp_path / "file.npz"
    (numpy.savez_compressed if is_packed else numpy.savez)(path, w=numpy.arange(6.0))
    data = bytearray(path.read_bytes())
    data[place % len(data)] = value
    path.write_bytes(data)
    try:
        file = NumpyArchive(path)
        tensors = [file.read(entry.name) for entry in file.entries]
    except ModelFileError:
        return
    assert all(isinstance(tensor, torch.Tensor) for tensor in tensors)


def test_a_header_of_python_2_is_read_without_a_word(
    tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    path = tmp_path / "old.npy"
    numpy.save(path, numpy.arange(4.0).reshape(2, 2))
    path.write_bytes(path.read_bytes().replace(b"(2, 2), }  ", b"(2L, 2L), }"))
    assert NumpyFile(path).read("").tolist() == [[0.0, 1.0], [2.0, 3.0]]
    assert not recwarn.list
