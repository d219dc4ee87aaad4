"""Any polynomial network as straight-line programs on pairs of points, by what each side knows.

A network is written down once in terms of `PairValue`s: sums of a value of the left points, a
value of the right points and a value of both. Linear maps act on the three parts, and products
are shared out among them, so that what one side can compute is computed once for each of its
points and only the rest for each pair. Nothing that the output does not need is computed.
"""

import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy
from numpy.typing import NDArray

from rankscope.rank.elimination import rank_modulo
from rankscope.rank.measured import Numbers, Residues, SplitFunction
from rankscope.rank.networks.kernels import Program, evaluate_crossed, evaluate_points
from rankscope.rank.networks.network import (
    PolynomialNetwork,
    drawn_points,
    interpolation_modulo,
)
from rankscope.rank.networks.program_writer import ProgramWriter, balanced
from rankscope.rank.partition import Partition
from rankscope.rank.residues import require_prime


class PairValue(NamedTuple):
    """A number for every pair of points: the sum of three, each by its number or 0 for nothing."""

    left: int = 0
    right: int = 0
    both: int = 0


PairVector = list[PairValue]
PairMatrix = list[PairVector]
ZERO = PairValue()


class _Sum(NamedTuple):
    """Multiples (residue, value) and products of two values, all of one side."""

    multiples: tuple[tuple[int, int], ...]
    products: tuple[tuple[int, int], ...]


class _Crossing(NamedTuple):
    """What only pairs have.

    Multiples (residue, value); products of a left and a right value, of a left value and one of
    pairs, of a right value and one of pairs, of two of pairs; and the left and the right value that
    are added, 0 for none.
    """

    multiples: tuple[tuple[int, int], ...] = ()
    crossed: tuple[tuple[int, int], ...] = ()
    with_left: tuple[tuple[int, int], ...] = ()
    with_right: tuple[tuple[int, int], ...] = ()
    products: tuple[tuple[int, int], ...] = ()
    sides: tuple[int, int] = (0, 0)


