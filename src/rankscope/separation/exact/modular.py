"""Exact ranks and solutions modulo a prime.

A rank modulo a prime is never more than the rank over the rationals: a minor that is not 0
modulo p is an integer that is not 0.
"""

import operator
from dataclasses import dataclass
from typing import SupportsIndex

import numpy
from numpy.typing import NDArray

from rankscope.errors import MatrixError
from rankscope.separation.exact.elimination import Echelon, eliminate
from rankscope.separation.exact.primes import require_prime
from rankscope.separation.exact.products import MAX_DEPTH, subtract_product
from rankscope.separation.exact.residues import to_residues

_PRIME_LIMIT = 2**31


@dataclass(frozen=True)
class Pivots:
    """Rows and columns, ascending, whose minor is not 0 modulo the prime; none is larger."""

    prime: int
    rows: tuple[int, ...]
    columns: tuple[int, ...]

    @property
    def matrix_rank(self) -> int:
        """The rank modulo the prime."""
        return len(self.rows)


def rank_modulo(matrix: NDArray[numpy.generic], prime: SupportsIndex) -> int:
    """Compute the rank of an integer matrix modulo a prime, exactly.

    Primes below 2^24 are the fastest, larger ones take two to three times as long.

    Args:
        matrix: (rows, columns) of any integer type, or of Python integers of any size; left
            untouched.
        prime: below 2^31.

    Example:
        >>> rank_modulo(numpy.array([[1, 2], [3, -1]]), 7), rank_modulo(numpy.eye(3, dtype=int), 2)
        (1, 3)

    Raises:
        MatrixError: if the array is no matrix of integers.
        PrimeError: if the prime is composite or too large.

    Reference:
        Dumas, Giorgi & Pernet (2008), Dense linear algebra over word-size prime fields: the
        FFLAS and FFPACK packages, arXiv:cs/0601133.
    """
    return _eliminated(matrix, prime, "rank_modulo").matrix_rank


def pivots_modulo(matrix: NDArray[numpy.generic], prime: SupportsIndex) -> Pivots:
    """Find a largest minor of an integer matrix that is not 0 modulo a prime.

    Example:
        >>> pivots_modulo(numpy.array([[0, 0, 1], [0, 0, 2], [0, 4, 9]]), 101)
        Pivots(prime=101, rows=(0, 2), columns=(1, 2))

    Raises:
        MatrixError: if the array is no matrix of integers.
        PrimeError: if the prime is composite or too large.
    """
    echelon = _eliminated(matrix, prime, "pivots_modulo")
    return Pivots(echelon.prime, echelon.pivot_rows, echelon.pivot_columns)


def solve_modulo(
    matrix: NDArray[numpy.generic], right_sides: NDArray[numpy.generic], prime: SupportsIndex
) -> NDArray[numpy.int64]:
    """Solve matrix @ solution = right_sides modulo a prime, with entries in 0..p-1.

    Args:
        matrix: (size, size), integers, non-singular modulo the prime.
        right_sides: (size, count), integers.
        prime: below 2^31.

    Example:
        >>> solve_modulo(numpy.array([[1, 2], [3, 4]]), numpy.array([[5], [6]]), 7).tolist()
        [[3], [1]]

    Raises:
        MatrixError: if the arrays do not fit, hold no integers, or the matrix is singular.
        PrimeError: if the prime is composite or too large.
    """
    checked = _checked_prime(prime, "solve_modulo")
    _require_system(matrix.shape, right_sides.shape)
    size, count = right_sides.shape
    augmented = numpy.empty((size, size + count))
    augmented[:, :size] = to_residues(matrix, checked, who="solve_modulo")
    augmented[:, size:] = to_residues(right_sides, checked, who="solve_modulo")
    echelon = eliminate(augmented, checked, num_columns=size)
    if echelon.matrix_rank < size:
        raise MatrixError(
            f"solve_modulo needs a non-singular matrix, got rank {echelon.matrix_rank} modulo "
            f"{checked} for size {size}. Take the rows and columns of pivots_modulo."
        )
    return _substituted_back(echelon, size, count)


def _substituted_back(echelon: Echelon, size: int, count: int) -> NDArray[numpy.int64]:
    """The solution of a non-singular system, from its last panel to its first."""
    solution = numpy.zeros((size, count))
    for panel in reversed(echelon.panels):
        start, stop = panel.first_row, panel.first_row + len(panel.columns)
        rest = echelon.residues[start:stop, size:].copy()
        for later in range(stop, size, MAX_DEPTH):
            columns = slice(later, min(later + MAX_DEPTH, size))
            subtract_product(
                rest, echelon.residues[start:stop, columns], solution[columns], echelon.prime
            )
        block = numpy.zeros((stop - start, count))
        subtract_product(block, panel.inverse, -rest, echelon.prime)
        solution[panel.columns] = block
    return numpy.remainder(solution.astype(numpy.int64), echelon.prime)


def _eliminated(matrix: NDArray[numpy.generic], prime: SupportsIndex, who: str) -> Echelon:
    checked = _checked_prime(prime, who)
    return eliminate(to_residues(matrix, checked, who=who), checked)


def _checked_prime(prime: SupportsIndex, who: str) -> int:
    return require_prime(operator.index(prime), below=_PRIME_LIMIT, who=who)


def _require_system(matrix: tuple[int, ...], right_sides: tuple[int, ...]) -> None:
    if len(matrix) != 2 or matrix[0] != matrix[1]:
        raise MatrixError(f"solve_modulo needs a square matrix, got shape {matrix}.")
    if len(right_sides) != 2 or right_sides[0] != matrix[0]:
        raise MatrixError(
            f"solve_modulo needs right sides of shape ({matrix[0]}, count), got {right_sides}."
        )
