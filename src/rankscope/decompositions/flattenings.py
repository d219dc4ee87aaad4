"""Matrices made of a tensor's entries whose ranks bound its CP rank from below."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy
from numpy.typing import NDArray

from rankscope.separation.exact.modular import pivots_modulo, rank_modulo
from rankscope.separation.matricization import matricize
from rankscope.separation.measuring.draws import draw_residues
from rankscope.separation.partition import Partition

Groups = tuple[tuple[int, ...], ...]
Array = NDArray[Any]  # of float64 or of residues, as the arithmetic has it


class Arithmetic(ABC):
    """How the rank of a matrix is found, and how a position is made smaller without adding any."""

    @abstractmethod
    def matrix_rank(self, matrix: Array, multiplicity: int = 1) -> int:
        """A rank that the matrix certainly has, with every entry written `multiplicity` times."""

    @abstractmethod
    def restrict(self, matrix: Array, size: int) -> Array:
        """Combine the rows to `size` rows, of full rank where the matrix allows."""


@dataclass(frozen=True)
class Modular(Arithmetic):
    """Exact ranks of integers modulo a prime below 2^24, never more than over the reals."""

    prime: int

    def matrix_rank(self, matrix: Array, multiplicity: int = 1) -> int:
        """The rank modulo the prime; `multiplicity` makes no difference."""
        return rank_modulo(matrix, self.prime)

    def restrict(self, matrix: Array, size: int) -> Array:
        """Independent rows, or random combinations of them if there are more than `size`."""
        rows: Array = matrix[list(pivots_modulo(matrix, self.prime).rows)]
        if len(rows) <= size:
            return rows
        mixing = draw_residues(0, "restriction", (size, len(rows)), self.prime)
        mixed: Array = mixing @ numpy.remainder(rows, self.prime) % self.prime
        return mixed

    def __str__(self) -> str:
        return f"modulo {self.prime}"


@dataclass(frozen=True)
class Numeric(Arithmetic):
    """Ranks that survive every change of the tensor up to an error in Frobenius norm."""

    error: float

    def matrix_rank(self, matrix: Array, multiplicity: int = 1) -> int:
        """How many singular values no such change can make 0 (Weyl, Eckart and Young)."""
        singular_values = numpy.linalg.svd(matrix, compute_uv=False)
        return int((singular_values > self.error * math.sqrt(multiplicity)).sum())

    def restrict(self, matrix: Array, size: int) -> Array:
        """Orthonormal combinations, which lengthen no change: singular rows, mixed at random."""
        left, singular_values, _ = numpy.linalg.svd(matrix, full_matrices=False)
        left = left[:, singular_values > self.error]
        if left.shape[1] > size:
            mixing = numpy.random.default_rng(0).standard_normal((left.shape[1], size))
            left = left @ numpy.linalg.qr(mixing)[0]
        rows: Array = left.T @ matrix
        return rows

    def __str__(self) -> str:
        return f"for every tensor within a relative error of {self.error:.0e}"


@dataclass(frozen=True)
class Flattening:
    """A matrix that is linear in the tensor, and the lower bound of the CP rank that it proves.

    Args:
        groups: positions along rows and columns; for a Koszul flattening the groups A, B, C.
        matrix_rank: of the matrix.
        product_rank: what a single outer product contributes at most.
        arithmetic: how the rank was found, and what it is valid for.
        wedge: p of a Koszul flattening, 0 for a matricization.
        restricted_size: the size to which group A was restricted, 0 for a matricization.
    """

    groups: Groups
    matrix_rank: int
    product_rank: int
    arithmetic: Arithmetic
    wedge: int = 0
    restricted_size: int = 0

    @property
    def bound(self) -> int:
        """The CP rank, and the border rank, is at least this."""
        return -(-self.matrix_rank // self.product_rank)

    def __str__(self) -> str:
        sides = " against ".join(str(group) for group in self.groups)
        if not self.wedge:
            return f"matricization {sides} has rank {self.matrix_rank} {self.arithmetic}"
        return (
            f"Koszul flattening p = {self.wedge} of {sides}, the first restricted to size "
            f"{self.restricted_size}, has rank {self.matrix_rank} where a product has "
            f"{self.product_rank}, {self.arithmetic}"
        )


def best_matricization(array: Array, arithmetic: Arithmetic) -> Flattening:
    """The matricization of largest rank, among all partitions of the positions.

    Matrices that are too small to win are not looked at.

    Reference:
        Landsberg (2012), Tensors: Geometry and Applications, Ch. 3 (flattenings).
    """
    best: Flattening | None = None
    smaller_sides = {part: _smaller_side(array.shape, part) for part in _partitions(array.ndim)}
    for part in sorted(smaller_sides, key=lambda part: -smaller_sides[part]):
        if best is None or smaller_sides[part] > best.bound:
            found = arithmetic.matrix_rank(matricize(array, part))
            if best is None or found > best.bound:
                best = Flattening((part.left, part.right), found, 1, arithmetic)
    assert best is not None
    return best


def _partitions(order: int) -> Iterator[Partition]:
    """Every split in two, with position 0 on the left."""
    for count in range(order - 1):
        for others in combinations(range(1, order), count):
            yield Partition.of((0, *others), order=order)


def _smaller_side(shape: tuple[int, ...], partition: Partition) -> int:
    rows = math.prod(shape[position] for position in partition.left)
    return min(rows, math.prod(shape) // rows)
