"""Exact rank modulo a prime: blocked elimination with panels in numba and products by BLAS."""

import operator
from dataclasses import dataclass
from typing import SupportsIndex

import numpy
from numpy.typing import NDArray

from rankscope.errors import MatrixError
from rankscope.rank.residues import (
    MAX_DEPTH,
    Matrix,
    Positions,
    find_pivots,
    invert_in_place,
    panel_width,
    require_prime,
    subtract_product,
    to_residues,
)

# --- Gaussian elimination modulo a prime, a panel of columns at a time ----------------------------


# A square block of random residues is singular with probability about 1/p; some rows more make
# it all but sure, even for p = 2, that the first look at a panel of full rank finds all pivots.
_SPARE_ROWS = 16
_CHUNK_ROWS = 1024


@dataclass(frozen=True, eq=False)
class Panel:
    """Pivots found together.

    They stand in the rows from `first_row` on and in `columns`; `inverse` is the inverse of the
    block where those rows and columns meet.
    """

    first_row: int
    columns: Positions
    inverse: Matrix


@dataclass(frozen=True, eq=False)
class Echelon:
    """A matrix after elimination.

    Row i of `residues` was row `row_order[i]` of the matrix; right of its panel it is the row of
    the echelon form. Entries below the pivots are left as they were and mean nothing.
    """

    prime: int
    residues: Matrix
    row_order: Positions
    panels: tuple[Panel, ...]

    @property
    def matrix_rank(self) -> int:
        """The number of pivots."""
        return sum(len(panel.columns) for panel in self.panels)

    @property
    def pivot_rows(self) -> tuple[int, ...]:
        """Independent rows of the matrix, as many as its rank, ascending."""
        return tuple(sorted(self.row_order[: self.matrix_rank].tolist()))

    @property
    def pivot_columns(self) -> tuple[int, ...]:
        """Independent columns of the matrix, as many as its rank, ascending."""
        return tuple(sorted(c for panel in self.panels for c in panel.columns.tolist()))


def eliminate(residues: Matrix, prime: int, *, num_columns: int | None = None) -> Echelon:
    """Eliminate a C-contiguous matrix of residues in place.

    Args:
        residues: entries as `to_residues` makes them; overwritten.
        prime: below 2^31.
        num_columns: look for pivots in the first so many columns only (default: in all).
    """
    num_rows = residues.shape[0]
    if num_columns is None:
        num_columns = residues.shape[1]
    row_order = numpy.arange(num_rows)
    panels: list[Panel] = []
    row, width = 0, panel_width(prime)
    for start in range(0, num_columns, width):
        if row == num_rows:
            break
        stop = min(start + width, num_columns)
        panel = _search(residues, row, (start, stop), prime)
        if len(panel.rows) == 0:
            continue
        inverse = panel.inverse[:, _gather(residues, row_order, row, start, panel.rows)]
        panels.append(Panel(row, start + panel.columns, inverse))
        below = row + len(panel.rows)
        factors = numpy.zeros((num_rows - below, len(panel.rows)))
        entries = residues[below:, start:stop]
        if not numpy.array_equal(panel.columns, numpy.arange(stop - start)):
            entries = entries[:, panel.columns]
        # The sign: subtracting makes minus the factors, so the inverse is taken with a minus.
        subtract_product(factors, entries, -inverse, prime)
        subtract_product(residues, factors, residues[row:below, stop:], prime, corner=(below, stop))
        row = below
    return Echelon(prime, residues, row_order, tuple(panels))


@dataclass(frozen=True, eq=False)
class _PanelPivots:
    """Pivot rows of the matrix, pivot columns of the panel, the inverse where they meet."""

    rows: Positions
    columns: Positions
    inverse: Matrix


def _search(residues: Matrix, first_row: int, span: tuple[int, int], prime: int) -> _PanelPivots:
    """Find as many independent rows of a panel as it has, from `first_row` on."""
    panel = residues[:, span[0] : span[1]]
    width = span[1] - span[0]
    nothing = numpy.zeros(0, dtype=numpy.int64)
    pivots = _PanelPivots(nothing, nothing, numpy.zeros((0, 0)))
    start, stop = first_row, first_row + width + _SPARE_ROWS
    while start < len(residues) and len(pivots.rows) < width:
        block = numpy.array(panel[start:stop], order="C")
        if len(pivots.rows):
            _clear(block, panel, pivots, prime)
        if block.any():
            pivots = _extend(pivots, block, panel, start, prime)
        start, stop = stop, stop + _CHUNK_ROWS
    return pivots


def _clear(block: Matrix, panel: Matrix, pivots: _PanelPivots, prime: int) -> None:
    """Subtract from every row of a block its combination of the pivot rows found so far."""
    factors = numpy.zeros((len(block), len(pivots.rows)))
    subtract_product(factors, block[:, pivots.columns], -pivots.inverse, prime)
    subtract_product(block, factors, panel[pivots.rows], prime)


def _extend(
    pivots: _PanelPivots, block: Matrix, panel: Matrix, start: int, prime: int
) -> _PanelPivots:
    """Add the pivots of a block that stands at row `start` of the panel, cleared by the others."""
    most = min(block.shape)
    rows, columns = numpy.empty(most, dtype=numpy.int64), numpy.empty(most, dtype=numpy.int64)
    count = find_pivots(block, float(prime), rows, columns)
    all_rows = numpy.concatenate([pivots.rows, start + rows[:count]])
    all_columns = numpy.concatenate([pivots.columns, columns[:count]])
    # Each pivot was non-zero after clearing by the ones before it, so no leading minor vanishes.
    inverse = numpy.array(panel[all_rows][:, all_columns], order="C")
    invert_in_place(inverse, float(prime))
    return _PanelPivots(all_rows, all_columns, inverse)


def _gather(
    residues: Matrix, row_order: Positions, first_row: int, first_column: int, rows: Positions
) -> Positions:
    """Exchange rows so that the pivot rows come first; return their new order."""
    count = len(rows)
    places = rows.copy()
    is_outside = rows >= first_row + count
    taken = numpy.zeros(count, dtype=numpy.bool_)
    taken[rows[~is_outside] - first_row] = True
    holes = first_row + numpy.flatnonzero(~taken)
    outside = rows[is_outside]
    for array in (residues[:, first_column:], row_order):
        moved = array[outside]
        array[outside] = array[holes]
        array[holes] = moved
    places[is_outside] = holes
    return numpy.argsort(places)


# --- Exact ranks and solutions modulo a prime -----------------------------------------------------


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
    return _eliminate_copy(matrix, prime, "rank_modulo").matrix_rank


def pivots_modulo(matrix: NDArray[numpy.generic], prime: SupportsIndex) -> Pivots:
    """Find a largest minor of an integer matrix that is not 0 modulo a prime.

    Example:
        >>> pivots_modulo(numpy.array([[0, 0, 1], [0, 0, 2], [0, 4, 9]]), 101)
        Pivots(prime=101, rows=(0, 2), columns=(1, 2))

    Raises:
        MatrixError: if the array is no matrix of integers.
        PrimeError: if the prime is composite or too large.
    """
    echelon = _eliminate_copy(matrix, prime, "pivots_modulo")
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


def _eliminate_copy(matrix: NDArray[numpy.generic], prime: SupportsIndex, who: str) -> Echelon:
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
