"""Matrix products modulo a prime on float64 arithmetic, with the reduction delayed."""

import numpy
import torch

from rankscope.separation.exact.kernels import HALF_WIDTH, Matrix, reduce_block

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