class PairWriter:
    """Collects sums of products of numbers that the left points, the right points or pairs have.

    Args:
        prime: of all residues.
        left: how many numbers a left point has.
        right: how many numbers a right point has.

    Example:
        >>> writer = PairWriter(101, left=1, right=1)
        >>> product = writer.dot([writer.left_input(0)], [writer.right_input(0)])
        >>> product.left, product.right, product.both > 0
        (0, 0, True)
    """

    def __init__(self, prime: int, *, left: int, right: int) -> None:
        self.prime = prime
        self._num_inputs = {"left": left + 1, "right": right + 1}  # the last one is the number 1
        self._sums: dict[str, list[_Sum]] = {"left": [], "right": []}
        self._crossings: list[_Crossing] = []
        self._known: dict[tuple[str, _Sum | _Crossing], int] = {}

    def left_input(self, number: int) -> PairValue:
        """A number of the left point."""
        return PairValue(left=number + 1)

    def right_input(self, number: int) -> PairValue:
        """A number of the right point."""
        return PairValue(right=number + 1)

    def shifted(self, value: PairValue, residue: int) -> PairValue:
        """A known number added to a value, on a side that the value has; pairs take the left."""
        one = PairValue(left=self._num_inputs["left"])
        if value.right and not value.left:
            one = PairValue(right=self._num_inputs["right"])
        return self.mix([1, residue], [value, one])

    def mix(self, factors: Sequence[int], values: Sequence[PairValue]) -> PairValue:
        """The sum of multiples of values."""
        pairs = [(int(f) % self.prime, v) for f, v in zip(factors, values, strict=True)]
        terms = [(factor, value) for factor, value in pairs if factor]
        left, right = (
            self._one_sided(
                side, tuple((factor, number) for factor, value in terms if (number := value[at]))
            )
            for at, side in enumerate(("left", "right"))
        )
        both = tuple((factor, value.both) for factor, value in terms if value.both)
        if len(both) == 1 and both[0][0] == 1:
            return PairValue(left, right, both[0][1])
        return PairValue(left, right, self._crossing(_Crossing(both)) if both else 0)

    def add(self, *values: PairValue) -> PairValue:
        """The sum of values."""
        return self.mix([1] * len(values), values)

    def apply(self, matrix: NDArray[numpy.int64], vector: Sequence[PairValue]) -> PairVector:
        """A known matrix times a vector of values."""
        return [self.mix(row.tolist(), vector) for row in matrix]

    def whole(self, vector: Sequence[PairValue]) -> PairVector:
        """The same values; those that pairs have are added up now, because products read them."""
        return [
            PairValue(both=self._whole(v)) if v.both or (v.left and v.right) else v for v in vector
        ]

    def dot(
        self,
        first: Sequence[PairValue],
        second: Sequence[PairValue],
        *,
        plus: PairValue = ZERO,
    ) -> PairValue:
        """The sum of products of values, and of one more value."""
        own: dict[str, list[tuple[int, int]]] = {"left": [], "right": []}
        terms = _Terms()
        for one, other in zip(first, second, strict=True):
            if ZERO in (one, other):
                continue
            if one.both or other.both:
                self._multiply(*((one, other) if one.both else (other, one)), terms)
                continue
            own["left"] += [(one.left, other.left)] if one.left and other.left else []
            own["right"] += [(one.right, other.right)] if one.right and other.right else []
            terms.crossed += [(one.left, other.right)] if one.left and other.right else []
            terms.crossed += [(other.left, one.right)] if other.left and one.right else []
        # In a fixed order, so that equal sums are recognized.
        left, right = (
            self._sum(side, _Sum(_once(plus[at]), _ordered(own[side]))) if own[side] else plus[at]
            for at, side in enumerate(("left", "right"))
        )
        crossing = _Crossing(
            _once(plus.both),
            tuple(sorted(terms.crossed)),
            tuple(sorted(terms.with_left)),
            tuple(sorted(terms.with_right)),
            _ordered(terms.products),
        )
        is_new = crossing[1:] != _Crossing()[1:]
        return PairValue(left, right, self._crossing(crossing) if is_new else plus.both)

    def _multiply(self, mixed: PairValue, other: PairValue, terms: "_Terms") -> None:
        """A product with a value that pairs have, of the cheapest kind."""
        number = self._whole(mixed)
        if other.both or (other.left and other.right):
            terms.products.append((number, self._whole(other)))
        elif other.left:
            terms.with_left.append((other.left, number))
        else:
            terms.with_right.append((other.right, number))

    def finish(self, result: PairValue) -> "PairPrograms":
        """The programs that compute one value, and nothing else."""
        needed = self._needed(self._whole(result))
        sides = {
            side: sorted(
                {n for crossing in needed.values() for n in _read_of_side(crossing, side) if n}
            )
            for side in ("left", "right")
        }
        return PairPrograms(
            self._side_program("left", sides["left"]),
            self._side_program("right", sides["right"]),
            self._pair_program(needed, sides["left"], sides["right"]),
        )

    def _one_sided(self, side: str, multiples: tuple[tuple[int, int], ...]) -> int:
        if not multiples:
            return 0
        if len(multiples) == 1 and multiples[0][0] == 1:
            return multiples[0][1]
        return self._sum(side, _Sum(multiples, ()))

    def _sum(self, side: str, one: _Sum) -> int:
        if (side, one) not in self._known:
            self._sums[side].append(one)
            self._known[side, one] = self._num_inputs[side] + len(self._sums[side])
        return self._known[side, one]

    def _crossing(self, one: _Crossing) -> int:
        if ("both", one) not in self._known:
            self._crossings.append(one)
            self._known["both", one] = len(self._crossings)
        return self._known["both", one]

    def _whole(self, value: PairValue) -> int:
        """The number of a value whose three parts have been added up."""
        if not value.left and not value.right:
            return value.both
        if value.both:
            before = self._crossings[value.both - 1]
            if before.sides == (0, 0):
                # Two more terms of the same sum; where the bare sum is not needed it is left out.
                return self._crossing(before._replace(sides=(value.left, value.right)))
        sides = (value.left, value.right)
        return self._crossing(_Crossing(_once(value.both), sides=sides))

    def _needed(self, result: int) -> dict[int, _Crossing]:
        """The crossings that a result rests on, in the order in which they were written."""
        marked, pending = set[int](), [result]
        while pending:
            number = pending.pop()
            if number and number not in marked:
                marked.add(number)
                pending += _read_of_both(self._crossings[number - 1])
        return _fused({number: self._crossings[number - 1] for number in sorted(marked)}, result)

    def _side_program(self, side: str, wanted: list[int]) -> Program:
        """From the numbers of a point to the values that pairs read."""
        num_inputs, sums = self._num_inputs[side], self._sums[side]
        marked, pending = set[int](), list(wanted)
        while pending:
            number = pending.pop()
            if number > num_inputs and number not in marked:
                marked.add(number)
                one = sums[number - num_inputs - 1]
                pending += [value for _, value in one.multiples]
                pending += itertools.chain.from_iterable(one.products)
        writer = ProgramWriter(num_inputs, self.prime)
        numbers = {number: number for number in writer.inputs}
        for number in sorted(marked):
            one = sums[number - num_inputs - 1]
            numbers[number] = writer.sum_products(
                [(writer.constant(factor), numbers[value]) for factor, value in one.multiples],
                [(numbers[first], numbers[second]) for first, second in one.products],
            )
        return writer.finish([numbers[number] for number in wanted])

    def _pair_program(
        self, needed: dict[int, _Crossing], left: list[int], right: list[int]
    ) -> Program:
        """Row 1 holds ones, the right values follow it; the left values are factors."""
        writer = ProgramWriter(1 + len(right), self.prime, num_open_factors=len(left))
        ones = writer.inputs[0]
        row_of = dict(zip(right, writer.inputs[1:], strict=True))
        factor_of = {number: at for at, number in enumerate(left, start=1)}
        numbers = {0: 0}
        for number, crossing in needed.items():
            own_left, own_right = crossing.sides
            multiples = [
                (writer.constant(f % self.prime), numbers[v])
                for f, v in crossing.multiples
                if f != 1
            ]
            multiples += [(factor_of[a], row_of[b]) for a, b in crossing.crossed]
            multiples += [(factor_of[a], numbers[b]) for a, b in crossing.with_left]
            multiples += [(factor_of[own_left], ones)] if own_left else []
            products = [(numbers[first], numbers[second]) for first, second in crossing.products]
            products += [(row_of[a], numbers[b]) for a, b in crossing.with_right]
            once = [numbers[value] for factor, value in crossing.multiples if factor == 1]
            once += [row_of[own_right]] if own_right else []
            multiples += [(writer.constant(1), value) for value in once]
            numbers[number] = writer.sum_products(multiples, products)
        return writer.finish([list(numbers.values())[-1]], are_inputs_kept=True)


