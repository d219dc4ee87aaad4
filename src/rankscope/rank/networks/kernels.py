"""Straight-line programs on rows of residues: many pairs of points at once, modulo a prime.

A residue is a float64 integer of absolute value at most h = (p + 3) / 2; `separation.kernels`
proves that x - rint(x / p) p is one, exactly, for every integer x with |x| + h <= 2^53.

An instruction sums up to eight products: of a factor and a row, and up to six of two rows. Rows
hold residues, or what the two sides of a pair add up to, at most 2h; factors are residues:

- p < 2^25: |target| + 6 (2h)^2 + 2 h (2h) + h <= 28 (2^24 + 1)^2 + 2^26 < 2^53, so it is reduced
  once.
- otherwise what the sides add up to is reduced first, and products are taken one by one with the
  left factor cut in two, 2^16 high + low with |low| <= 2^15 and |high| <= 2^14 + 1: then
  |high · right| < 2^45, and |target| + 2^16 |its residue| + |low · right| < 2^48.

All these sums are exact in any order, with or without fused operations. The loops over lanes are
written down in LLVM's language, eight lanes at a time, one for each kind of instruction: numba's
own loops test before every run whether the rows overlap, which takes longer than the run. They
stand in this file because numba's cache knows a function by its own file only.
"""

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any, NamedTuple

import numpy
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

from rankscope.rank.residues import HALF_WIDTH, compiled

LANES = 128  # pairs at once: enough to hide the work per instruction, few enough for the caches
TOGETHER = 32  # left points between two changes of the scale: enough to hide the loading of rows
NARROW = float(2**25)

VECTOR = 8  # lanes at once; a multiple of them in every row
MOST_PRODUCTS, MOST_TERMS = 6, 8  # of one instruction: of two rows, in all
GROUPS = (4, 2)  # how many instructions may share their rows
MOST_OWN = 2  # terms of an instruction in a group whose rows are its own, the last ones

# The columns of an instruction.
CODE, TARGET, LEFT = 0, 1, 2
RIGHT = LEFT + MOST_TERMS
COLUMNS = RIGHT + MOST_TERMS

_DOUBLE, _INTEGER = ir.DoubleType(), ir.IntType(64)
_VECTORS = ir.VectorType(_DOUBLE, VECTOR)
_FUSED = ("contract",)

Rows = NDArray[numpy.float64]
Instructions = NDArray[numpy.int64]


class Program(NamedTuple):
    """A straight-line program on rows of residues; row 0 is zero and the inputs follow it.

    Args:
        instructions: (count, columns): the code of its kind, the target row, the left operands
            (rows or factors), and the right ones, which are rows; row 0 after the last of them.
        factors: the constants, balanced; number 0 is zero.
        num_rows: how many rows it works on.
        results: the rows that hold the outcome.
    """

    instructions: Instructions
    factors: Rows
    num_rows: int
    results: NDArray[numpy.int64]

    @property
    def num_products(self) -> int:
        """Products of two residues that a run computes in each lane."""
        return int((self.instructions[:, CODE] % 16).sum())


# --- Instructions in explicit vectors -------------------------------------------------------------


class Kind(NamedTuple):
    """What an instruction does.

    Args:
        terms: of its sum.
        products: how many of the last terms are products of two rows; in the others the left
            operand is a factor.
        is_added: whether the sum is added to the target.
        together: how many instructions, from this one on, are carried out together.
        own: how many of the last terms have rows of their own; the others share them.
    """

    terms: int
    products: int = 0
    is_added: bool = False
    together: int = 1
    own: int = 0

    @property
    def code(self) -> int:
        """Its number."""
        last = self.is_added + 2 * (self.together + 8 * self.own)
        return self.terms + 16 * (self.products + 16 * last)


def _kinds() -> Iterator[Kind]:
    for terms in range(1, MOST_TERMS + 1):
        for products in range(min(terms, MOST_PRODUCTS) + 1):
            yield Kind(terms, products)
            if products in (0, terms):
                yield Kind(terms, products, is_added=True)
    for together, own in product(GROUPS, range(MOST_OWN + 1)):
        for terms in range(own + 1, MOST_TERMS + 1):
            yield Kind(terms, together=together, own=own)


@intrinsic
def carry_out(
    typing_context: Any, rows: Any, instructions: Any, factors: Any, prime: Any
) -> tuple[Any, Callable[..., Any]]:
    """Carry out all instructions, for a prime below 2^25.

    Args:
        typing_context: numba's own.
        rows: (rows, lanes), float64, contiguous.
        instructions: (count, COLUMNS), int64, contiguous.
        factors: float64, contiguous.
        prime: as a float64.
    """
    del typing_context
    return types.void(rows, instructions, factors, prime), _written


