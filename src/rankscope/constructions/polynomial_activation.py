"""The other half of universal approximation: a polynomial activation cannot."""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from math import comb

import numpy
import torch
from numpy.polynomial import Chebyshev, Polynomial
from torch import nn

from rankscope.constructions.dense import Reals, require_finite
from rankscope.errors import ConstructionError

LARGEST_DEGREE = 60
GRID = 4001
MOST_EXCHANGES = 60


@dataclass(frozen=True, eq=False)
class PolynomialBarrier:
    """How well networks with a polynomial activation of some degree can do, whatever their width.

    Args:
        degree: of the polynomials that they compute.
        points: degree + 2 points of the interval that prove the lower bound.
        lower: no polynomial of the degree is nearer to the function than this, in the supremum.
        measured: the error of `polynomial` on a fine grid.
        polynomial: one that is nearly best.
    """

    degree: int
    points: Reals
    lower: float
    measured: float
    polynomial: Polynomial

    def __str__(self) -> str:
        return (
            f"degree {self.degree}: every width stays at least {self.lower:.6g} away; "
            f"{self.measured:.6g} is reached"
        )


def polynomial_barrier(
    function: Callable[[Reals], Reals], low: float, high: float, *, degree: int
) -> PolynomialBarrier:
    r"""Bound the best error of polynomial activations on a function of one variable from below.

    A network with one hidden layer and an activation of degree N computes a polynomial q of degree
    at most N (N^L with L layers). For x_0 < … < x_{N+1} and
    :math:`\lambda_i = \prod_{j \ne i} (x_i - x_j)^{-1}` the divided difference of q vanishes, so

    .. math:: \max_i |g(x_i) - q(x_i)| \ge \Bigl|\sum_i \lambda_i g(x_i)\Bigr|
              \Big/ \sum_i |\lambda_i| .

    The points are chosen by Remez' exchange; the bound is computed from them in fractions, and
    holds for the float64 values that `function` gives.

    Example:
        >>> found = polynomial_barrier(numpy.abs, -1.0, 1.0, degree=2)
        >>> round(found.lower, 6), round(found.measured, 6)  # x² + 1/8
        (0.125, 0.125)

    Raises:
        ConstructionError: if the interval or the degree does not fit, or values are not finite.

    Reference:
        de la Vallée Poussin (1910); Diehl (2023), Theorem 1.5.
    """
    who = "polynomial_barrier"
    require_finite(who, low=low, high=high)
    if not low < high:
        raise ConstructionError(f"{who}: the interval must go upwards, got {low} to {high}.")
    if not 0 <= degree <= LARGEST_DEGREE:
        raise ConstructionError(f"{who}: degree must be in 0..{LARGEST_DEGREE}, got {degree}.")
    # Dense at the ends, where extrema of polynomials crowd.
    grid = (low + high) / 2 - (high - low) / 2 * numpy.cos(numpy.linspace(0, numpy.pi, GRID))
    values = numpy.asarray(function(grid), dtype=float)
    require_finite(who, values=values)
    # Not symmetric: at symmetric points even functions have no alternating error to level.
    chosen = numpy.round(numpy.linspace(0, 0.9 * GRID, degree + 2)).astype(int)
    best: tuple[float, numpy.ndarray, Chebyshev] | None = None
    for _ in range(MOST_EXCHANGES):
        fit = _levelled(grid[chosen], values[chosen], degree, (low, high))
        errors = values - fit(grid)
        measured = float(numpy.abs(errors).max())
        if best is None or measured < best[0]:
            best = measured, chosen, fit
        following = _exchange(errors, degree + 2)
        if following is None or (following == chosen).all():
            break
        chosen = following
    assert best is not None
    points = grid[best[1]]
    lower = _divided_difference(points, values[best[1]])
    return PolynomialBarrier(degree, points, lower, best[0], best[2].convert(kind=Polynomial))


def _levelled(points: Reals, values: Reals, degree: int, ends: tuple[float, float]) -> Chebyshev:
    """The polynomial whose errors at the points are equal with alternating signs."""
    scaled = (2 * points - ends[0] - ends[1]) / (ends[1] - ends[0])
    basis = numpy.polynomial.chebyshev.chebvander(scaled, degree)
    signs = (-1.0) ** numpy.arange(degree + 2)
    solution = numpy.linalg.solve(numpy.column_stack([basis, signs]), values)
    return Chebyshev(solution[:-1], domain=list(ends))


def _exchange(errors: Reals, count: int) -> "numpy.ndarray | None":
    """Largest errors of alternating signs; None if there are too few."""
    signs = numpy.sign(errors)
    starts = numpy.flatnonzero(numpy.concatenate([[True], signs[1:] != signs[:-1]]))
    runs = numpy.split(numpy.arange(len(errors)), starts[1:])
    peaks = [run[numpy.abs(errors[run]).argmax()] for run in runs if signs[run[0]] != 0]
    if len(peaks) < count:
        return None
    while len(peaks) > count:
        # Only an end may go without breaking the alternation.
        first, last = abs(errors[peaks[0]]), abs(errors[peaks[-1]])
        peaks.pop(0 if first < last else -1)
    return numpy.array(peaks)


def _divided_difference(points: Reals, values: Reals) -> float:
    exact = [Fraction(point) for point in points.tolist()]
    weights: list[Fraction] = []
    for place, point in enumerate(exact):
        product = Fraction(1)
        for other in exact[:place] + exact[place + 1 :]:
            product *= point - other
        weights.append(1 / product)
    terms = [w * Fraction(v) for w, v in zip(weights, values.tolist(), strict=True)]
    found = abs(sum(terms, Fraction(0))) / sum(map(abs, weights), Fraction(0))
    return max(0.0, float(numpy.nextafter(float(found), -numpy.inf)))


class Power(nn.Module):
    """The activation t -> t^exponent."""

    def __init__(self, exponent: int) -> None:
        super().__init__()
        self.exponent = exponent

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Raise each entry to the power."""
        return inputs**self.exponent


def polynomial_network(polynomial: Polynomial) -> nn.Sequential:
    """A network with activation t^N and N + 1 hidden units that equals a polynomial of degree N.

    The powers (x + b_i)^N with different b_i are a basis of the polynomials of degree N, so that
    nearly best errors are reached by networks, not by polynomials only.

    Raises:
        ConstructionError: if the polynomial is constant.
    """
    plain = polynomial.convert(domain=[-1, 1], window=[-1, 1]).coef
    degree = len(plain) - 1
    if degree < 1:
        raise ConstructionError("polynomial_network needs a degree of at least 1, got 0.")
    shifts = numpy.cos(numpy.pi * (numpy.arange(degree + 1) + 0.5) / (degree + 1))
    columns = numpy.stack([comb(degree, j) * shifts ** (degree - j) for j in range(degree + 1)])
    heights = numpy.linalg.solve(columns, numpy.asarray(plain, dtype=float))
    first = nn.Linear(1, degree + 1, dtype=torch.float64)
    last = nn.Linear(degree + 1, 1, bias=False, dtype=torch.float64)
    with torch.no_grad():
        first.weight.fill_(1.0)
        first.bias.copy_(torch.from_numpy(shifts))
        last.weight.copy_(torch.from_numpy(heights[None, :]))
    return nn.Sequential(first, Power(degree), last)
