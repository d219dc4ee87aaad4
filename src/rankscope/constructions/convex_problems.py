"""Convex problems with a known minimum, on which theorems of gradient descent can be seen."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy
from scipy import special

from rankscope.constructions.dense import Reals, require_finite
from rankscope.errors import ConstructionError

MAX_NEWTON_STEPS = 200
Gradient = Callable[[Reals], Reals]


@dataclass(frozen=True, eq=False)
class ConvexProblem:
    """A convex function R^p -> R whose gradient is Lipschitz, and where it is least.

    Args:
        value: the cost C.
        gradient: of C.
        smoothness: the Lipschitz constant L of the gradient, the least or an upper bound.
        minimizer: a point where C is least.
    """

    value: Callable[[Reals], float]
    gradient: Gradient
    smoothness: float
    minimizer: Reals

    @property
    def minimum(self) -> float:
        """The least cost."""
        return self.value(self.minimizer)


def least_squares(features: Reals, targets: Reals) -> ConvexProblem:
    r"""Mean squared error of a linear model.

    .. math:: C(\theta) = \|X \theta - y\|^2 / (2 n), \qquad L = \|X\|_2^2 / n

    Raises:
        ConstructionError: if the shapes do not fit, a number is not finite, or X is zero.
    """
    _require("least_squares", features, targets)
    count = len(targets)

    def value(theta: Reals) -> float:
        return float(((features @ theta - targets) ** 2).sum()) / (2 * count)

    def gradient(theta: Reals) -> Reals:
        return numpy.asarray(features.T @ (features @ theta - targets) / count)

    minimizer = numpy.asarray(numpy.linalg.lstsq(features, targets)[0], dtype=float)
    smoothness = float(numpy.linalg.norm(features, 2)) ** 2 / count
    return ConvexProblem(value, gradient, smoothness, minimizer)


def logistic_regression(features: Reals, labels: Reals, *, ridge: float) -> ConvexProblem:
    r"""Mean cross-entropy of a logistic model, with a penalty that makes the minimum exist.

    .. math:: C(\theta) = \frac1n \sum_i \log\bigl(1 + e^{-s_i \langle x_i, \theta\rangle}\bigr)
              + \frac\rho2 \|\theta\|^2, \qquad L \le \|X\|_2^2 / (4 n) + \rho

    Args:
        features: X, a row for each example.
        labels: 0 or 1, so that s = -1 or 1.
        ridge: ρ. Without it classes that a plane separates have no minimum.

    Raises:
        ConstructionError: if the shapes do not fit, a number is not finite, X is zero, a label is
            another number, the ridge is not positive, or Newton's method does not find the minimum.
    """
    _require("logistic_regression", features, labels)
    if not numpy.isin(labels, (0, 1)).all() or not 0 < ridge < float("inf"):
        raise ConstructionError(
            "logistic_regression needs labels 0 and 1 and a positive ridge, got labels "
            f"{numpy.unique(labels).tolist()[:5]} and ridge {ridge}."
        )
    count = len(labels)
    signed = features * (2 * labels - 1)[:, None]

    def value(theta: Reals) -> float:
        losses = numpy.logaddexp(0.0, -(signed @ theta))
        return float(losses.mean() + ridge / 2 * (theta @ theta))

    def gradient(theta: Reals) -> Reals:
        return numpy.asarray(ridge * theta - signed.T @ special.expit(-(signed @ theta)) / count)

    def curvature(theta: Reals) -> Reals:
        margins = signed @ theta
        weights = special.expit(margins) * special.expit(-margins) / count
        return numpy.asarray((signed.T * weights) @ signed + ridge * numpy.eye(len(theta)))

    smoothness = float(numpy.linalg.norm(features, 2)) ** 2 / (4 * count) + ridge
    minimizer = _newton(value, gradient, curvature, numpy.zeros(features.shape[1]))
    return ConvexProblem(value, gradient, smoothness, minimizer)


def _newton(
    value: Callable[[Reals], float], gradient: Gradient, curvature: Gradient, theta: Reals
) -> Reals:
    """Newton's method with steps halved until they pay; at the end one whole step."""
    for _ in range(MAX_NEWTON_STEPS):
        slope = gradient(theta)
        step = numpy.linalg.solve(curvature(theta), -slope)
        decrement = float(-slope @ step)
        # What is left to win is about half of this, below the rounding of the cost.
        if decrement <= 1e-16 * (1 + abs(value(theta))):
            return numpy.asarray(theta + step)
        size = 1.0
        while value(theta + size * step) > value(theta) - size * decrement / 4:
            size /= 2
        theta = theta + size * step
    raise ConstructionError(
        f"logistic_regression: after {MAX_NEWTON_STEPS} steps of Newton's method the squared "
        f"decrement is still {decrement:.3g}; use a larger ridge or scale the features."
    )


def _require(who: str, features: Reals, targets: Reals) -> None:
    if features.ndim != 2 or targets.shape != features.shape[:1] or not features.size:
        raise ConstructionError(
            f"{who} needs a matrix with a row for each target, got shapes {features.shape} and "
            f"{targets.shape}."
        )
    require_finite(who, features=features, targets=targets)
    if not features.any():
        raise ConstructionError(f"{who}: all {features.size} features are 0, so is the gradient.")
