"""Straight-line programs on rows of residues: many pairs of points at once, modulo a prime.

A residue is a float64 integer of absolute value at most h = (p + 3) / 2; `separation.kernels`
proves that x - rint(x / p) p is one, exactly, for every integer x with |x| + h <= 2^53.

An instruction sums up to four products of rows, or up to six of a factor and a row. Its operands
are residues, or what the two sides of a pair add up to, at most 2h:

- p < 2^25: |target| + 6 (2h)^2 + h <= 24 (2^24 + 1)^2 + 2^26 < 2^53, so it is reduced once.
- otherwise what the sides add up to is reduced first, and products are taken one by one with the
  left factor cut in two, 2^16 high + low with |low| <= 2^15 and |high| <= 2^14 + 1: then
  |high · right| < 2^45, and |target| + 2^16 |its residue| + |low · right| < 2^48.
"""

from typing import NamedTuple

import numpy
from numpy.typing import NDArray

from rankscope.rank.residues import HALF_WIDTH, compiled

LANES = 256  # pairs at once: enough to hide the work per instruction, few enough for the caches
TOGETHER = 32  # left points between two changes of the scale: enough to hide the loading of rows
NARROW = float(2**25)

Rows = NDArray[numpy.float64]
Instructions = NDArray[numpy.int64]


class Program(NamedTuple):
    """A straight-line program on rows of residues; row 0 is zero and the inputs follow it.

    Args:
        instructions: (count, 15): whether the left operands are factors (1) or rows (0); the
            target row; whether to add to it (1) or to overwrite it (0); six left operands;
            six right ones, which are rows, row 0 after the last of them.
        factors: the constants, balanced; number 0 is zero.
        num_rows: how many rows it works on.
        results: the rows that hold the outcome.
    """

    instructions: Instructions
    factors: Rows
    num_rows: int
    results: NDArray[numpy.int64]


@compiled
def add_products(rows: Rows, instruction: Instructions, prime: float) -> None:
    """Sum up to four products of rows, for a prime below 2^25."""
    inverse = 1.0 / prime
    kept = float(instruction[2])
    target = rows[instruction[1]]
    left0, left1 = rows[instruction[3]], rows[instruction[4]]
    right0, right1 = rows[instruction[9]], rows[instruction[10]]
    if instruction[11] == 0:
        for lane in range(target.size):
            first = left0[lane] * right0[lane] + left1[lane] * right1[lane]
            value = kept * target[lane] + first
            target[lane] = value - numpy.rint(value * inverse) * prime
        return
    left2, left3 = rows[instruction[5]], rows[instruction[6]]
    right2, right3 = rows[instruction[11]], rows[instruction[12]]
    for lane in range(target.size):
        first = left0[lane] * right0[lane] + left1[lane] * right1[lane]
        second = left2[lane] * right2[lane] + left3[lane] * right3[lane]
        value = kept * target[lane] + (first + second)
        target[lane] = value - numpy.rint(value * inverse) * prime


@compiled
def add_multiples(rows: Rows, factors: Rows, instruction: Instructions, prime: float) -> None:
    """Sum up to six products of a factor and a row, for a prime below 2^25."""
    inverse = 1.0 / prime
    kept = float(instruction[2])
    target = rows[instruction[1]]
    factor0, factor1 = factors[instruction[3]], factors[instruction[4]]
    right0, right1 = rows[instruction[9]], rows[instruction[10]]
    if instruction[11] == 0:
        for lane in range(target.size):
            first = factor0 * right0[lane] + factor1 * right1[lane]
            value = kept * target[lane] + first
            target[lane] = value - numpy.rint(value * inverse) * prime
        return
    factor2, factor3 = factors[instruction[5]], factors[instruction[6]]
    right2, right3 = rows[instruction[11]], rows[instruction[12]]
    if instruction[13] == 0:
        for lane in range(target.size):
            first = factor0 * right0[lane] + factor1 * right1[lane]
            second = factor2 * right2[lane] + factor3 * right3[lane]
            value = kept * target[lane] + (first + second)
            target[lane] = value - numpy.rint(value * inverse) * prime
        return
    factor4, factor5 = factors[instruction[7]], factors[instruction[8]]
    right4, right5 = rows[instruction[13]], rows[instruction[14]]
    for lane in range(target.size):
        first = factor0 * right0[lane] + factor1 * right1[lane]
        second = factor2 * right2[lane] + factor3 * right3[lane]
        third = factor4 * right4[lane] + factor5 * right5[lane]
        value = kept * target[lane] + (first + second + third)
        target[lane] = value - numpy.rint(value * inverse) * prime


@compiled
def add_wide_products(rows: Rows, factors: Rows, instruction: Instructions, prime: float) -> None:
    """Sum products of either kind, one by one, for a prime below 2^31."""
    inverse = 1.0 / prime
    target = rows[instruction[1]]
    if instruction[2] == 0:
        target[:] = 0.0
    for place in range(3, 9):
        if instruction[place + 6] == 0:
            break
        if instruction[0] == 0:
            left = rows[instruction[place]]
        else:
            left = numpy.full(target.size, factors[instruction[place]])
        right = rows[instruction[place + 6]]
        for lane in range(target.size):
            high = numpy.rint(left[lane] / HALF_WIDTH)
            low = left[lane] - high * HALF_WIDTH
            upper = high * right[lane]
            upper -= numpy.rint(upper * inverse) * prime
            value = target[lane] + upper * HALF_WIDTH + low * right[lane]
            target[lane] = value - numpy.rint(value * inverse) * prime


