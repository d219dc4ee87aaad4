"""The least rank of a matrix within a radius of a given one, as an interval that can be trusted."""

import math
from dataclasses import dataclass
from typing import SupportsFloat

import numpy
from numpy.typing import NDArray

from rankscope.errors import MatrixError, MetricError
from rankscope.separation.nearby.low_rank import LowRank, improved, least_truncation, weighted_svd
from rankscope.separation.nearby.metrics import Metric


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
        >>> from rankscope.separation.nearby.metrics import Frobenius, Supremum
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
    best = improved(scaled, spectrum, metric, small, best, lower=lower)
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
