import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from rankscope.errors import MatrixError
from rankscope.rank import residues as module
from rankscope.rank import to_residues

DTYPES = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", ">i8", "<u4"]


@settings(deadline=None)
@given(
    dtype=st.sampled_from(DTYPES),
    prime=st.sampled_from([2, 3, 16777213, 2147483647]),
    seed=st.integers(0, 999),
)
def test_every_integer_type_is_read_to_its_last_value(dtype: str, prime: int, seed: int) -> None:
    limits = numpy.iinfo(numpy.dtype(dtype).newbyteorder("="))
    draw = numpy.random.default_rng(seed)
    matrix = draw.integers(limits.min, limits.max, (3, 4), dtype=limits.dtype, endpoint=True)
    matrix[0, 0], matrix[1, 1] = limits.min, limits.max
    found = to_residues(matrix.astype(dtype), prime, who="me")
    for entry, residue in zip(matrix.ravel().tolist(), found.ravel().tolist(), strict=True):
        assert (entry - int(residue)) % prime == 0
        assert abs(residue) <= prime / 2


def test_python_integers_of_any_size_are_read() -> None:
    matrix = numpy.array([[10**40, -(10**40)], [numpy.int64(5), 0]], dtype=object)
    found = to_residues(matrix, 97, who="me").astype(int) % 97
    assert found.tolist() == [[10**40 % 97, -(10**40) % 97], [5, 0]]


def test_strided_matrices_are_read_in_place_and_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_CHUNK_ENTRIES", 7)
    matrix = numpy.arange(-60, 60).reshape(10, 12)
    matrix.flags.writeable = False
    for view in (matrix.T, matrix[::-2, ::3], matrix[3:3], matrix[:, 2:2], matrix):
        found = to_residues(view, 11, who="me")
        assert found.flags.c_contiguous
        assert not ((found - view) % 11).any()


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (numpy.zeros(3, dtype=int), r"me needs a matrix, got an array of order 1 \(shape \(3,\)\)"),
        (numpy.zeros((2, 2)), "me needs integers, got float64"),
        (numpy.zeros((2, 2), dtype=bool), "me needs integers, got bool"),
        (numpy.array([[1, True]], dtype=object), "me needs integers, got True of type bool"),
        (numpy.array([[1, 0.5]], dtype=object), "me needs integers, got 0.5 of type float"),
    ],
)
def test_what_is_no_integer_matrix_is_refused(array: NDArray[numpy.generic], message: str) -> None:
    with pytest.raises(MatrixError, match=message):
        to_residues(array, 7, who="me")
