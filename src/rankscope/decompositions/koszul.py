r"""Koszul flattenings: lower bounds of the CP rank beyond the size of any matricization.

With positions grouped to three, T in A x B x C, and a = dim A, the matrix maps

.. math:: \Lambda^p A \otimes B^* \to \Lambda^{p+1} A \otimes C, \qquad
          X \otimes \beta \mapsto \sum_i (e_i \wedge X) \otimes T(e_i^*, \beta, \cdot)

An outer product gives rank C(a - 1, p), so that a sum of R of them gives at most R times that.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

import numpy

from rankscope.decompositions.flattenings import Arithmetic, Array, Flattening, Groups

# Positions can be grouped to three in 3^order / 2 ways.
_MAX_ORDER = 10


def koszul_matrix(tensor: Array, wedge: int) -> Array:
    """The matrix (C(a, p) b, C(a, p + 1) c) of a tensor (a, b, c), for p = `wedge`.

    Example:
        >>> koszul_matrix(numpy.ones((3, 2, 2), dtype=int), 1).shape
        (6, 6)

    Reference:
        Landsberg & Ottaviani (2015), New lower bounds for the border rank of matrix
        multiplication, arXiv:1112.6007.
    """
    size, num_rows, num_columns = tensor.shape
    smaller = {subset: number for number, subset in enumerate(combinations(range(size), wedge))}
    larger = list(combinations(range(size), wedge + 1))
    blocks = numpy.zeros((len(smaller), num_rows, len(larger), num_columns), dtype=tensor.dtype)
    for column, subset in enumerate(larger):
        for place, element in enumerate(subset):
            row = smaller[subset[:place] + subset[place + 1 :]]
            blocks[row, :, column, :] = tensor[element] if place % 2 == 0 else -tensor[element]
    return blocks.reshape(len(smaller) * num_rows, len(larger) * num_columns)


@dataclass(frozen=True)
class _Candidate:
    """A Koszul flattening that may win: its groups, their sizes after restriction, and p."""

    groups: Groups
    sizes: tuple[int, int, int]
    wedge: int

    @property
    def product_rank(self) -> int:
        return math.comb(self.sizes[0] - 1, self.wedge)

    @property
    def sides(self) -> tuple[int, int]:
        size, rows, columns = self.sizes
        return math.comb(size, self.wedge) * rows, math.comb(size, self.wedge + 1) * columns

    @property
    def best_bound(self) -> int:
        return -(-min(self.sides) // self.product_rank)


def improve_by_koszul(array: Array, known: Flattening, *, max_entries: int) -> Flattening:
    """Look for a Koszul flattening that proves more than a known bound, small matrices first.

    Groups are restricted to the ranks of their matricizations, and A also to fewer dimensions;
    matrices with more than `max_entries` entries are not looked at, nor are tensors of order
    above 10, whose positions can be grouped in too many ways.

    Reference:
        Landsberg & Ottaviani (2015), New lower bounds for the border rank of matrix
        multiplication, arXiv:1112.6007.
    """
    best, arithmetic = known, known.arithmetic
    if array.ndim > _MAX_ORDER:
        return known
    candidates = list(_candidates(array, known, max_entries))
    for candidate in sorted(candidates, key=lambda one: math.prod(one.sides)):
        if candidate.best_bound <= best.bound:
            continue
        tensor = _restricted(array, candidate, arithmetic)
        wedge, product_rank = candidate.wedge, math.comb(len(tensor) - 1, candidate.wedge)
        found = Flattening(
            candidate.groups,
            arithmetic.matrix_rank(koszul_matrix(tensor, wedge), product_rank),
            product_rank,
            arithmetic,
            wedge,
            len(tensor),
        )
        best = max(best, found, key=lambda flattening: flattening.bound)
    return best


def _candidates(array: Array, known: Flattening, max_entries: int) -> Iterator[_Candidate]:
    matrix_ranks: dict[tuple[int, ...], int] = {}
    for groups in _three_groups(array.ndim):
        sizes = [math.prod(array.shape[position] for position in group) for group in groups]
        if not _may_help(sizes, known.bound):
            continue
        for group in groups:
            if group not in matrix_ranks:
                matrix_ranks[group] = known.arithmetic.matrix_rank(_rows(array, group))
        ranks = [matrix_ranks[group] for group in groups]
        if _may_help(ranks, known.bound):
            for candidate in _with_sizes(groups, ranks, max_entries):
                if candidate.best_bound > known.bound:
                    yield candidate


def _may_help(sizes: list[int], bound: int) -> bool:
    """Whether any p and any restriction of A to 3 or more dimensions could exceed a bound.

    A matrix bounds the rank by min(b a / (a - p), c a / (p + 1)), rounded up, with p in 1..a-2:
    never above (b + c) a / (a + 1), nor above the smaller of b and c times a / 2.
    """
    size, rows, columns = sizes
    evenly = -(-(rows + columns) * size // (size + 1))
    return size >= 3 and min(evenly, -(-min(rows, columns) * size // 2)) > bound


def _with_sizes(groups: Groups, ranks: list[int], max_entries: int) -> Iterator[_Candidate]:
    largest, rows, columns = ranks
    for size in range(3, largest + 1):
        if size * math.comb(size, 2) * rows * columns > max_entries:
            return  # p = 1 has the smallest matrix
        for wedge in range(1, size - 1):
            candidate = _Candidate(groups, (size, rows, columns), wedge)
            if math.prod(candidate.sides) <= max_entries:
                yield candidate


def _three_groups(order: int) -> Iterator[Groups]:
    """All A, B, C that cover the positions; exchanging B and C only transposes the matrices."""
    for count in range(1, order - 1):
        for first in combinations(range(order), count):
            rest = [position for position in range(order) if position not in first]
            for size in range(len(rest) - 1):
                for others in combinations(rest[1:], size):
                    second = (rest[0], *others)
                    yield first, second, tuple(p for p in rest if p not in second)


def _rows(array: Array, group: tuple[int, ...]) -> Array:
    """The matricization with a group along the rows."""
    front = numpy.moveaxis(array, group, range(len(group)))
    return front.reshape(math.prod(array.shape[position] for position in group), -1)


def _restricted(array: Array, candidate: _Candidate, arithmetic: Arithmetic) -> Array:
    """The tensor (A, B, C) with its three sizes as in the candidate."""
    groups = candidate.groups
    sizes = [math.prod(array.shape[position] for position in group) for group in groups]
    tensor = array.transpose([position for group in groups for position in group]).reshape(sizes)
    for place, size in enumerate(candidate.sizes):
        front = numpy.moveaxis(tensor, place, 0)
        rows = arithmetic.restrict(front.reshape(len(front), -1), size)
        tensor = numpy.moveaxis(rows.reshape(-1, *front.shape[1:]), 0, place)
    return tensor
