"""Distances between matrices in which a least rank within a radius is sought.

For `Frobenius`, `MeanSquare` and `Spectral` the truncated singular value decomposition is best
(Eckart, Young and Mirsky), so that the least rank is read off the singular values. For
`Supremum` and `MeanAbsolute` it is hard to find, and only bounded from both sides.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import numpy
from numpy.typing import NDArray

from rankscope.errors import MetricError

Matrix = NDArray[numpy.float64]
Fractions = NDArray[Any]  # exact rational entries, for distances that rounding leaves undecided

_UNIT_ROUNDOFF = 2.0**-53
_MOST_PARTS = 32  # a side is cut into at most this many parts: 1,024 blocks


class Metric(ABC):
    """A norm of the difference of two matrices.

    Attributes:
        name: how it is called in results.
    """

    name: ClassVar[str]

    @abstractmethod
    def distance(self, residual: Matrix) -> float:
        """The norm of a difference."""

    @abstractmethod
    def is_proved_within(self, residual: Fractions, radius: Fraction) -> bool:
        """Whether exact arithmetic shows that the norm is at most the radius."""

    @abstractmethod
    def lower_rank(self, matrix: Matrix, radius: float) -> int:
        """A rank that every matrix within the radius has at least, rounding allowed for."""

    def root_weights(self, shape: tuple[int, ...]) -> tuple[Matrix, Matrix]:
        """Factors of rows and columns before singular values are taken."""
        return numpy.ones(shape[0]), numpy.ones(shape[1])

    def truncation_errors(
        self, matrix: Matrix, left: Matrix, values: Matrix, right: Matrix
    ) -> Matrix:
        """The distances of the truncations to the first 0, 1, … singular values."""
        residual = matrix.copy()
        errors = [self.distance(residual)]
        for column, value, row in zip(left.T, values, right, strict=True):
            residual -= numpy.outer(value * column, row)
            errors.append(self.distance(residual))
        return numpy.array(errors)

    def project(self, residual: Matrix, radius: float) -> Matrix | None:
        """The nearest difference within the radius; None where truncating is best anyway."""
        del residual, radius
        return None


@dataclass(frozen=True)
class Frobenius(Metric):
    """The root of the sum of squares."""

    name = "Frobenius distance"

    def distance(self, residual: Matrix) -> float:
        return float(numpy.linalg.norm(residual))

    def is_proved_within(self, residual: Fractions, radius: Fraction) -> bool:
        return bool((residual * residual).sum() <= radius**2)

    def lower_rank(self, matrix: Matrix, radius: float) -> int:
        return _frobenius_lower_rank(matrix, radius)

    def truncation_errors(
        self, matrix: Matrix, left: Matrix, values: Matrix, right: Matrix
    ) -> Matrix:
        del matrix, left, right
        return _tails(values)


@dataclass(frozen=True, eq=False)
class MeanSquare(Metric):
    r"""The root of the mean square, with weights for rows and columns.

    .. math:: \sqrt{\sum_{p,q} w_p v_q E_{pq}^2}

    The radius is a root mean square; a bound on the mean square itself is the square of it.

    Args:
        left_weights: w, one for each row; by default all 1 / rows.
        right_weights: v, one for each column; by default all 1 / columns.
    """

    left_weights: Matrix | None = None
    right_weights: Matrix | None = None

    name = "root-mean-square distance"

    def __post_init__(self) -> None:
        for side, weights in (("left", self.left_weights), ("right", self.right_weights)):
            if weights is None:
                continue
            if weights.ndim != 1 or not (numpy.isfinite(weights) & (weights > 0)).all():
                raise MetricError(
                    f"MeanSquare: the {side} weights must be a vector of positive numbers, got "
                    f"shape {weights.shape} with least entry {weights.min(initial=math.inf)}. "
                    f"Leave rows and columns of weight 0 out."
                )

    def distance(self, residual: Matrix) -> float:
        return float(numpy.linalg.norm(self._weighted(residual)))

    def is_proved_within(self, residual: Fractions, radius: Fraction) -> bool:
        left = self._exact_weights(self.left_weights, residual.shape[0])
        right = self._exact_weights(self.right_weights, residual.shape[1])
        return bool((left[:, None] * right * residual * residual).sum() <= radius**2)

    def lower_rank(self, matrix: Matrix, radius: float) -> int:
        return _frobenius_lower_rank(self._weighted(matrix), radius)

    def truncation_errors(
        self, matrix: Matrix, left: Matrix, values: Matrix, right: Matrix
    ) -> Matrix:
        del matrix, left, right
        return _tails(values)

    def root_weights(self, shape: tuple[int, ...]) -> tuple[Matrix, Matrix]:
        sides = (self.left_weights, self.right_weights)
        found = [
            numpy.full(count, 1 / count) if weights is None else weights
            for weights, count in zip(sides, shape, strict=True)
        ]
        if (len(found[0]), len(found[1])) != tuple(shape):
            raise MetricError(
                f"MeanSquare: a matrix of shape {tuple(shape)} needs as many weights, got "
                f"{len(found[0])} for its rows and {len(found[1])} for its columns."
            )
        return numpy.sqrt(found[0]), numpy.sqrt(found[1])

    def _weighted(self, matrix: Matrix) -> Matrix:
        left, right = self.root_weights(matrix.shape)
        weighted: Matrix = left[:, None] * matrix * right
        return weighted

    @staticmethod
    def _exact_weights(weights: Matrix | None, count: int) -> Fractions:
        exact = [Fraction(1, count)] * count if weights is None else map(Fraction, weights.tolist())
        return numpy.array(list(exact), dtype=object)


@dataclass(frozen=True)
class Spectral(Metric):
    """The largest singular value."""

    name = "spectral distance"

    def distance(self, residual: Matrix) -> float:
        return float(numpy.linalg.norm(residual, 2))

    def is_proved_within(self, residual: Fractions, radius: Fraction) -> bool:
        # Schur's test: the square is at most the largest row sum times the largest column sum.
        sums = abs(residual).sum(axis=0).max() * abs(residual).sum(axis=1).max()
        return bool(sums <= radius**2)

    def lower_rank(self, matrix: Matrix, radius: float) -> int:
        values = numpy.linalg.svd(matrix, compute_uv=False)
        return int((values > radius + rounding(matrix)).sum())

    def truncation_errors(
        self, matrix: Matrix, left: Matrix, values: Matrix, right: Matrix
    ) -> Matrix:
        del matrix, left, right
        return numpy.append(values, 0.0)


@dataclass(frozen=True)
class Supremum(Metric):
    """The largest absolute difference of two entries.

    Restricting functions to a sample never increases it: a lower bound on a sample is one for
    the function.
    """

    name = "largest absolute difference"

    def distance(self, residual: Matrix) -> float:
        return float(abs(residual).max())

    def is_proved_within(self, residual: Fractions, radius: Fraction) -> bool:
        return bool(abs(residual).max() <= radius)

    def lower_rank(self, matrix: Matrix, radius: float) -> int:
        """The best of all blocks: the Frobenius norm is at most the root of their size more."""
        best = int(self.distance(matrix) > radius)
        for blocks in _dissections(matrix):
            if min(blocks[0].shape) <= best:
                break
            ranks = (_frobenius_lower_rank(b, radius * math.sqrt(b.size)) for b in blocks)
            best = max(best, *ranks)
        return best

    def project(self, residual: Matrix, radius: float) -> Matrix | None:
        return residual.clip(-radius, radius)


@dataclass(frozen=True)
class MeanAbsolute(Metric):
    """The mean of the absolute differences of all entries."""

    name = "mean absolute difference"

    def distance(self, residual: Matrix) -> float:
        return float(abs(residual).mean())

    def is_proved_within(self, residual: Fractions, radius: Fraction) -> bool:
        return bool(abs(residual).sum() <= radius * residual.size)

    def lower_rank(self, matrix: Matrix, radius: float) -> int:
        """The best dissection by its worst block.

        The mean of some block is at most the mean of all, and a Frobenius norm is at most the
        sum of absolute values.
        """
        best = int(self.distance(matrix) > radius * (1 + 2 * matrix.size * _UNIT_ROUNDOFF))
        for blocks in _dissections(matrix):
            if min(blocks[0].shape) <= best:
                break
            best = max(best, min(_frobenius_lower_rank(b, radius * b.size) for b in blocks))
        return best

    def project(self, residual: Matrix, radius: float) -> Matrix | None:
        """Shrink all entries by the one threshold that brings the mean to the radius."""
        sizes = numpy.sort(abs(residual).ravel())[::-1]
        thresholds = (sizes.cumsum() - radius * residual.size) / numpy.arange(1, sizes.size + 1)
        threshold = max(0.0, float(thresholds.max()))
        shrunk: Matrix = numpy.sign(residual) * (abs(residual) - threshold).clip(0.0)
        return shrunk


def rounding(matrix: Matrix) -> float:
    """How far computed singular values and their tails may be off."""
    return float((max(matrix.shape) + 8) * 2 * _UNIT_ROUNDOFF * numpy.linalg.norm(matrix))


def _frobenius_lower_rank(matrix: Matrix, radius: float) -> int:
    tails = _tails(numpy.asarray(numpy.linalg.svd(matrix, compute_uv=False)))
    return int((tails > radius + rounding(matrix)).sum())


def _tails(singular_values: Matrix) -> Matrix:
    """The roots of the sums of squares from the first, second, … one on, and 0 for none."""
    squares = numpy.square(singular_values[::-1]).cumsum()[::-1]
    return numpy.append(numpy.sqrt(squares), 0.0)


def _dissections(matrix: Matrix) -> Iterator[list[Matrix]]:
    """The matrix cut into one block, into 2 x 2 blocks, 4 x 4 and so on, the largest first."""
    parts = 1
    while parts <= min(_MOST_PARTS, max(matrix.shape)):
        rows = numpy.array_split(matrix, min(parts, matrix.shape[0]))
        columns = min(parts, matrix.shape[1])
        yield [block for row in rows for block in numpy.array_split(row, columns, axis=1)]
        parts *= 2
