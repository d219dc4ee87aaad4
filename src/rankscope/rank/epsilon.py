"""Epsilon ranks: the smallest rank within a distance, in five metrics."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, SupportsFloat

import numpy
from numpy.typing import NDArray

from rankscope.errors import MatrixError, MetricError

# --- Distances between matrices in which a least rank within a radius is sought -------------------


Matrix = NDArray[numpy.float64]
Fractions = NDArray[Any]  # exact rational entries, for distances that rounding leaves undecided

_UNIT_ROUNDOFF_metrics = 2.0**-53
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
        roots = [
            numpy.full(count, 1 / count) if weights is None else weights
            for weights, count in zip(sides, shape, strict=True)
        ]
        if (len(roots[0]), len(roots[1])) != tuple(shape):
            raise MetricError(
                f"MeanSquare: a matrix of shape {tuple(shape)} needs as many weights, got "
                f"{len(roots[0])} for its rows and {len(roots[1])} for its columns."
            )
        return numpy.sqrt(roots[0]), numpy.sqrt(roots[1])

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
        best = int(self.distance(matrix) > radius * (1 + 2 * matrix.size * _UNIT_ROUNDOFF_metrics))
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
    return float((max(matrix.shape) + 8) * 2 * _UNIT_ROUNDOFF_metrics * numpy.linalg.norm(matrix))


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


# --- Matrices of small rank within a radius of a given one: search, and proof that they are -------


_UNIT_ROUNDOFF = 2.0**-53
_MOST_EXACT_PRODUCTS = 2**15  # a tenth of a second of rational arithmetic
_MOST_IMPROVED_ENTRIES = 2**18  # some seconds to a minute of alternating projections
_ROUNDS = 60
_AIM = 0.97  # projecting on a slightly smaller ball ends inside the ball after finitely many rounds


Spectrum = tuple[Matrix, Matrix, Matrix]  # columns, singular values, rows


@dataclass(frozen=True, eq=False)
class LowRank:
    """The matrix left @ right, of rank at most the inner size, and how it was found."""

    left: Matrix
    right: Matrix
    found_by: str

    @property
    def inner_size(self) -> int:
        """An upper bound of its rank."""
        return int(self.left.shape[1])

    @property
    def matrix(self) -> Matrix:
        """The product."""
        product: Matrix = self.left @ self.right
        return product


def full_rank_witness(matrix: Matrix) -> LowRank:
    """The matrix without any error, at the rank of its shorter side."""
    rows, columns = matrix.shape
    is_wide = rows < columns
    left, right = (numpy.eye(rows), matrix) if is_wide else (matrix, numpy.eye(columns))
    return LowRank(left, right, "the matrix itself")


def is_within(matrix: Matrix, candidate: LowRank, metric: Metric, radius: float) -> bool:
    """Whether the distance is surely at most the radius, whatever the rounding.

    Floating point decides with a bound on its error; if that leaves the question open and the
    matrix is small, rational arithmetic decides.
    """
    residual = matrix - candidate.matrix
    terms = abs(matrix) + abs(candidate.left) @ abs(candidate.right)
    blur = (candidate.inner_size + 4) * _UNIT_ROUNDOFF * terms
    distance = metric.distance(residual)
    margin = metric.distance(blur) + rounding(residual) + matrix.size * _UNIT_ROUNDOFF * distance
    if distance + 2 * margin <= radius:
        return True
    is_small = matrix.size * (candidate.inner_size + 1) <= _MOST_EXACT_PRODUCTS
    if distance - 2 * margin > radius or not is_small:
        return False
    product = _exact(candidate.left) @ _exact(candidate.right) if candidate.inner_size else 0
    return metric.is_proved_within(_exact(matrix) - product, Fraction(radius))


def least_truncation(
    matrix: Matrix, spectrum: Spectrum, metric: Metric, radius: float, *, lower: int
) -> LowRank:
    """The least truncation of the singular value decomposition within the radius."""
    left, values, right = spectrum
    errors = metric.truncation_errors(matrix, left, values, right)
    hopeful = numpy.flatnonzero(errors <= radius * (1 + 1e-9) + 2 * rounding(matrix))
    sizes = [int(size) for size in hopeful if lower <= size < len(values)]
    best = full_rank_witness(matrix)
    first, last = 0, len(sizes)
    middle = 0  # the first is nearly always right; otherwise halve
    while first < last:
        size = sizes[middle]
        candidate = LowRank(left[:, :size] * values[:size], right[:size], "truncation")
        if is_within(matrix, candidate, metric, radius):
            best, last = candidate, middle
        else:
            first = middle + 1
        middle = (first + last) // 2
    return best


def weighted_svd(matrix: Matrix, metric: Metric) -> Spectrum:
    """Factors with singular values as the metric weighs them; their product is the matrix."""
    rows, columns = metric.root_weights(matrix.shape)
    left, values, right = numpy.linalg.svd(rows[:, None] * matrix * columns, full_matrices=False)
    return left / rows[:, None], values, right / columns


def improve(
    matrix: Matrix, spectrum: Spectrum, metric: Metric, radius: float, best: LowRank, *, lower: int
) -> LowRank:
    """Look for smaller ranks than that of `best` by alternating projections, halving.

    Matrices of more than 2^18 entries are left alone: `best` is then the answer.
    """
    least = middle = max(1, lower)
    if matrix.size > _MOST_IMPROVED_ENTRIES or least >= best.inner_size:
        return best
    centre = float(matrix.max() + matrix.min()) / 2
    spectra = [(0.0, spectrum), (centre, weighted_svd(matrix - centre, metric))]
    while least < best.inner_size:
        starts = [_shifted_truncation(shift, svd, middle) for shift, svd in spectra]
        candidates = (_alternate_projections(matrix, start, metric, radius) for start in starts)
        better = next((candidate for candidate in candidates if candidate is not None), None)
        if better is None:
            least = middle + 1
        else:
            best = better
        middle = (least + best.inner_size) // 2
    return best


def _shifted_truncation(shift: float, spectrum: Spectrum, size: int) -> LowRank:
    """A constant, and as many singular values of the rest as the size allows."""
    left, values, right = spectrum
    kept = size - 1 if shift else size
    columns, rows = left[:, :kept] * values[:kept], right[:kept]
    if shift:
        columns = numpy.column_stack([numpy.full(len(left), shift), columns])
        rows = numpy.vstack([numpy.ones(right.shape[1]), rows])
    return LowRank(columns, rows, "constant and truncation" if shift else "truncation")


def _alternate_projections(
    matrix: Matrix, start: LowRank, metric: Metric, radius: float
) -> LowRank | None:
    """Project on the ball and on the matrices of this rank in turns, until inside."""
    current = start
    for _ in range(_ROUNDS):
        residual = matrix - current.matrix
        if metric.distance(residual) <= radius and is_within(matrix, current, metric, radius):
            return current
        inside = metric.project(residual, _AIM * radius)
        if inside is None:
            return None
        target = matrix - inside
        basis = numpy.linalg.qr(target @ current.right.T)[0]
        current = LowRank(basis, basis.T @ target, "alternating projections")
    return None


def _exact(matrix: Matrix) -> Fractions:
    entries = [Fraction(entry) for entry in matrix.ravel().tolist()]
    return numpy.array(entries, dtype=object).reshape(matrix.shape)


# --- The least rank of a matrix within a radius of a given one, as an interval that can be trusted


@dataclass(frozen=True, eq=False)
class EpsilonRank:
    """The least rank within `epsilon` lies between `lower` and `upper`, both included.

    Args:
        lower: no matrix of smaller rank is within the radius.
        upper: the rank of `witness`, which is.
        epsilon: the radius; the ball is closed.
        metric: the distance.
        singular_values: of the matrix as the metric weighs it, descending.
        witness: a matrix of this rank, whose distance was checked with its rounding.
    """

    lower: int
    upper: int
    epsilon: float
    metric: Metric
    singular_values: NDArray[numpy.float64]
    witness: LowRank

    @property
    def is_exact(self) -> bool:
        """Whether the two bounds meet."""
        return self.lower == self.upper

    def __str__(self) -> str:
        number = str(self.lower) if self.is_exact else f"between {self.lower} and {self.upper}"
        return f"epsilon rank {number} ({self.metric.name} at most {self.epsilon:g})"

    def to_dict(self) -> dict[str, object]:
        """Plain data for JSON."""
        return {
            "lower": self.lower,
            "upper": self.upper,
            "epsilon": self.epsilon,
            "metric": self.metric.name,
            "found_by": self.witness.found_by,
        }


def epsilon_rank(
    matrix: NDArray[numpy.generic], epsilon: SupportsFloat, *, metric: Metric
) -> EpsilonRank:
    r"""Bound the least rank of a matrix within `epsilon` of a given one.

    .. math:: \min\{\operatorname{rank} Z : D(S, Z) \le \varepsilon\}

    The bounds meet for `Frobenius`, `MeanSquare` and `Spectral`, unless rounding cannot tell on
    which side of a singular value the radius lies. For `Supremum` and `MeanAbsolute` the lower
    bound compares norms on blocks, and the upper one is the least rank that truncation or, up to
    2^18 entries, alternating projections reached.

    The matrix is taken as it is: about a function it was sampled from, only a lower bound in
    `Supremum` says anything, or a mean over the sample itself. For means over other measures see
    `polynomial_kernel` and `quadrature_kernel`.

    Args:
        matrix: (rows, columns) of real numbers, taken as float64.
        epsilon: the radius, at least 0.
        metric: the distance, such as `Frobenius()`.

    Example:
        >>> from rankscope.rank.epsilon import Frobenius, Supremum
        >>> print(epsilon_rank(numpy.eye(4), 1.5, metric=Frobenius()))
        epsilon rank 2 (Frobenius distance at most 1.5)
        >>> print(epsilon_rank(numpy.eye(4), 0.5, metric=Supremum()))
        epsilon rank 1 (largest absolute difference at most 0.5)

    Raises:
        MatrixError: if the array is no matrix of finite real numbers with an entry.
        MetricError: if epsilon is negative or not finite, or weights do not fit.

    Reference:
        Eckart & Young (1936) and Mirsky (1960) for the first three metrics.
    """
    radius = require_radius(epsilon, who="epsilon_rank")
    _require_real_matrix(matrix)
    exact = matrix.astype(numpy.float64)
    # A power of 2 changes no digit, and keeps squares from overflowing.
    scale = math.ldexp(1.0, math.frexp(max(radius, float(abs(exact).max())))[1] - 1)
    scaled, small = exact / scale, radius / scale
    lower = metric.lower_rank(scaled, small)
    spectrum = weighted_svd(scaled, metric)
    best = least_truncation(scaled, spectrum, metric, small, lower=lower)
    best = improve(scaled, spectrum, metric, small, best, lower=lower)
    return EpsilonRank(
        lower=lower,
        upper=best.inner_size,
        epsilon=radius,
        metric=metric,
        singular_values=spectrum[1] * scale,
        witness=LowRank(best.left * scale, best.right, best.found_by),
    )


def require_radius(epsilon: SupportsFloat, *, who: str) -> float:
    """The radius as a number, or a refusal."""
    radius = float(epsilon)
    if not 0 <= radius < math.inf:
        raise MetricError(
            f"{who}: epsilon must be a finite number that is at least 0, got {radius}. "
            f"For no error at all use numeric_rank, or an exact rank."
        )
    return radius


def _require_real_matrix(matrix: NDArray[numpy.generic]) -> None:
    if matrix.ndim != 2 or matrix.size == 0:
        raise MatrixError(
            f"epsilon_rank needs a matrix with rows and columns, got shape {matrix.shape}. "
            f"Matricize arrays first."
        )
    if matrix.dtype.kind not in "fiu":
        raise MatrixError(f"epsilon_rank needs real numbers, got {matrix.dtype}.")
    num_bad = int(matrix.size - numpy.isfinite(matrix).sum())
    if num_bad:
        raise MatrixError(f"epsilon_rank: {num_bad} of {matrix.size} entries are not finite.")
