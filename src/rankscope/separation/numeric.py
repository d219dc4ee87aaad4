"""Rank by singular values: a judgement, with what is needed to doubt it."""

import math
from dataclasses import dataclass

import numpy
from numpy.typing import NDArray

from rankscope.errors import MatrixError


@dataclass(frozen=True, eq=False)
class NumericRank:
    """The number of singular values above a tolerance.

    `singular_values` are descending; `tolerance` is absolute.
    """

    value: int
    singular_values: NDArray[numpy.float64]
    tolerance: float

    def __str__(self) -> str:
        return f"rank {self.value} (tolerance {self.tolerance:.1e}, gap {self.gap:.1e})"

    @property
    def gap(self) -> float:
        """Last singular value kept over the first one dropped; near 1 means undecided."""
        if self.value in (0, len(self.singular_values)):
            return math.inf
        kept, dropped = self.singular_values[self.value - 1], self.singular_values[self.value]
        return math.inf if dropped == 0 else float(kept / dropped)

    @property
    def entanglement_entropy(self) -> float:
        r"""How evenly the singular values share the square of the norm, in nats.

        .. math:: -\sum_i q_i \ln q_i, \qquad q_i = \sigma_i^2 / \sum_j \sigma_j^2

        It is 0 for a product and at most the logarithm of the rank; of the zero matrix it is 0.
        """
        if self.value == 0:
            return 0.0
        # Scaling by the largest keeps the squares from overflowing.
        squares = numpy.square(self.singular_values / self.singular_values[0])
        shares = squares[squares > 0] / squares.sum()
        return max(0.0, -float(numpy.sum(shares * numpy.log(shares))))


def numeric_rank(
    matrix: NDArray[numpy.generic], *, relative_tolerance: float | None = None
) -> NumericRank:
    """Count the singular values of a real matrix that stand out of rounding.

    Args:
        matrix: (rows, columns), floating point or integer; the spectrum is computed in float64.
        relative_tolerance: singular values up to this share of the largest count as zero; by
            default the precision the matrix was made in times its longer side.

    Example:
        >>> numeric_rank(numpy.outer([1.0, 2.0], [3.0, 4.0, 5.0])).value
        1

    Raises:
        MatrixError: if the array is no matrix of finite real numbers.
    """
    _require_real_matrix(matrix)
    if matrix.size == 0:
        return NumericRank(0, numpy.zeros(0), 0.0)
    if relative_tolerance is None:
        # The precision the data was made in decides, not the float64 we compute in.
        relative_tolerance = max(matrix.shape) * _precision(matrix)
    singular_values = numpy.linalg.svd(matrix.astype(numpy.float64), compute_uv=False)
    tolerance = relative_tolerance * float(singular_values[0])
    return NumericRank(int((singular_values > tolerance).sum()), singular_values, tolerance)


def _precision(matrix: NDArray[numpy.generic]) -> float:
    own = float(numpy.finfo(matrix.dtype.name).eps) if matrix.dtype.kind == "f" else 0.0
    return max(own, float(numpy.finfo(numpy.float64).eps))


def _require_real_matrix(matrix: NDArray[numpy.generic]) -> None:
    if matrix.ndim != 2:
        raise MatrixError(
            f"numeric_rank needs a matrix, got an array of order {matrix.ndim} "
            f"(shape {matrix.shape}). Matricize it first."
        )
    if matrix.dtype.kind not in "fiu":
        raise MatrixError(
            f"numeric_rank needs real numbers, floating point or integer, got {matrix.dtype}."
        )
    num_bad = int(matrix.size - numpy.isfinite(matrix).sum())
    if num_bad:
        raise MatrixError(f"numeric_rank: {num_bad} of {matrix.size} entries are not finite.")
