"""Writing straight-line programs for `attention_kernels`, and giving their values few rows."""

from collections.abc import Sequence

import numpy

from rankscope.architectures.attention.kernels import Program
from rankscope.separation.measuring.split_function import Residues

_OPERANDS = 4


class ProgramWriter:
    """Collects instructions; every value has a number of its own until `finish`."""

    def __init__(self, num_inputs: int, prime: int) -> None:
        self.inputs = tuple(range(1, num_inputs + 1))
        self._prime = prime
        self._num_values = num_inputs + 1  # number 0 is zero
        self._factors = [0]
        self._lines: list[list[int]] = []

    def dot(self, left: Sequence[int], right: Sequence[int]) -> int:
        """The sum of products of values."""
        return self._sum(0, left, right)

    def mix(self, factors: Residues, values: Sequence[int]) -> int:
        """The sum of multiples of values."""
        start = len(self._factors)
        self._factors += [int(factor) for factor in factors]
        return self._sum(1, range(start, len(self._factors)), values)

    def finish(self, results: Sequence[int]) -> Program:
        """The program, with a row used again as soon as its value has been read last."""
        last = {number: at for at, line in enumerate(self._lines) for number in _read(line)}
        last.update(dict.fromkeys(results, len(self._lines)))
        row_of = {0: 0, **{number: number for number in self.inputs}}
        free = [number for number in self.inputs if number not in last]
        num_rows = len(row_of)
        for at, line in enumerate(self._lines):
            target, read = line[1], _read(line)
            if target not in row_of:
                row_of[target] = free.pop() if free else num_rows
                num_rows = max(num_rows, row_of[target] + 1)
            line[1] = row_of[target]
            if line[0] == 0:
                line[3:7] = [row_of[number] for number in line[3:7]]
            line[7:] = [row_of[number] for number in line[7:]]
            free += [row_of[number] for number in read if last[number] == at and number != 0]
        return Program(
            numpy.array(self._lines, dtype=numpy.int64).reshape(-1, 3 + 2 * _OPERANDS),
            balanced(numpy.array(self._factors, dtype=numpy.int64), self._prime),
            num_rows,
            numpy.array([row_of[number] for number in results], dtype=numpy.int64),
        )

    def _sum(self, kind: int, left: Sequence[int], right: Sequence[int]) -> int:
        target = self._num_values
        self._num_values += 1
        for start in range(0, len(left), _OPERANDS):
            operands = [_padded(part[start : start + _OPERANDS]) for part in (left, right)]
            self._lines.append([kind, target, int(start > 0), *operands[0], *operands[1]])
        return target


def balanced(residues: Residues, prime: int) -> numpy.typing.NDArray[numpy.float64]:
    """The float64 representatives of least absolute value.

    Example:
        >>> balanced(numpy.array([0, 3, 4, 6]), 7).tolist()
        [0.0, 3.0, -3.0, -1.0]
    """
    return numpy.where(residues > prime // 2, residues - prime, residues).astype(numpy.float64)


def _read(line: list[int]) -> set[int]:
    """The values that an instruction reads."""
    return set(line[7:]) if line[0] else set(line[3:])


def _padded(numbers: Sequence[int]) -> list[int]:
    return [*numbers, *[0] * (_OPERANDS - len(numbers))]
