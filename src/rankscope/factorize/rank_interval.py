"""The CP rank of a tensor as an interval: fits from above, (Koszul) flattenings from below."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from typing import Any

import numpy
import torch
from numpy.typing import NDArray
from torch import Tensor

from rankscope.errors import DecompositionError
from rankscope.factorize.cp_direct import direct_decompositions
from rankscope.factorize.cp_fit import DEFAULT_FIT, CPFit, FitOptions, Report, fit_cp, measure_fit
from rankscope.factorize.hyperdeterminant import DecidedOrbit, decide
from rankscope.factorize.truncation import Factors, Reals, RealTensor, to_array, to_unit
from rankscope.factorize.tucker import compress
from rankscope.rank.elimination import pivots_modulo, rank_modulo
from rankscope.rank.measurement import draw_residues
from rankscope.rank.partition import Partition, matricize
from rankscope.rank.residues import require_prime

# --- Matrices made of a tensor's entries whose ranks bound its CP rank from below -----------------


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
            rank = arithmetic.matrix_rank(matricize(array, part))
            if best is None or rank > best.bound:
                best = Flattening((part.left, part.right), rank, 1, arithmetic)
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


# --- Koszul flattenings: lower bounds of the CP rank beyond the size of any matricization ---------


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
        tensor = _restrict(array, candidate, arithmetic)
        wedge, product_rank = candidate.wedge, math.comb(len(tensor) - 1, candidate.wedge)
        koszul = Flattening(
            candidate.groups,
            arithmetic.matrix_rank(koszul_matrix(tensor, wedge), product_rank),
            product_rank,
            arithmetic,
            wedge,
            len(tensor),
        )
        best = max(best, koszul, key=lambda flattening: flattening.bound)
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


def _restrict(array: Array, candidate: _Candidate, arithmetic: Arithmetic) -> Array:
    """The tensor (A, B, C) with its three sizes as in the candidate."""
    groups = candidate.groups
    sizes = [math.prod(array.shape[position] for position in group) for group in groups]
    tensor = array.transpose([position for group in groups for position in group]).reshape(sizes)
    for place, size in enumerate(candidate.sizes):
        front = numpy.moveaxis(tensor, place, 0)
        rows = arithmetic.restrict(front.reshape(len(front), -1), size)
        tensor = numpy.moveaxis(rows.reshape(-1, *front.shape[1:]), 0, place)
    return tensor


# --- The CP rank of a tensor as an interval: what is proved, and what was found -------------------


_PRIME_LIMIT = 2**24  # products of residues add up in int64


@dataclass(frozen=True)
class CPRankOptions:
    """How to look for a decomposition, and how far to go for a lower bound.

    Args:
        fit: what counts as a decomposition, and how long to look for one at each size.
        prime: below 2^24, for the exact lower bounds of integer tensors.
        max_koszul_entries: larger Koszul flattenings are not looked at.
    """

    fit: FitOptions = DEFAULT_FIT
    prime: int = 16777213
    max_koszul_entries: int = 2**18

    def __post_init__(self) -> None:
        require_prime(self.prime, below=_PRIME_LIMIT, who="CPRankOptions")


DEFAULT_OPTIONS = CPRankOptions()


@dataclass(frozen=True, eq=False)
class CPRank:
    """An interval that holds the CP rank.

    Args:
        lower_reason: the flattening behind the lower end, or the orbit that decides both ends.
        upper_fit: the decomposition behind the upper end.
        failed: numbers of components, ascending, for which no start led to a decomposition;
            this proves nothing.
        errors: every number of components that was tried, ascending, with its least relative error.
    """

    lower_reason: Flattening | DecidedOrbit
    upper_fit: CPFit
    failed: tuple[int, ...] = ()
    errors: tuple[tuple[int, float], ...] = ()

    @property
    def lower(self) -> int:
        """No sum of fewer outer products is the tensor; `lower_reason` says how that is known."""
        return self.lower_reason.bound

    @property
    def upper(self) -> int:
        """A sum of so many outer products was found, or the orbit says that there is one."""
        if isinstance(self.lower_reason, DecidedOrbit):
            return self.lower_reason.bound
        return self.upper_fit.num_components

    @property
    def is_exact(self) -> bool:
        """Whether both ends agree."""
        return self.lower == self.upper

    def __str__(self) -> str:
        interval = f"{self.lower}" if self.is_exact else f"{self.lower}..{self.upper}"
        return f"CP rank {interval}: {self.lower_reason}; found {self.upper_fit}"

    def to_dict(self) -> dict[str, object]:
        """Plain data for JSON."""
        return {
            "lower": self.lower,
            "upper": self.upper,
            "lower_reason": str(self.lower_reason),
            "relative_error": self.upper_fit.relative_error,
            "largest_component_norm": self.upper_fit.largest_component_norm,
            "failed": list(self.failed),
            "errors": [{"components": size, "relative_error": e} for size, e in self.errors],
        }


def cp_rank(
    tensor: RealTensor, options: CPRankOptions = DEFAULT_OPTIONS, *, report: Report | None = None
) -> CPRank:
    """Enclose the least number of outer products of real vectors that add up to a tensor.

    The lower end comes from all matricizations and from Koszul flattenings. For integer tensors
    their ranks are computed modulo a prime, which proves the bound. For floating-point tensors
    singular values prove it for every tensor within `relative_error` of the given one.

    The upper end is the size of a decomposition that was found: with a relative error of at most
    `relative_error`, and without components that cancel each other, since a tensor may be a limit
    of sums of fewer products than its rank (its border rank is smaller). It is no proof: an exact
    decomposition nearby is plausible, not certain.

    For tensors 2 x 2 x 2 both ends come from the orbit, exactly for integers and fractions, and for
    floats wherever no change within `relative_error` leads to another one.

    Numbers of components are tried from the lower end upwards in doubling steps; then the gap
    between the last failure and the first success is halved. Each is tried from the nearest
    factors found so far and from random starts. Sizes that are too large for the options are not
    tried; fibres and singular vectors give an upper end in any case.

    Args:
        tensor: real, floating point, integer or an array of fractions, of order 2 or more.
        options: budgets and tolerances.
        report: called with the result of every start.

    Example:
        >>> interval = cp_rank(numpy.random.default_rng(0).integers(-9, 9, (3, 3, 3)))
        >>> interval.lower, interval.upper  # matricizations alone would say 3
        (5, 5)

    Raises:
        DecompositionError: if the tensor is not real and finite.
        TooLargeError: if even the lower bound has more unknowns than the options allow.

    Reference:
        Kolda & Bader (2009), Tensor decompositions and applications, Sec. 3.1-3.3,
        doi:10.1137/07070111X; Landsberg & Ottaviani (2015), arXiv:1112.6007.
    """
    array, wanted = tensor_with_precision(tensor, options.fit)
    unit, scale = to_unit(array)
    reason = decide(array, wanted.relative_error) or _flattened(array, unit, wanted, options)
    interval = [measure_fit(unit, scale, _fewest(unit, reason.bound, wanted))]
    failed: dict[int, CPFit] = {}
    capacity = wanted.max_unknowns // sum(compress(unit)[0].shape)
    while True:
        target = _next_size(reason.bound, interval[-1].num_components, sorted(failed))
        if target is None or target > max(capacity, reason.bound):
            tried = {
                fit.num_components: fit.relative_error for fit in (*interval, *failed.values())
            }
            return CPRank(reason, interval[-1], tuple(sorted(failed)), tuple(sorted(tried.items())))
        fit = fit_cp(array, target, wanted, start=_nearest(interval, failed, wanted), report=report)
        if fit.is_decomposition(wanted):
            interval.append(fit)
        else:
            failed[target] = fit


def tensor_with_precision(
    tensor: RealTensor, fit: FitOptions
) -> tuple[NDArray[numpy.generic], FitOptions]:
    """The entries, and options for the precision that they have; fractions become integers."""
    if isinstance(tensor, Tensor) and tensor.dtype.is_floating_point:
        epsilon = torch.finfo(tensor.dtype).eps
        kept = (torch.float16, torch.float32, torch.float64)
        wide = tensor if tensor.dtype in kept else tensor.float()
        return to_array(wide, who="cp_rank"), fit.for_precision(epsilon)
    if isinstance(tensor, numpy.ndarray) and tensor.dtype == object:
        tensor = _whole(tensor)
    array = to_array(tensor, who="cp_rank")
    epsilon = float(numpy.finfo(str(array.dtype)).eps) if array.dtype.kind == "f" else 0.0
    return array, fit.for_precision(epsilon)


def _whole(fractions: NDArray[Any]) -> NDArray[numpy.int64]:
    """Fractions times their least common denominator, which changes no rank."""
    try:
        numbers = [Fraction(entry) for entry in fractions.ravel()]
        common = math.lcm(*(number.denominator for number in numbers))
        whole = numpy.array([int(number * common) for number in numbers], dtype=numpy.int64)
    except (TypeError, ValueError, OverflowError) as error:
        raise DecompositionError(
            f"cp_rank takes objects that are fractions of 64-bit integers: {error}"
        ) from error
    return whole.reshape(fractions.shape)


def _flattened(
    array: NDArray[numpy.generic], unit: Reals, wanted: FitOptions, options: CPRankOptions
) -> Flattening:
    entries, arithmetic = _arithmetic(array, unit, wanted, options)
    known = best_matricization(entries, arithmetic)
    return improve_by_koszul(entries, known, max_entries=options.max_koszul_entries)


def _arithmetic(
    array: NDArray[numpy.generic], unit: Reals, wanted: FitOptions, options: CPRankOptions
) -> tuple[NDArray[numpy.generic], Arithmetic]:
    """The entries to make matrices of, and how to find their ranks."""
    if array.dtype.kind == "f":
        return unit, Numeric(wanted.relative_error)
    wide = array.astype(numpy.uint64 if array.dtype.kind == "u" else numpy.int64)
    # Without common divisors, which change no rank, the tensor cannot vanish modulo the prime.
    wide = wide // max(numpy.gcd.reduce(wide, axis=None), wide.dtype.type(1))
    residues = numpy.remainder(wide, wide.dtype.type(options.prime)).astype(numpy.int64)
    return residues, Modular(options.prime)


def _fewest(unit: Reals, lower: int, options: FitOptions) -> Factors:
    """The smallest of the decompositions that need no search.

    What an exact bound rules out is none, even if it comes as near as was asked for.
    """
    direct = direct_decompositions(unit, options.relative_error, least=lower)
    possible = (factors for factors in direct if factors[0].shape[1] >= lower)
    return min(possible, key=lambda factors: factors[0].shape[1])


def _next_size(lower: int, upper: int, failed: list[int]) -> int | None:
    """The number of components to try next, or None if the ends have met."""
    below = failed[-1] if failed else lower - 1
    if below + 1 >= upper:
        return None
    step: int = 2 ** len(failed)
    return min(below + step, (below + upper) // 2)


def _nearest(
    successes: list[CPFit], failed: dict[int, CPFit], options: FitOptions
) -> Factors | None:
    """Factors of the last success of a search, else of the largest failure that stayed bounded."""
    if len(successes) > 1:
        return successes[-1].factors
    bounded = [
        size
        for size, fit in failed.items()
        if fit.largest_component_norm <= options.max_component_norm
    ]
    return failed[max(bounded)].factors if bounded else None
