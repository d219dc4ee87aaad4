"""Matrices of small rank within a radius of a given one: search, and proof that they are."""

from dataclasses import dataclass
from fractions import Fraction

import numpy

from rankscope.separation.nearby.metrics import Fractions, Matrix, Metric, rounding

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


def itself(matrix: Matrix) -> LowRank:
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
    best = itself(matrix)
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


def improved(
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
        found = (_alternated(matrix, start, metric, radius) for start in starts)
        better = next((candidate for candidate in found if candidate is not None), None)
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


def _alternated(matrix: Matrix, start: LowRank, metric: Metric, radius: float) -> LowRank | None:
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
