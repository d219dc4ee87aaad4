"""Values of minors, a tile at a time: their determinants, and answers to their challenges."""

import hashlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

import numpy
import torch
from numpy.typing import NDArray

from rankscope.budget import Deadline
from rankscope.modes import one_thread
from rankscope.progress import Progress, Report, ignore
from rankscope.rank.certificate import (
    CertifiedMinor,
)
from rankscope.rank.measured import Numbers, Residues, SplitFunction
from rankscope.workers import Workers

ENTRIES_AT_ONCE = 2**22  # values held by a worker
SPOTS = 45  # rows and columns of a spot check: 2,025 entries
_LIMB_BITS = 16

Tile = tuple[Numbers, Numbers]
Result = TypeVar("Result")


class InPieces(SplitFunction):
    """The same function, evaluated on at most so many pairs at a time."""

    def __init__(self, function: SplitFunction, pairs_at_once: int) -> None:
        self.function = function
        self.pairs_at_once = pairs_at_once
        self.prime = function.prime
        self.num_points = function.num_points
        self.num_grades = function.num_grades

    def values(self, rows: Numbers, columns: Numbers) -> Residues:
        values = numpy.empty((len(rows), len(columns)), dtype=numpy.int64)
        for down, across in self._pieces(len(rows), len(columns)):
            values[down, across] = self.function.values(rows[down], columns[across])
        return values

    def graded_values(self, rows: Numbers, columns: Numbers) -> Residues:
        values = numpy.empty((self.num_grades, len(rows), len(columns)), dtype=numpy.int64)
        for down, across in self._pieces(len(rows), len(columns)):
            values[:, down, across] = self.function.graded_values(rows[down], columns[across])
        return values

    def _pieces(self, num_rows: int, num_columns: int) -> Iterator[tuple[slice, slice]]:
        # Nearly square, as the points of both sides are drawn again for every piece.
        height = max(1, min(num_rows, int(self.pairs_at_once**0.5)))
        width = max(1, self.pairs_at_once // height)
        return itertools.product(_slices(num_rows, height), _slices(num_columns, width))


@dataclass(frozen=True)
class MinorTiles:
    """All the minors of one certificate that are read from the same function, tile by tile.

    Graded parts are computed together, so every pair of points is evaluated once for all grades.
    """

    function: SplitFunction
    minors: Sequence[CertifiedMinor]
    workers: Workers = field(default_factory=Workers)
    entries_at_once: int = ENTRIES_AT_ONCE
    deadline: Deadline = field(default_factory=lambda: Deadline(None))

    @property
    def is_graded(self) -> bool:
        """Whether the minors belong to parts of the function."""
        return any(minor.grade is not None for minor in self.minors)

    @property
    def num_parts(self) -> int:
        """How many values there are for a pair of points."""
        return self.function.num_grades if self.is_graded else 1

    def points(self) -> tuple[Numbers, Numbers]:
        """The rows and the columns of all the minors."""
        return (
            _union([minor.rows for minor in self.minors]),
            _union([minor.columns for minor in self.minors]),
        )

    def parts(self, rows: Numbers, columns: Numbers) -> Residues:
        """The values (parts, rows, columns) in which the minors lie."""
        if self.is_graded:
            return self.function.graded_values(rows, columns)
        return self.function.values(rows, columns)[None]

    def matrices(self, report: Report = ignore) -> list[NDArray[numpy.uint32]]:
        """The minors themselves."""
        matrices = [numpy.empty((minor.size, minor.size), numpy.uint32) for minor in self.minors]
        for pieces in self._each_tile(_entries, report):
            for matrix, (down, across, entries) in zip(matrices, pieces, strict=True):
                matrix[down[:, None], across] = entries
        return matrices

    def wrong_answers(self, right_sides: Sequence[Residues], report: Report = ignore) -> list[int]:
        """How many equations of each minor its answers miss.

        Sums over tiles are all that is kept: memory grows with the size of a minor, not with its
        square.
        """
        sums = [numpy.zeros_like(wanted) for wanted in right_sides]
        for products in self._each_tile(_products, report):
            for total, (down, product) in zip(sums, products, strict=True):
                total[down] += product
        return [
            int((total % self.function.prime != wanted).sum())
            for total, wanted in zip(sums, right_sides, strict=True)
        ]

    def spots(self, seed: bytes) -> tuple[Numbers, Numbers]:
        """Some of the rows and columns, chosen by a hash."""
        rows, columns = self.points()
        return _choose_numbers(rows, b"rows" + seed), _choose_numbers(columns, b"columns" + seed)

    def _each_tile(
        self, work: Callable[["MinorTiles", Tile], Result], report: Report
    ) -> Iterator[Result]:
        rows, columns = self.points()
        side = max(1, int((self.entries_at_once / self.num_parts) ** 0.5))
        tiles = [
            (rows[down], columns[across])
            for down in _slices(len(rows), side)
            for across in _slices(len(columns), side)
        ]
        with one_thread():
            finished = self.workers.run(partial(_on_one_thread, work, self), tiles)
            for done, (_, result) in enumerate(finished, start=1):
                report(Progress("reading minors", done, len(tiles)))
                self.deadline.require("The verification")
                yield result


def _on_one_thread(
    work: Callable[[MinorTiles, Tile], Result], minors: MinorTiles, tile: Tile
) -> Result:
    # How many threads torch uses is a setting of each thread, this worker's among them.
    torch.set_num_threads(1)
    return work(minors, tile)


def _entries(
    minors: MinorTiles, tile: Tile
) -> list[tuple[Numbers, Numbers, NDArray[numpy.uint32]]]:
    """Which rows and columns of each minor stand in a tile, and their entries."""
    parts = minors.parts(*tile)
    tiles = []
    for minor in minors.minors:
        down, at_row = _common_places(minor.rows, tile[0])
        across, at_column = _common_places(minor.columns, tile[1])
        entries = parts[minor.grade or 0][at_row[:, None], at_column]
        tiles.append((down, across, entries.astype(numpy.uint32)))
    return tiles


def _products(minors: MinorTiles, tile: Tile) -> list[tuple[Numbers, Residues]]:
    """Which rows of each minor stand in a tile, and what they contribute to its equations."""
    prime = minors.function.prime
    return [
        (down, product_modulo(entries.astype(numpy.int64), minor.solutions()[across], prime))
        for minor, (down, across, entries) in zip(
            minors.minors, _entries(minors, tile), strict=True
        )
    ]


def _common_places(own: tuple[int, ...], others: Numbers) -> tuple[Numbers, Numbers]:
    """The places of common numbers in two ascending lists."""
    _, first, second = numpy.intersect1d(own, others, assume_unique=True, return_indices=True)
    return first, second


def determinant_modulo(matrix: NDArray[numpy.uint32], prime: int) -> int:
    """The determinant modulo a prime by FLINT, which shares no code with our elimination.

    Example:
        >>> determinant_modulo(numpy.array([[1, 2], [3, 4]], dtype=numpy.uint32), 7)
        5
    """
    import flint

    size = len(matrix)
    return int(flint.nmod_mat(size, size, matrix.ravel().tolist(), prime).det())


def product_modulo(entries: Residues, solutions: Residues, prime: int) -> Residues:
    """The product modulo a prime below 2^31, exactly, for an inner size of at most 2^16.

    Solutions are taken in limbs of 16 bits: a sum of 2^16 products below 2^31 · 2^16 is an int64.

    Example:
        >>> product_modulo(numpy.array([[3, 4]]), numpy.array([[5], [6]]), 7).tolist()
        [[4]]
    """
    limbs = numpy.concatenate((solutions >> _LIMB_BITS, solutions % 2**_LIMB_BITS), axis=1)
    high, low = numpy.split(entries @ limbs % prime, 2, axis=1)
    return numpy.asarray(((high << _LIMB_BITS) + low) % prime)


def _slices(length: int, step: int) -> list[slice]:
    return [slice(start, min(start + step, length)) for start in range(0, length, step)]


def _union(groups: Sequence[tuple[int, ...]]) -> Numbers:
    return numpy.unique(numpy.array(list(itertools.chain(*groups)), dtype=numpy.int64))


def _choose_numbers(numbers: Numbers, seed: bytes) -> Numbers:
    stream = hashlib.shake_256(seed).digest(8 * SPOTS)
    words = numpy.frombuffer(stream, dtype="<u8") % numpy.uint64(len(numbers))
    return numpy.unique(numbers[words.astype(numpy.int64)])
