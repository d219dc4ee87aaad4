"""Whether two quantities go together once others are accounted for."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy
from numpy.typing import NDArray
from scipy.stats import norm, rankdata

from rankscope.errors import ExperimentError

Column = Sequence[float]


@dataclass(frozen=True)
class Correlation:
    """A correlation with a 95 % interval, which takes the points for independent draws.

    Args:
        value: in -1..1.
        low: end of the interval.
        high: other end.
        count: how many points there are.
    """

    value: float
    low: float
    high: float
    count: int

    def __str__(self) -> str:
        return f"{self.value:+.2f} ({self.low:+.2f} to {self.high:+.2f}, {self.count} points)"


def partial_correlation(first: Column, second: Column, controls: Sequence[Column]) -> Correlation:
    r"""Spearman's correlation of two columns, with what the controls explain taken out of both.

    Every column is replaced by its ranks; the ranks of the controls are fitted to those of the two
    by least squares, and what is left of both is correlated. The interval is Fisher's,

    .. math:: \tanh\bigl(\operatorname{artanh} r \pm 1.96 / \sqrt{n - k - 3}\bigr)

    with n points and k controls.

    Example:
        >>> hidden = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]
        >>> noise = [0.3, -0.3, 0.3, -0.3, 0.3, -0.3, 0.3, -0.3]
        >>> both = [a + b for a, b in zip(hidden, noise)]
        >>> partial_correlation(both, hidden, [])
        Correlation(value=1.0, low=1.0, high=1.0, count=8)

    Raises:
        ExperimentError: if columns have different lengths, or there are too few points.
    """
    lengths = {len(first), len(second), *map(len, controls)}
    if len(lengths) > 1:
        raise ExperimentError(
            f"partial_correlation: columns must be of one length, got {sorted(lengths)}."
        )
    freedom = len(first) - len(controls) - 3
    if freedom < 1:
        raise ExperimentError(
            f"partial_correlation: {len(controls)} controls need at least {len(controls) + 4} "
            f"points, got {len(first)}."
        )
    basis = numpy.stack([numpy.ones(len(first)), *map(rankdata, controls)], axis=1)
    left, right = (_without(basis, rankdata(column)) for column in (first, second))
    scale = math.sqrt(float(left @ left) * float(right @ right))
    # Nothing is left of a column that the controls explain: it goes with nothing.
    value = float(left @ right) / scale if scale > 1e-9 else 0.0
    value = max(-1.0, min(1.0, round(value, 12)))
    if abs(value) == 1.0:
        return Correlation(value, value, value, len(first))
    half = float(norm.ppf(0.975)) / math.sqrt(freedom)
    centre = math.atanh(value)
    return Correlation(value, math.tanh(centre - half), math.tanh(centre + half), len(first))


def _without(
    basis: NDArray[numpy.float64], column: NDArray[numpy.float64]
) -> NDArray[numpy.float64]:
    fitted, *_ = numpy.linalg.lstsq(basis, column, rcond=None)
    left: NDArray[numpy.float64] = column - basis @ fitted
    return left