@compiled
def run_program(rows: Rows, program: Program, prime: float) -> None:
    """Carry out all instructions on rows whose inputs are in place."""
    for number in range(program.instructions.shape[0]):
        instruction = program.instructions[number]
        if prime >= NARROW:
            add_wide_products(rows, program.factors, instruction, prime)
        elif instruction[0] == 0:
            add_products(rows, instruction, prime)
        else:
            add_multiples(rows, program.factors, instruction, prime)


@compiled
def add_sides(target: Rows, left: float, right: Rows, prime: float) -> None:
    """What a point of the left side and points of the right side add up to."""
    if prime < NARROW:
        for lane in range(right.size):
            target[lane] = left + right[lane]
        return
    for lane in range(right.size):
        value = left + right[lane]
        target[lane] = value - numpy.rint(value / prime) * prime


@compiled
def write_residues(target: NDArray[numpy.int64], source: Rows, prime: int) -> None:
    """Balanced residues as integers in 0..p-1."""
    for lane in range(target.size):
        value = int(source[lane])
        target[lane] = value + prime if value < 0 else value


@compiled
def evaluate_pairs(
    program: Program,
    mixing: Program,
    left: Rows,
    right: Rows,
    prime: int,
    results: NDArray[numpy.int64],
) -> None:
    """Evaluate a program on the sums of all pairs of moments, and mix the values at all scales.

    Args:
        program: its inputs are the moments, and it has one result.
        mixing: takes the values at all scales to the grades.
        left: (points, moments) of the left side.
        right: (scales, moments, points) of the right side, once for each scale.
        prime: below 2^31.
        results: (grades, left points, right points), written.
    """
    num_scales, num_moments, num_points = right.shape
    modulus = float(prime)
    rows = numpy.zeros((program.num_rows, LANES))
    values = numpy.zeros((mixing.num_rows, LANES))
    for start in range(0, num_points, LANES):
        stop = min(start + LANES, num_points)
        for point in range(left.shape[0]):
            for scale in range(num_scales):
                for moment in range(num_moments):
                    column = right[scale, moment, start:stop]
                    add_sides(rows[moment + 1], left[point, moment], column, modulus)
                run_program(rows, program, modulus)
                values[scale + 1] = rows[program.results[0]]
            run_program(values, mixing, modulus)
            for grade in range(results.shape[0]):
                source = values[mixing.results[grade]]
                write_residues(results[grade, point, start:stop], source, prime)


@compiled
def evaluate_points(program: Program, inputs: Rows, prime: int, results: Rows) -> None:
    """Run a program on points.

    Args:
        program: its inputs are those of a point.
        inputs: (inputs, points), balanced.
        prime: below 2^31.
        results: (results, points), written, balanced.
    """
    rows = numpy.zeros((program.num_rows, LANES))
    for start in range(0, inputs.shape[1], LANES):
        stop = min(start + LANES, inputs.shape[1])
        for number in range(inputs.shape[0]):
            rows[number + 1, : stop - start] = inputs[number, start:stop]
        run_program(rows, program, float(prime))
        for number in range(results.shape[0]):
            results[number, start:stop] = rows[program.results[number], : stop - start]


@compiled
def evaluate_crossed(
    program: Program,
    mixing: Program,
    left: Rows,
    right: Rows,
    prime: int,
    results: NDArray[numpy.int64],
) -> None:
    """Evaluate a program on all pairs of points, and mix the values at all scales.

    What depends on the left point alone is a factor, the same for all lanes; what depends on the
    right point alone stays in its row while the left points pass.

    Args:
        program: its factors from number 1 on are the left values, its inputs the number 1 and the
            right values, whose rows it keeps; it has one result.
        mixing: takes the values at all scales to the grades.
        left: (points, values) of the left side.
        right: (scales, values, points) of the right side, once for each scale.
        prime: below 2^31.
        results: (grades, left points, right points), written.
    """
    num_scales, num_right, num_points = right.shape
    num_left = left.shape[1]
    modulus = float(prime)
    rows = numpy.zeros((program.num_rows, LANES))
    rows[1] = 1.0
    factors = program.factors.copy()  # several threads may share the program
    own = Program(program.instructions, factors, program.num_rows, program.results)
    values = numpy.zeros((TOGETHER, mixing.num_rows, LANES))
    for start in range(0, num_points, LANES):
        stop = min(start + LANES, num_points)
        for first in range(0, left.shape[0], TOGETHER):
            last = min(first + TOGETHER, left.shape[0])
            for scale in range(num_scales):
                for number in range(num_right):
                    rows[number + 2, : stop - start] = right[scale, number, start:stop]
                for point in range(first, last):
                    factors[1 : num_left + 1] = left[point]
                    run_program(rows, own, modulus)
                    values[point - first, scale + 1] = rows[own.results[0]]
            for point in range(first, last):
                run_program(values[point - first], mixing, modulus)
                for grade in range(results.shape[0]):
                    source = values[point - first, mixing.results[grade]]
                    write_residues(results[grade, point, start:stop], source, prime)
