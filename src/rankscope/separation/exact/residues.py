"""Integer matrices as float64 residues."""

import numpy
from numpy.typing import NDArray

from rankscope.errors import MatrixError
from rankscope.separation.exact.kernels import Matrix, reduce_block

_CHUNK_ENTRIES = 2**18  # converted at a time, so that no second copy of the matrix is made
_SMALL = 2**51  # below, a reduced float64 is at most p/2 (see kernels)


def to_residues(matrix: NDArray[numpy.generic], prime: int, *, who: str) -> Matrix:
    """Write an integer matrix modulo a prime, in a new array of residues.

    Raises:
        MatrixError: if the array is no matrix, or does not hold integers.
    """
    _require_integer_matrix(matrix, who)
    num_rows, num_columns = matrix.shape
    result = numpy.empty((num_rows, num_columns))
    step = max(1, _CHUNK_ENTRIES // max(1, num_columns))
    for start in range(0, num_rows, step):
        stop = min(start + step, num_rows)
        result[start:stop] = _small_integers(matrix[start:stop], prime, who)
        reduce_block(result, (start, stop), 0, float(prime))
    return result


def _require_integer_matrix(matrix: NDArray[numpy.generic], who: str) -> None:
    if matrix.ndim != 2:
        raise MatrixError(
            f"{who} needs a matrix, got an array of order {matrix.ndim} (shape {matrix.shape})."
        )
    if matrix.dtype.kind not in "iuO":
        raise MatrixError(
            f"{who} needs integers, got {matrix.dtype}. Scale to integers for an exact rank, "
            f"or use numeric_rank for floating-point data."
        )


def _small_integers(rows: NDArray[numpy.generic], prime: int, who: str) -> NDArray[numpy.generic]:
    """The same rows modulo p, with absolute values below 2^51."""
    if rows.dtype.kind == "O":
        return numpy.array([[_remainder(entry, prime, who) for entry in row] for row in rows])
    if rows.dtype.itemsize < 8 or rows.size == 0:
        return rows
    if int(rows.min()) > -_SMALL and int(rows.max()) < _SMALL:
        return rows
    remainders: NDArray[numpy.generic] = numpy.remainder(rows, rows.dtype.type(prime))
    return remainders


def _remainder(entry: object, prime: int, who: str) -> int:
    if isinstance(entry, bool | numpy.bool) or not isinstance(entry, int | numpy.integer):
        raise MatrixError(f"{who} needs integers, got {entry!r} of type {type(entry).__name__}.")
    return int(entry) % prime
