"""The loops of modular elimination that are no matrix products.

A residue modulo p is a float64 holding an integer of absolute value at most

    h(p) = (p + 3) / 2.

`reduce_block` brings any integer x with |x| + h <= 2^53 to such a residue. Proof: 1/p and its
product with x are each rounded once, so the quotient is off by less than |x| / p · 2^-51.9 <
2.2 / p; rounding it to an integer q adds at most 1/2, hence |x - q p| < p/2 + 2.2, and an odd p
leaves at most (p + 3) / 2. Both |q p| <= |x| + h and |x - q p| are integers up to 2^53, so the
product and the difference are exact, fused or not. (If |x| < 2^51 the same proof gives
|x - q p| <= p/2; this covers p = 2 and small p, whose products stay far below.) As h < p for
p > 3, a residue is 0 modulo p only if it is 0.

Wherever a factor is too wide for a product of two residues to fit 2^53, it is cut in two:
f = 2^16 high + low with |low| <= 2^15 and |high| <= 2^14 + 1 for p < 2^31.
"""

import numpy
from numpy.typing import NDArray

from rankscope.separation.exact.compilation import compiled

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
