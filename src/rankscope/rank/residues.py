"""Arithmetic modulo a prime on float64 arrays: primes, balanced residues, products by BLAS."""

import inspect
from collections.abc import Callable
from typing import ParamSpec, TypeVar, cast

import numba
import numpy
import torch
from numpy.typing import NDArray

from rankscope.errors import MatrixError, PrimeError

# --- Compiling loops to machine code, once --------------------------------------------------------


Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def compiled(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Compile a function of numbers and NumPy arrays on its first call.

    The machine code is kept beside the source, or in the user's cache folder if the package is
    installed read-only; where neither can be written, each process compiles for itself.
    Floating-point arithmetic is IEEE's own (no `fastmath`): our exactness proofs rest on it.
    """
    # A run-time type checker may have wrapped the function; numba needs the original.
    original = inspect.unwrap(function)
    try:
        fast = numba.njit(cache=True, nogil=True)(original)
    except RuntimeError as error:
        if "cannot cache function" not in str(error):
            raise
        fast = numba.njit(nogil=True)(original)
    return cast(Callable[Parameters, Result], fast)


# --- The loops of modular elimination that are no matrix products ---------------------------------


Matrix = NDArray[numpy.float64]
Positions = NDArray[numpy.int64]
HALF_WIDTH = 65536.0  # 2^16


@compiled
def reduce_block(matrix: Matrix, rows: tuple[int, int], first_column: int, prime: float) -> None:
    """Bring the rows `rows[0]` to `rows[1]`, from a column on, back to residues."""
    inverse = 1.0 / prime
    for row in range(rows[0], rows[1]):
        values = matrix[row, first_column:]
        for column in range(values.size):
            value = values[column]
            values[column] = value - numpy.rint(value * inverse) * prime


@compiled
def subtract_multiple(target: Matrix, source: Matrix, factor: float, prime: float) -> None:
    """Set target to target - factor · source modulo p, entry by entry."""
    inverse = 1.0 / prime
    if prime < 134217728.0:  # 2^27: h^2 + 2 h <= 2^53
        for column in range(target.size):
            value = target[column] - factor * source[column]
            target[column] = value - numpy.rint(value * inverse) * prime
        return
    high = numpy.rint(factor / HALF_WIDTH)
    low = factor - high * HALF_WIDTH
    for column in range(target.size):
        upper = high * source[column]
        upper -= numpy.rint(upper * inverse) * prime
        value = target[column] - upper * HALF_WIDTH - low * source[column]
        target[column] = value - numpy.rint(value * inverse) * prime


@compiled
def multiply_modulo(first: float, second: float, prime: float) -> float:
    """The product of two residues; it is at most 2^60 in absolute value."""
    rest = int(first) * int(second) % int(prime)
    return float(rest - int(prime)) if 2 * rest > int(prime) else float(rest)


@compiled
def inverse_modulo(residue: float, prime: float) -> float:
    """The residue whose product with the given one, not 0, is 1 (extended Euclid)."""
    modulus = int(prime)
    old_rest, rest = modulus, int(residue) % modulus
    old_factor, factor = 0, 1
    while rest != 0:
        quotient = old_rest // rest
        old_rest, rest = rest, old_rest - quotient * rest
        old_factor, factor = factor, old_factor - quotient * factor
    old_factor %= modulus
    return float(old_factor - modulus) if 2 * old_factor > modulus else float(old_factor)


@compiled
def find_pivots(block: Matrix, prime: float, rows: Positions, columns: Positions) -> int:
    """Eliminate a small block in place; write down its pivots in order and return their number.

    Eliminating row by row and column by column, without any exchange: the pivot of a column is
    its first entry that is not 0 in a row without a pivot.
    """
    num_rows, num_columns = block.shape
    is_used = numpy.zeros(num_rows, dtype=numpy.bool_)
    count = 0
    for column in range(num_columns):
        pivot_row = -1
        for row in range(num_rows):
            if not is_used[row] and block[row, column] != 0.0:
                pivot_row = row
                break
        if pivot_row < 0:
            continue
        is_used[pivot_row] = True
        rows[count], columns[count] = pivot_row, column
        count += 1
        source = block[pivot_row, column:]
        scale = inverse_modulo(source[0], prime)
        for row in range(pivot_row + 1, num_rows):
            if not is_used[row] and block[row, column] != 0.0:
                factor = multiply_modulo(block[row, column], scale, prime)
                subtract_multiple(block[row, column:], source, factor, prime)
    return count


@compiled
def invert_in_place(square: Matrix, prime: float) -> None:
    """Invert a matrix whose leading minors are all non-zero, by Gauss-Jordan elimination."""
    size = square.shape[0]
    for step in range(size):
        pivot_row = square[step]
        scale = inverse_modulo(pivot_row[step], prime)
        pivot_row[step] = 1.0
        scaled = numpy.zeros(size)
        subtract_multiple(scaled, pivot_row, -scale, prime)
        pivot_row[:] = scaled
        for row in range(size):
            factor = square[row, step]
            if row != step and factor != 0.0:
                square[row, step] = 0.0
                subtract_multiple(square[row], pivot_row, factor, prime)


# --- Integer matrices as float64 residues ---------------------------------------------------------


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


# --- Matrix products modulo a prime on float64 arithmetic, with the reduction delayed -------------


MAX_DEPTH = 128  # longest inner size of one product
_WIDTH = 120  # not 128: of rows a power of two apart, the cache holds few (measured: 12 % slower)
_CHUNK_ROWS = 1024  # bounds the memory of the temporary products
_EXACT = 2**53  # integers up to here are float64 numbers


def exact_depth(prime: int) -> int:
    """How many products of two residues may be summed before they must be reduced.

    A target residue minus k products is at most h + k h^2 in absolute value, in whatever order
    (and with whatever fusing) a BLAS adds them up, for all partial sums obey the same bound; it
    must leave h of room below 2^53 for `reduce_block`.

    Example:
        >>> exact_depth(8388593), exact_depth(16777213), exact_depth(33554393)
        (512, 127, 32)
    """
    largest = (prime + 3) // 2
    return (_EXACT - 2 * largest) // largest**2


def panel_width(prime: int) -> int:
    """The inner size at which products are the fastest: one reduction each, if there is room.

    Example:
        >>> panel_width(8388593), panel_width(16777213), panel_width(33554393)
        (120, 120, 120)
    """
    depth = exact_depth(prime)
    return min(_WIDTH, depth // 8 * 8) if depth >= 64 else _WIDTH


def subtract_product(
    target: Matrix, left: Matrix, right: Matrix, prime: int, *, corner: tuple[int, int] = (0, 0)
) -> None:
    """Set target[i:, j:] to target[i:, j:] - left @ right modulo p, with (i, j) the corner.

    All three hold residues; the target is C-contiguous and the inner size at most `MAX_DEPTH`.

    For a prime with room for few products, the left factor is 2^16 high + low. Then
    low @ right <= 128 · 2^15 · h <= 2^52 + 2^23, high @ right <= 128 · (2^14 + 1) · h < 2^52, and
    2^16 times the reduced second plus the first plus the target stays below 2^53 - h.
    """
    depth = exact_depth(prime)
    row, column = corner
    if left.shape[1] == 0 or target.shape[1] == column:
        return
    for start in range(0, left.shape[0], _CHUNK_ROWS):
        rows = (row + start, min(row + start + _CHUNK_ROWS, target.shape[0]))
        factor = left[start : start + _CHUNK_ROWS]
        if depth >= 24:
            _subtract_by_slices(target, factor, right, prime, (rows, column, depth))
        else:
            _subtract_by_halves(target, factor, right, prime, (rows, column))


def _subtract_by_slices(
    target: Matrix,
    left: Matrix,
    right: Matrix,
    prime: int,
    place: tuple[tuple[int, int], int, int],
) -> None:
    rows, column, depth = place
    depth = -(-left.shape[1] // -(-left.shape[1] // depth))  # as few slices, of even sizes
    view = torch.from_numpy(target[rows[0] : rows[1], column:])
    for start in range(0, left.shape[1], depth):
        stop = start + depth
        # In place on the strided view: NumPy's matmul would need a second array.
        view.addmm_(
            torch.from_numpy(left[:, start:stop]), torch.from_numpy(right[start:stop]), alpha=-1
        )
        reduce_block(target, rows, column, float(prime))


def _subtract_by_halves(
    target: Matrix, left: Matrix, right: Matrix, prime: int, place: tuple[tuple[int, int], int]
) -> None:
    rows, column = place
    high = numpy.rint(left / HALF_WIDTH)
    low = left - high * HALF_WIDTH
    upper = high @ right
    reduce_block(upper, (0, len(upper)), 0, float(prime))
    upper *= HALF_WIDTH
    upper += low @ right
    target[rows[0] : rows[1], column:] -= upper
    reduce_block(target, rows, column, float(prime))


# --- Prime numbers, recognised with certainty -----------------------------------------------------


# No composite below 3,317,044,064,679,887,385,961,981 passes the test for all of these bases,
# which is far beyond 2^64.
_BASES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41)
_LIMIT = 2**64


def is_prime(number: int) -> bool:
    """Decide whether a number below 2^64 is prime, by the Miller-Rabin test on proven bases.

    Example:
        >>> is_prime(16777213), is_prime(2**32 + 1)
        (True, False)

    Raises:
        PrimeError: if the number is 2^64 or more, where these bases prove nothing.

    Reference:
        Sorenson & Webster (2017), Strong pseudoprimes to twelve prime bases, arXiv:1509.00864.
    """
    if number >= _LIMIT:
        raise PrimeError(f"is_prime decides numbers below 2^64 = {_LIMIT}, got {number}.")
    if number < 2:
        return False
    for base in _BASES:
        if number % base == 0:
            return number == base
    twos = ((number - 1) & (1 - number)).bit_length() - 1
    return all(_passes(number, base, twos) for base in _BASES)


def _passes(number: int, base: int, twos: int) -> bool:
    """Whether `base` fails to prove that `number`, with number - 1 = odd · 2^twos, is composite."""
    power = pow(base, (number - 1) >> twos, number)
    if power in (1, number - 1):
        return True
    for _ in range(twos - 1):
        power = power * power % number
        if power == number - 1:
            return True
    return False


def largest_prime_below(limit: int) -> int:
    """Find the largest prime that is less than `limit`.

    Example:
        >>> largest_prime_below(2**24), largest_prime_below(2**31)
        (16777213, 2147483647)

    Raises:
        PrimeError: if there is none, or `limit` is above 2^64.
    """
    if limit <= 2 or limit > _LIMIT:
        raise PrimeError(f"largest_prime_below: the limit must lie in 3..2^64, got {limit}.")
    return next(number for number in range(limit - 1, 1, -1) if is_prime(number))


def require_prime(number: int, *, below: int, who: str) -> int:
    """Return a prime below a limit as it is; refuse everything else.

    Raises:
        PrimeError: if the number is not a prime or not below the limit.
    """
    if number >= below:
        raise PrimeError(
            f"{who}: the prime must be below {below}, got {number}. "
            f"The largest one is {largest_prime_below(below)}; use several for more certainty."
        )
    if not is_prime(number):
        nearest = f" The next one below is {largest_prime_below(number)}." if number > 2 else ""
        raise PrimeError(f"{who}: {number} is not a prime.{nearest}")
    return number