def add_outer(
    writer: PairWriter, matrix: PairMatrix, column: Sequence[PairValue], row: Sequence[PairValue]
) -> PairMatrix:
    """A matrix plus a column times a row."""
    return [
        [writer.dot([first], [second], plus=entry) for second, entry in zip(row, line, strict=True)]
        for first, line in zip(column, matrix, strict=True)
    ]


def apply_states(
    writer: PairWriter,
    states: Sequence[PairMatrix],
    queries: NDArray[numpy.int64],
    outputs: NDArray[numpy.int64],
    token: PairVector,
) -> PairVector:
    """Σ_h O_h S_h Q_h times a token, of states that are a sum of one of each side.

    The matrix is written first: its entries belong to sides, and only the last product to pairs.

    Args:
        writer: of the program.
        states: S_h, (head_size, state) each.
        queries: Q_h, (heads, state, width).
        outputs: all O_h beside each other, (width, heads · head_size).
        token: which they are applied to.
    """
    stacked = [
        writer.apply(query.T, row)
        for state, query in zip(states, queries, strict=True)
        for row in state
    ]
    columns = list(zip(*stacked, strict=True))
    return [
        writer.dot([writer.mix(row, column) for column in columns], token)
        for row in outputs.tolist()
    ]


def multiply_weights(first: Residues, second: Residues, prime: int) -> Residues:
    """A product of small matrices; Python integers, for residues of any prime."""
    return numpy.asarray(first.astype(object) @ second.astype(object) % prime).astype(numpy.int64)


def completed_basis(rows: Residues, prime: int) -> Residues:
    """As many of the rows as are independent, the first ones first, and units for the rest."""
    size = rows.shape[1]
    basis = rows[:0]
    for row in (*rows, *numpy.eye(size, dtype=numpy.int64)):
        if len(basis) < size:
            longer = numpy.vstack([basis, row])
            basis = longer if rank_modulo(longer, prime) == len(longer) else basis
    return basis


def _fused(needed: dict[int, _Crossing], result: int) -> dict[int, _Crossing]:
    """Every sum that only one other sum reads, once and as it is, becomes a part of that one."""
    uses = Counter(number for crossing in needed.values() for number in _read_of_both(crossing))
    made: dict[int, _Crossing] = {}
    for number, crossing in needed.items():
        kept = []
        for factor, value in crossing.multiples:
            part = made.get(value)
            is_plain = part is not None and part._replace(multiples=()) == _Crossing()
            if (
                part is None
                or uses[value] > 1
                or value == result
                or (factor != 1 and not is_plain)
                or any(own and other for own, other in zip(part.sides, crossing.sides, strict=True))
            ):
                kept.append((factor, value))
                continue
            kept += [(factor * f, v) for f, v in part.multiples]
            crossing = crossing._replace(
                crossed=crossing.crossed + part.crossed,
                with_left=crossing.with_left + part.with_left,
                with_right=crossing.with_right + part.with_right,
                products=crossing.products + part.products,
                sides=(crossing.sides[0] or part.sides[0], crossing.sides[1] or part.sides[1]),
            )
            del made[value]
        made[number] = crossing._replace(multiples=tuple(kept))
    return made


def _once(number: int) -> tuple[tuple[int, int], ...]:
    return ((1, number),) if number else ()


