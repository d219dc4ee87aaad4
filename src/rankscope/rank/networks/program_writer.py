"""Writing straight-line programs for the kernels, and giving their values few rows."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy

from rankscope.rank.measured import Residues
from rankscope.rank.networks.kernels import (
    COLUMNS,
    GROUPS,
    MOST_OWN,
    MOST_PRODUCTS,
    MOST_TERMS,
    Kind,
    Program,
)


class ProgramWriter:
    """Collects instructions; every value has a number of its own until `finish`.

    Args:
        num_inputs: rows that hold the inputs, from number 1 on.
        prime: of the residues.
        num_open_factors: factors from number 1 on that are not known yet, for `sum_products`.
    """

    def __init__(self, num_inputs: int, prime: int, num_open_factors: int = 0) -> None:
        self.inputs = tuple(range(1, num_inputs + 1))
        self._prime = prime
        self._num_values = num_inputs + 1  # number 0 is zero
        self._factors = [0] * (1 + num_open_factors)
        self._constants: dict[int, int] = {}
        self._lines: list[_Line] = []

    def dot(self, left: Sequence[int], right: Sequence[int]) -> int:
        """The sum of products of values."""
        return self._sum(0, left, right)

    def mix(self, factors: Residues, values: Sequence[int]) -> int:
        """The sum of multiples of values."""
        start = len(self._factors)
        self._factors += [int(factor) for factor in factors]
        return self._sum(1, range(start, len(self._factors)), values)

    def constant(self, residue: int) -> int:
        """The number of a factor that is known now."""
        if residue not in self._constants:
            self._constants[residue] = len(self._factors)
            self._factors.append(residue)
        return self._constants[residue]

    def sum_products(
        self, multiples: Sequence[tuple[int, int]], products: Sequence[tuple[int, int]]
    ) -> int:
        """The sum of multiples (factor, value), by numbers, and of products of two values."""
        target = self._num_values
        self._num_values += 1
        left, right = zip(*multiples, *products, strict=True)
        if len(products) <= MOST_PRODUCTS and len(left) <= MOST_TERMS:
            self._lines.append(_Line(target, left, right, len(products)))
            return target
        self._sum_into(target, 1, [f for f, _ in multiples], [v for _, v in multiples])
        self._sum_into(
            target, 0, [v for v, _ in products], [v for _, v in products], is_added=bool(multiples)
        )
        return target

    def finish(self, results: Sequence[int], *, are_inputs_kept: bool = False) -> Program:
        """The program, with a row used again as soon as its value has been read last.

        Rows of inputs are used again too, unless they are to be kept for the next run.
        """
        last = {number: at for at, line in enumerate(self._lines) for number in line.read}
        last.update(dict.fromkeys(results, len(self._lines)))
        if are_inputs_kept:
            last.update(dict.fromkeys(self.inputs, len(self._lines)))
        row_of = {0: 0, **{number: number for number in self.inputs}}
        free = [number for number in self.inputs if number not in last]
        num_rows = len(row_of)
        placed = []
        for at, line in enumerate(self._lines):
            if line.target not in row_of:
                row_of[line.target] = free.pop() if free else num_rows
                num_rows = max(num_rows, row_of[line.target] + 1)
            placed.append(line.placed(row_of))
            free += [row_of[number] for number in line.read if last[number] == at and number]
        return Program(
            numpy.array(_in_groups(placed), dtype=numpy.int64).reshape(-1, COLUMNS),
            balanced(numpy.array(self._factors, dtype=numpy.int64), self._prime),
            num_rows,
            numpy.array([row_of[number] for number in results], dtype=numpy.int64),
        )

    def _sum(self, kind: int, left: Sequence[int], right: Sequence[int]) -> int:
        target = self._num_values
        self._num_values += 1
        self._sum_into(target, kind, left, right)
        return target

    def _sum_into(
        self,
        target: int,
        kind: int,
        left: Sequence[int],
        right: Sequence[int],
        *,
        is_added: bool = False,
    ) -> None:
        step = MOST_TERMS if kind else MOST_PRODUCTS
        for start in range(0, len(left), step):
            one, other = (tuple(part[start : start + step]) for part in (left, right))
            products = 0 if kind else len(one)
            self._lines.append(_Line(target, one, other, products, is_added or start > 0))


class _Line(NamedTuple):
    """An instruction, by numbers of values until they have rows; the last products are of rows."""

    target: int
    left: tuple[int, ...]
    right: tuple[int, ...]
    num_products: int
    is_added: bool = False

    @property
    def num_factors(self) -> int:
        """How many of the left operands are factors, the first ones."""
        return len(self.left) - self.num_products

    @property
    def read(self) -> set[int]:
        """The values that it reads."""
        return {*self.right, *self.left[self.num_factors :]}

    def placed(self, row_of: Mapping[int, int]) -> "_Line":
        """With rows in place of values."""
        rows = tuple(row_of[number] for number in self.left[self.num_factors :])
        left = (*self.left[: self.num_factors], *rows)
        right = tuple(row_of[number] for number in self.right)
        return self._replace(target=row_of[self.target], left=left, right=right)

    def encoded(self, together: int = 1, own: int = 0) -> list[int]:
        """Its columns."""
        kind = Kind(len(self.right), self.num_products, self.is_added, together, own)
        return [kind.code, self.target, *_padded(self.left), *_padded(self.right)]


def _in_groups(lines: list[_Line]) -> list[list[int]]:
    """Instructions one after another that multiply the same rows are marked as a group."""
    encoded: list[list[int]] = []
    while len(encoded) < len(lines):
        for size in GROUPS:
            group = lines[len(encoded) : len(encoded) + size]
            if len(group) == size and (shared := _shared(group)):
                own = len(group[0].right) - len(shared)
                group = [_shared_first(line, shared) for line in group]
                encoded += [line.encoded(size, own) for line in group]
                break
        else:
            encoded.append(lines[len(encoded)].encoded())
    return encoded


def _shared(group: list[_Line]) -> list[int]:
    """The rows that all of them multiply; none if they cannot be carried out together."""
    first = group[0]
    rows = set(first.right).intersection(*(line.right for line in group))
    made: set[int] = set()
    for line in group:
        is_alike = not line.num_products and len(line.right) == len(first.right)
        if (
            not is_alike
            or line.is_added
            or made & set(line.right)
            or len(set(line.right)) < len(line.right)
        ):
            return []
        made.add(line.target)
    return sorted(rows) if len(first.right) - len(rows) <= MOST_OWN else []


def _shared_first(line: _Line, shared: list[int]) -> _Line:
    factor_of = dict(zip(line.right, line.left, strict=True))
    right = (*shared, *(row for row in line.right if row not in shared))
    return line._replace(left=tuple(factor_of[row] for row in right), right=right)


def balanced(residues: Residues, prime: int) -> numpy.typing.NDArray[numpy.float64]:
    """The float64 representatives of least absolute value.

    Example:
        >>> balanced(numpy.array([0, 3, 4, 6]), 7).tolist()
        [0.0, 3.0, -3.0, -1.0]
    """
    return numpy.where(residues > prime // 2, residues - prime, residues).astype(numpy.float64)


def _padded(numbers: Sequence[int]) -> list[int]:
    return [*numbers, *[0] * (MOST_TERMS - len(numbers))]
