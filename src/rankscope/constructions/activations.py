"""The activation functions of the lecture, and what is true of each."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy
from scipy import special

from rankscope.constructions.dense import Reals

# From here on all five are constant or affine to within float64, on both sides.
REACH = 40.0
GELU_STEEPEST = math.sqrt(2)


@dataclass(frozen=True)
class GeluMinimum:
    """Where GELU is least: between `low` and `high`; `value` is its value there."""

    low: float
    high: float
    value: float


def gelu_minimum() -> GeluMinimum:
    """Bracket the only zero of GELU's slope, by bisection.

    With the normal density φ and its integral Φ the slope is Φ(x) + x φ(x), and its own slope is
    (2 - x²) φ(x): it falls from 0 to its least value at -√2, rises to its greatest at √2, and falls
    to 1. Hence there is one zero, between -√2 and 0.

    Example:
        >>> least = gelu_minimum()
        >>> -0.7518 < least.low < least.high < -0.7517, least.high - least.low < 1e-11
        (True, True)
    """
    low, high = -GELU_STEEPEST, 0.0
    # Rounding of the slope is near 1e-16: at this width the sign at both ends is still certain.
    while high - low > 1e-12:
        middle = (low + high) / 2
        low, high = (middle, high) if _gelu_slope(numpy.array(middle)) < 0 else (low, middle)
    return GeluMinimum(low, high, float(_gelu(numpy.array((low + high) / 2))))


@dataclass(frozen=True)
class Activation:
    """A function R -> R, its slope, and what is true of it.

    Args:
        name: as PyTorch's class.
        formula: as in the lecture.
        values: the function, entry by entry.
        slopes: its derivative; at the kink of ReLU the left one, as in PyTorch.
        infimum: greatest lower bound of its values.
        limits: at minus and plus infinity.
        lipschitz_constant: the least, which is the greatest size of the slope.
        is_monotone: whether it never falls.
        is_homogeneous: whether f(αx) = α f(x) for all α >= 0.
        is_odd: whether f(-x) = -f(x).
    """

    name: str
    formula: str
    values: Callable[[Reals], Reals]
    slopes: Callable[[Reals], Reals]
    infimum: float
    limits: tuple[float, float]
    lipschitz_constant: float
    is_monotone: bool = True
    is_homogeneous: bool = False
    is_odd: bool = False

    @property
    def supremum(self) -> float:
        """Least upper bound of its values: for all five, the limit on the right."""
        return self.limits[1]

    @property
    def is_bounded(self) -> bool:
        """Whether all values lie in an interval: the function saturates on both sides."""
        return math.isfinite(self.infimum) and math.isfinite(self.supremum)


def _relu(points: Reals) -> Reals:
    return numpy.maximum(points, 0.0)


def _relu_slope(points: Reals) -> Reals:
    return numpy.asarray(points > 0, dtype=float)


def _tanh_slope(points: Reals) -> Reals:
    # Not 1 - tanh², of which nothing is left once tanh rounds to 1.
    return numpy.asarray(4 * special.expit(2 * points) * special.expit(-2 * points))


def _sigmoid(points: Reals) -> Reals:
    return numpy.asarray(special.expit(points))


def _sigmoid_slope(points: Reals) -> Reals:
    return numpy.asarray(special.expit(points) * special.expit(-points))


def _gelu(points: Reals) -> Reals:
    return numpy.asarray(points * special.ndtr(points))


def _gelu_slope(points: Reals) -> Reals:
    density = numpy.exp(-(points**2) / 2) / math.sqrt(2 * math.pi)
    return numpy.asarray(special.ndtr(points) + points * density)


def _elu(points: Reals) -> Reals:
    return numpy.where(points > 0, points, numpy.expm1(numpy.minimum(points, 0.0)))


def _elu_slope(points: Reals) -> Reals:
    return numpy.asarray(numpy.exp(numpy.minimum(points, 0.0)))


RELU = Activation(
    "ReLU", "max{0, x}", _relu, _relu_slope, 0.0, (0.0, math.inf), 1.0, is_homogeneous=True
)
TANH = Activation("Tanh", "tanh x", numpy.tanh, _tanh_slope, -1.0, (-1.0, 1.0), 1.0, is_odd=True)
SIGMOID = Activation(
    "Sigmoid", "1 / (1 + exp(-x))", _sigmoid, _sigmoid_slope, 0.0, (0.0, 1.0), 0.25
)
GELU = Activation(
    "GELU",
    "x (1 + erf(x / √2)) / 2",
    _gelu,
    _gelu_slope,
    gelu_minimum().value,
    (0.0, math.inf),
    float(_gelu_slope(numpy.array(GELU_STEEPEST))),
    is_monotone=False,
)
ELU = Activation(
    "ELU", "x for x > 0, else exp(x) - 1", _elu, _elu_slope, -1.0, (-1.0, math.inf), 1.0
)
ACTIVATIONS = (RELU, TANH, SIGMOID, GELU, ELU)


@dataclass(frozen=True)
class MeasuredActivation:
    """What an activation does on a grid, beside what is true of it.

    Args:
        name: of the activation.
        least_value: on the grid; the infimum is no greater.
        least_at: where.
        steepest: greatest size of the slope on the grid; the Lipschitz constant is no less.
        homogeneity_error: greatest |f(2x) - 2 f(x)| relative to 1 + |2 f(x)|.
        oddness_error: greatest |f(-x) + f(x)| relative to 1 + |f(x)|.
    """

    name: str
    least_value: float
    least_at: float
    steepest: float
    homogeneity_error: float
    oddness_error: float


def measure_activation(activation: Activation, *, num_points: int = 8001) -> MeasuredActivation:
    """Measure an activation on an even grid that holds zero.

    Example:
        >>> measure_activation(RELU).homogeneity_error, measure_activation(TANH).oddness_error
        (0.0, 0.0)
    """
    points = numpy.linspace(-REACH, REACH, num_points | 1)
    values = activation.values(points)
    doubled, mirrored = activation.values(2 * points), activation.values(-points)
    least = int(values.argmin())
    return MeasuredActivation(
        activation.name,
        float(values[least]),
        float(points[least]),
        float(numpy.abs(activation.slopes(points)).max()),
        float((numpy.abs(doubled - 2 * values) / (1 + numpy.abs(2 * values))).max()),
        float((numpy.abs(mirrored + values) / (1 + numpy.abs(values))).max()),
    )