def _ordered(products: list[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    return tuple(sorted((min(pair), max(pair)) for pair in products))


def _read_of_both(crossing: _Crossing) -> list[int]:
    pairs = (*crossing.multiples, *crossing.with_left, *crossing.with_right)
    return [*(value for _, value in pairs), *itertools.chain.from_iterable(crossing.products)]


def _read_of_side(crossing: _Crossing, side: str) -> list[int]:
    at, beside = (0, crossing.with_left) if side == "left" else (1, crossing.with_right)
    numbers = [*(pair[at] for pair in crossing.crossed), *(number for number, _ in beside)]
    return [*numbers, crossing.sides[at]]


class _Terms:
    """The terms of a sum while they are collected, by the names of `_Crossing`."""

    def __init__(self) -> None:
        self.crossed: list[tuple[int, int]] = []
        self.with_left: list[tuple[int, int]] = []
        self.with_right: list[tuple[int, int]] = []
        self.products: list[tuple[int, int]] = []


class PairPrograms(NamedTuple):
    """What to compute of each left point, of each right point and of each pair."""

    left: Program
    right: Program
    pairs: Program

    @property
    def cost(self) -> int:
        """What a pair costs, in products; a sum is brought back to residues by two more."""
        return self.pairs.num_products + 2 * len(self.pairs.instructions)


Writing = Callable[[PairWriter, list[PairVector]], PairValue]  # an output, from the tokens


class ProgramFunction(SplitFunction):
    """A network as a function of two sides, by programs, for any prime below 2^31.

    Sample points are those of `PairwiseFunction`, so the two give identical matrices.

    Args:
        network: whose output it is.
        partition: the split.
        writings: ways to write the output; the one that costs the least is taken.
        seed: draws the sample points.
        prime: below 2^31.

    Raises:
        PrimeError: if the prime is composite, 2^31 or more, or too small to separate the grades.
    """

    def __init__(
        self,
        network: PolynomialNetwork,
        partition: Partition,
        writings: Sequence[Writing],
        *,
        seed: int,
        prime: int,
    ) -> None:
        self.prime = require_prime(prime, below=2**31, who=type(self).__name__)
        self.seed = seed
        self.shapes = {
            "left": (len(partition.left), network.input_size),
            "right": (len(partition.right), network.input_size),
        }
        degrees = network.grade_degrees(partition)
        self.num_grades = len(degrees)
        self.scales, self.interpolation = interpolation_modulo(degrees, prime)
        programs = [self._written(writing, partition) for writing in writings]
        self.programs = min(programs, key=lambda one: one.cost)

    def values(self, rows: Numbers, columns: Numbers) -> Residues:
        ones = numpy.ones((1, 1), dtype=numpy.int64)
        values = self._evaluated(rows, columns, (1,), ones)
        return values.reshape(len(rows), len(columns))

    def graded_values(self, rows: Numbers, columns: Numbers) -> Residues:
        if self.num_grades == 1:
            return self.values(rows, columns)[None]
        return self._evaluated(rows, columns, self.scales, self.interpolation)

    def _written(self, writing: Writing, partition: Partition) -> PairPrograms:
        (left, size), (right, _) = self.shapes["left"], self.shapes["right"]
        writer = PairWriter(self.prime, left=left * size, right=right * size)
        tokens: list[PairVector] = [[] for _ in partition.positions]
        for place, position in enumerate(partition.left):
            tokens[position] = [writer.left_input(size * place + n) for n in range(size)]
        for place, position in enumerate(partition.right):
            tokens[position] = [writer.right_input(size * place + n) for n in range(size)]
        return writer.finish(writing(writer, tokens))

    def _evaluated(
        self, rows: Numbers, columns: Numbers, scales: Sequence[int], interpolation: Residues
    ) -> Residues:
        left = self._side("left", self.programs.left, rows, 1)
        right = [self._side("right", self.programs.right, columns, scale) for scale in scales]
        values = numpy.empty((len(interpolation), len(rows), len(columns)), dtype=numpy.int64)
        writer = ProgramWriter(len(scales), self.prime)
        mixing = writer.finish([writer.mix(line, writer.inputs) for line in interpolation])
        evaluate_crossed(
            self.programs.pairs,
            mixing,
            numpy.ascontiguousarray(left.T),
            numpy.stack(right),
            self.prime,
            values,
        )
        return values

    def _side(
        self, side: str, program: Program, numbers: Numbers, scale: int
    ) -> NDArray[numpy.float64]:
        """The values (values, points) that pairs read of a side."""
        points = drawn_points(self.seed, side, numbers, self.shapes[side], self.prime)
        scaled = (points * scale % self.prime).reshape(len(numbers), -1)
        scaled = numpy.hstack([scaled, numpy.ones((len(numbers), 1), dtype=numpy.int64)])
        results = numpy.empty((len(program.results), len(numbers)))
        inputs = numpy.ascontiguousarray(balanced(scaled, self.prime).T)
        evaluate_points(program, inputs, self.prime, results)
        return results