def _written(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    """The loop over instructions, which branches by their codes."""
    rows, code, factors = (
        context.make_array(kind)(context, builder, value)
        for kind, value in zip(signature.args[:3], arguments[:3], strict=True)
    )
    run = _Run(builder, rows, code, factors, arguments[3])
    before = builder.block
    head, end = (builder.append_basic_block(name) for name in ("instruction", "end"))
    builder.branch(head)
    builder.position_at_end(head)
    number = builder.phi(_INTEGER, "number")
    number.add_incoming(_number(0), before)
    is_left = builder.icmp_signed("<", number, run.count)
    inside = builder.append_basic_block("code")
    builder.cbranch(is_left, inside, end)
    builder.position_at_end(inside)
    run.line = builder.gep(run.code, [builder.mul(number, _number(COLUMNS))])
    unknown = builder.append_basic_block("unknown")
    branches = builder.switch(run.read(CODE), unknown)
    for kind in _kinds():
        block = builder.append_basic_block(f"kind{kind.code}")
        branches.add_case(_number(kind.code), block)
        builder.position_at_end(block)
        run.sums(kind)
        number.add_incoming(builder.add(number, _number(kind.together)), builder.block)
        builder.branch(head)
    builder.position_at_end(unknown)
    builder.unreachable()
    builder.position_at_end(end)
    return context.get_dummy_value()


class _Run:
    """What the blocks of the loop read."""

    def __init__(self, builder: Any, rows: Any, code: Any, factors: Any, prime: Any) -> None:
        self.builder = builder
        self.rows, self.code, self.factors = rows.data, code.data, factors.data
        self.num_lanes = builder.extract_value(rows.shape, 1)
        self.count = builder.extract_value(code.shape, 0)
        self.prime = self.spread(prime)
        self.inverse = self.spread(builder.fdiv(ir.Constant(_DOUBLE, 1.0), prime))
        self.line: Any = None
        self.rint = cgutils.get_or_insert_function(  # type: ignore[no-untyped-call]
            builder.module, ir.FunctionType(_VECTORS, [_VECTORS]), f"llvm.rint.v{VECTOR}f64"
        )

    def read(self, column: int, *, after: int = 0) -> Any:
        """A column of this instruction, or of one after it."""
        return self.builder.load(self.builder.gep(self.line, [_number(column + COLUMNS * after)]))

    def row(self, number: Any) -> Any:
        return self.builder.gep(self.rows, [self.builder.mul(number, self.num_lanes)])

    def spread(self, number: Any) -> Any:
        """One number in all lanes of a vector."""
        nothing = ir.Constant(_VECTORS, ir.Undefined)
        first = self.builder.insert_element(nothing, number, ir.Constant(ir.IntType(32), 0))
        zeros = ir.Constant(ir.VectorType(ir.IntType(32), VECTOR), [0] * VECTOR)
        return self.builder.shuffle_vector(first, nothing, zeros)

    def factor(self, number: Any) -> Any:
        return self.spread(self.builder.load(self.builder.gep(self.factors, [number])))

    def sums(self, kind: Kind) -> None:
        """The loop over lanes of one kind of instruction; everything is loaded before it is stored.

        A target may therefore be one of the rows that are read.
        """
        builder, members = self.builder, range(kind.together)
        num_factors = kind.terms - kind.products
        lefts = [
            [
                (self.factor if term < num_factors else self.row)(self.read(LEFT + term, after=one))
                for term in range(kind.terms)
            ]
            for one in members
        ]
        num_shared = kind.terms - kind.own
        shared = [self.row(self.read(RIGHT + term)) for term in range(num_shared)]
        owned = [
            [self.row(self.read(RIGHT + n, after=one)) for n in range(num_shared, kind.terms)]
            for one in members
        ]
        targets = [self.row(self.read(TARGET, after=one)) for one in members]
        before, loop = builder.block, builder.append_basic_block("lanes")
        after = builder.append_basic_block("after")
        builder.branch(loop)
        builder.position_at_end(loop)
        lane = builder.phi(_INTEGER)
        lane.add_incoming(_number(0), before)
        values = [self._load(row, lane) for row in shared]
        found = []
        for one in members:
            total = self._load(targets[one], lane) if kind.is_added else None
            rights = [*values, *(self._load(row, lane) for row in owned[one])]
            for place, (left, right) in enumerate(zip(lefts[one], rights, strict=True)):
                factor = left if place < num_factors else self._load(left, lane)
                term = builder.fmul(factor, right, flags=_FUSED)
                total = term if total is None else builder.fadd(total, term, flags=_FUSED)
            quotient = builder.call(self.rint, [builder.fmul(total, self.inverse)])
            multiple = builder.fmul(quotient, self.prime, flags=_FUSED)
            found.append(builder.fsub(total, multiple, flags=_FUSED))
        for target, value in zip(targets, found, strict=True):
            builder.store(value, self._vector(target, lane), align=8)
        following = builder.add(lane, _number(VECTOR))
        lane.add_incoming(following, loop)
        builder.cbranch(builder.icmp_signed("<", following, self.num_lanes), loop, after)
        builder.position_at_end(after)

    def _vector(self, row: Any, lane: Any) -> Any:
        return self.builder.bitcast(self.builder.gep(row, [lane]), _VECTORS.as_pointer())

    def _load(self, row: Any, lane: Any) -> Any:
        return self.builder.load(self._vector(row, lane), align=8)


def _number(value: int) -> Any:
    return ir.Constant(_INTEGER, value)


# --- Programs on points and on pairs of points ----------------------------------------------------


@compiled
def add_wide_products(rows: Rows, factors: Rows, instruction: Instructions, prime: float) -> None:
    """Sum products of either kind, one by one, for a prime below 2^31."""
    inverse = 1.0 / prime
    code = instruction[CODE]
    target = rows[instruction[TARGET]]
    terms, products = code % 16, code // 16 % 16
    if code // 256 % 2 == 0:
        target[:] = 0.0
    for term in range(terms):
        if term >= terms - products:
            left = rows[instruction[LEFT + term]]
        else:
            left = numpy.full(target.size, factors[instruction[LEFT + term]])
        right = rows[instruction[RIGHT + term]]
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
    if prime < NARROW:
        carry_out(rows, program.instructions, program.factors, prime)  # type: ignore[call-arg]
        return
    for number in range(program.instructions.shape[0]):
        add_wide_products(rows, program.factors, program.instructions[number], prime)


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
