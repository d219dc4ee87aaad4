"""Distances between distributions, convex problems, and rules that descend on them."""

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy
from scipy import special

from rankscope.errors import ConstructionError
from rankscope.lab.constructions.dense import Reals, require_finite
from rankscope.theorem import Theorem

# Distances between discrete distributions, as losses for classification use them.


# float64 rounding of many terms passes; float32 probabilities must be normalized again first.
SUM_TOLERANCE = 1e-9
Distribution = Reals | Sequence[float]


@dataclass(frozen=True)
class TotalVariation:
    """The greatest difference of probabilities, and an event that has it."""

    value: float
    event: tuple[int, ...]


def _lp(differences: Reals, power: float) -> float:
    sizes = numpy.abs(differences)
    largest = float(sizes.max())
    if largest == 0 or math.isinf(power):
        return largest
    # Scaled, so that no power underflows.
    return largest * math.pow(float(((sizes / largest) ** power).sum()), 1 / power)


def total_variation(first: Distribution, second: Distribution) -> TotalVariation:
    r"""The metric of total variation, and the event where the two differ most.

    .. math:: \sup_A |P(A) - Q(A)| = \tfrac12 d_{L^1}(P, Q), \qquad A = \{i : P(i) \ge Q(i)\}

    Example:
        >>> total_variation([0.5, 0.25, 0.25], [0.25, 0.25, 0.5])
        TotalVariation(value=0.25, event=(0, 1))

    Raises:
        ConstructionError: if an argument is no distribution, or the sizes differ.
    """
    left, right = _pair("total_variation", first, second)
    event = numpy.flatnonzero(left >= right)
    return TotalVariation(float(numpy.abs(left - right).sum()) / 2, tuple(event.tolist()))


def kullback_leibler(first: Distribution, second: Distribution) -> float:
    r"""The Kullback-Leibler divergence, in nats (divide by log 2 for bits); not a metric.

    .. math:: D_{KL}(P \| Q) = \sum_i p_i \log(p_i / q_i), \qquad 0 \log(0 / q) = 0

    Infinite exactly if some p_i > 0 where q_i = 0.

    Example:
        >>> kullback_leibler([1.0, 0.0], [0.5, 0.5]) == math.log(2)
        True
        >>> kullback_leibler([0.5, 0.5], [1.0, 0.0])
        inf

    Raises:
        ConstructionError: if an argument is no distribution, or the sizes differ.
    """
    left, right = _pair("kullback_leibler", first, second)
    # The sum is never negative by Jensen's inequality; its rounding may be.
    return max(0.0, float(special.rel_entr(left, right).sum()))


def cross_entropy(first: Distribution, second: Distribution) -> float:
    r"""The cross-entropy, in nats; not a metric.

    .. math:: CE(P, Q) = -\sum_i p_i \log q_i = H(P) + D_{KL}(P \| Q)

    Example:
        >>> cross_entropy([0.0, 1.0], [0.5, 0.5]) == math.log(2)
        True

    Raises:
        ConstructionError: if an argument is no distribution, or the sizes differ.
    """
    left, right = _pair("cross_entropy", first, second)
    used = left > 0
    if (right[used] == 0).any():
        return math.inf
    return float(-(left[used] * numpy.log(right[used])).sum()) + 0.0


def entropy(distribution: Distribution) -> float:
    """The entropy H(P) = CE(P, P), in nats.

    Example:
        >>> entropy([1.0, 0.0])
        0.0

    Raises:
        ConstructionError: if the argument is no distribution.
    """
    return float(special.entr(_require_distribution("entropy", distribution)).sum())


@dataclass(frozen=True)
class DistributionDistances:
    """All of them for one pair, P first; entropies and divergences in nats."""

    l1: float
    l2: float
    l_infinity: float
    total_variation: TotalVariation
    kullback_leibler: float
    kullback_leibler_reversed: float
    cross_entropy: float
    entropy: float

    @property
    def pinsker(self) -> float:
        """What the divergence is at least, both ways: twice the squared total variation."""
        return 2 * self.total_variation.value**2


def compare_distributions(first: Distribution, second: Distribution) -> DistributionDistances:
    """Every distance of this module between two distributions.

    Raises:
        ConstructionError: if an argument is no distribution, or the sizes differ.

    Reference:
        Diehl (2023), Section 1.4; Pinsker's inequality is not in the lecture.
    """
    left, right = _pair("compare_distributions", first, second)
    return DistributionDistances(
        _lp(left - right, 1.0),
        _lp(left - right, 2.0),
        _lp(left - right, math.inf),
        total_variation(left, right),
        kullback_leibler(left, right),
        kullback_leibler(right, left),
        cross_entropy(left, right),
        entropy(left),
    )


def _pair(who: str, first: Distribution, second: Distribution) -> tuple[Reals, Reals]:
    left, right = _require_distribution(who, first), _require_distribution(who, second)
    if len(left) != len(right):
        raise ConstructionError(
            f"{who} compares distributions on the same outcomes, got {len(left)} and {len(right)}."
        )
    return left, right


def _require_distribution(who: str, values: Distribution) -> Reals:
    result = numpy.asarray(values, dtype=float)
    if result.ndim != 1 or not len(result):
        raise ConstructionError(
            f"{who} needs a list of probabilities, got an array of shape {result.shape}."
        )
    # Written so that a nan is refused as well.
    bad = numpy.flatnonzero(~(result >= 0))
    if len(bad):
        raise ConstructionError(
            f"{who}: probabilities are at least 0, got {result[bad[0]]} at position {bad[0]}."
        )
    total = float(result.sum())
    if not abs(total - 1) <= SUM_TOLERANCE:
        raise ConstructionError(
            f"{who}: probabilities add up to 1, got {total!r}; divide by it first."
        )
    return result


# Convex problems with a known minimum, on which theorems of gradient descent can be seen.


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
    _require_problem("least_squares", features, targets)
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
    _require_problem("logistic_regression", features, labels)
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


def _require_problem(who: str, features: Reals, targets: Reals) -> None:
    if features.ndim != 2 or targets.shape != features.shape[:1] or not features.size:
        raise ConstructionError(
            f"{who} needs a matrix with a row for each target, got shapes {features.shape} and "
            f"{targets.shape}."
        )
    require_finite(who, features=features, targets=targets)
    if not features.any():
        raise ConstructionError(f"{who}: all {features.size} features are 0, so is the gradient.")


# Gradient descent, momentum in two parametrizations, and Adam, from their formulas.


class Rule(ABC):
    """A way to walk downhill by gradients alone."""

    @abstractmethod
    def points(self, gradient: Gradient, start: Reals) -> Iterator[Reals]:
        """The start, and then one point after the other without end."""


@dataclass(frozen=True)
class GradientDescent(Rule):
    r"""Plain gradient descent, as `torch.optim.SGD(lr=rate)`.

    .. math:: \theta_{t+1} = \theta_t - \eta \nabla C(\theta_t)

    Raises:
        ConstructionError: if the rate is not positive.
    """

    rate: float

    def __post_init__(self) -> None:
        _require_rate(self, self.rate)

    def points(self, gradient: Gradient, start: Reals) -> Iterator[Reals]:
        """The start, and then one point after the other without end."""
        theta = start
        while True:
            yield theta
            theta = theta - self.rate * gradient(theta)


@dataclass(frozen=True)
class HeavyBall(Rule):
    r"""Momentum, the velocity in units of θ; as `torch.optim.SGD(lr=rate, momentum=momentum)`.

    .. math:: v_{t+1} = m v_t - \gamma \nabla C(\theta_t), \qquad \theta_{t+1} = \theta_t + v_{t+1}

    The lecture prints θ_t + v_t, which walks by gradients of the step before. PyTorch's buffer is
    -v / γ.

    Raises:
        ConstructionError: if the rate is not positive or the momentum not in [0, 1).
    """

    rate: float
    momentum: float

    def __post_init__(self) -> None:
        _require_rate(self, self.rate)
        _require_shares(self, self.momentum)

    def points(self, gradient: Gradient, start: Reals) -> Iterator[Reals]:
        """The start, and then one point after the other without end."""
        theta, velocity = start, numpy.zeros_like(start)
        while True:
            yield theta
            velocity = self.momentum * velocity - self.rate * gradient(theta)
            theta = theta + velocity

    def averaged(self) -> "AveragedMomentum":
        """The same walk in the other parametrization: η = γ / (1 - m), β = m.

        Example:
            >>> HeavyBall(rate=0.25, momentum=0.5).averaged()
            AveragedMomentum(rate=0.5, decay=0.5)
        """
        return AveragedMomentum(rate=self.rate / (1 - self.momentum), decay=self.momentum)


@dataclass(frozen=True)
class AveragedMomentum(Rule):
    r"""Momentum, the velocity an average of gradients.

    .. math:: v_{t+1} = \beta v_t + (1 - \beta) \nabla C(\theta_t), \qquad
              \theta_{t+1} = \theta_t - \eta v_{t+1}

    PyTorch's `dampening=β` is not this: it leaves the first gradient undamped.

    Raises:
        ConstructionError: if the rate is not positive or the decay not in [0, 1).
    """

    rate: float
    decay: float

    def __post_init__(self) -> None:
        _require_rate(self, self.rate)
        _require_shares(self, self.decay)

    def points(self, gradient: Gradient, start: Reals) -> Iterator[Reals]:
        """The start, and then one point after the other without end."""
        theta, velocity = start, numpy.zeros_like(start)
        while True:
            yield theta
            velocity = self.decay * velocity + (1 - self.decay) * gradient(theta)
            theta = theta - self.rate * velocity


@dataclass(frozen=True)
class Adam(Rule):
    r"""Adam, as `torch.optim.Adam`; all operations entry by entry, t from 1, moments from zero.

    .. math:: v_t = \beta_1 v_{t-1} + (1 - \beta_1) g_t, \quad
              s_t = \beta_2 s_{t-1} + (1 - \beta_2) g_t^2, \quad
              \theta_{t+1} = \theta_t - \eta \,
              \frac{v_t / (1 - \beta_1^t)}{\sqrt{s_t / (1 - \beta_2^t)} + \epsilon}

    Raises:
        ConstructionError: if the rate or epsilon is not positive or a decay not in [0, 1).

    Reference:
        Kingma & Ba (2015), Algorithm 1, arXiv:1412.6980.
    """

    rate: float = 1e-3
    first_decay: float = 0.9
    second_decay: float = 0.999
    epsilon: float = 1e-8

    def __post_init__(self) -> None:
        _require_rate(self, self.rate, self.epsilon)
        _require_shares(self, self.first_decay, self.second_decay)

    def points(self, gradient: Gradient, start: Reals) -> Iterator[Reals]:
        """The start, and then one point after the other without end."""
        theta = start
        first, second = numpy.zeros_like(start), numpy.zeros_like(start)
        for step in itertools.count(1):
            yield theta
            slope = gradient(theta)
            first = self.first_decay * first + (1 - self.first_decay) * slope
            second = self.second_decay * second + (1 - self.second_decay) * slope**2
            mean = first / (1 - self.first_decay**step)
            square = second / (1 - self.second_decay**step)
            theta = theta - self.rate * mean / (numpy.sqrt(square) + self.epsilon)


def follow(rule: Rule, gradient: Gradient, start: Reals, *, num_steps: int) -> Reals:
    """The start and the points after each of `num_steps` steps, one in each row.

    Example:
        >>> follow(GradientDescent(0.5), lambda theta: theta, numpy.ones(1), num_steps=2).tolist()
        [[1.0], [0.5], [0.25]]

    Raises:
        ConstructionError: if the number of steps is negative, or a point is not finite.
    """
    if num_steps < 0:
        raise ConstructionError(f"follow needs at least 0 steps, got {num_steps}.")
    points = []
    # Divergence is told by our own error, not by a warning of the step before.
    with numpy.errstate(over="ignore", invalid="ignore"):
        for step, theta in enumerate(rule.points(gradient, start)):
            if not numpy.isfinite(theta).all():
                raise ConstructionError(
                    f"follow: point {step} of {num_steps} is not finite under {rule}; use a "
                    "smaller rate or fewer steps."
                )
            points.append(theta)
            if step == num_steps:
                break
    return numpy.stack(points)


def _require_rate(rule: Rule, *rates: float) -> None:
    if not all(0 < rate < float("inf") for rate in rates):
        raise ConstructionError(f"A rate and an epsilon are positive and finite, got {rule}.")


def _require_shares(rule: Rule, *shares: float) -> None:
    if not all(0 <= share < 1 for share in shares):
        raise ConstructionError(f"A momentum and a decay are in [0, 1), got {rule}.")


# Gradient descent on convex smooth functions, beside the bound of its theorem.


CONVERGENCE = Theorem(
    "Garrigos & Gower (2023)",
    "Theorem 3.4",
    "2301.11235",
    (
        "the cost is convex and its minimum is attained",
        "its gradient is Lipschitz with constant L",
        "the rate is at most 1/L",
    ),
)
# 1/L is itself rounded.
RATE_ROUNDING = 1e-12


@dataclass(frozen=True, eq=False)
class Descent:
    """A walk of gradient descent, step by step.

    Args:
        points: θ_0, θ_1, …, one in each row.
        gaps: C(θ_t) - min C.
        rate: η.
        smoothness: L.
        distance: from the start to the minimizer.
    """

    points: Reals
    gaps: Reals
    rate: float
    smoothness: float
    distance: float

    @property
    def bounds(self) -> Reals | None:
        r"""What the gaps are at most; infinite at t = 0, and None where η L > 1.

        .. math:: C(\theta_t) - \min C \le \|\theta_0 - \theta^*\|^2 / (2 \eta t)

        Reference:
            Garrigos & Gower (2023), Theorem 3.4, arXiv:2301.11235.
        """
        if self.rate * self.smoothness > 1 + RATE_ROUNDING:
            return None
        steps = numpy.arange(1, len(self.gaps))
        return numpy.concatenate([[numpy.inf], self.distance**2 / (2 * self.rate * steps)])


def gradient_descent(
    problem: ConvexProblem, start: Reals, *, rate: float, num_steps: int
) -> Descent:
    """Run gradient descent and keep what the theorem speaks of.

    On a quadratic a rate above 2/L diverges from every start that has a part along the steepest
    direction: each step multiplies that part by 1 - ηL < -1.

    Raises:
        ConstructionError: if the start has another size than the minimizer, the rate is not
            positive, the number of steps negative, or a point is not finite.
    """
    if start.shape != problem.minimizer.shape:
        raise ConstructionError(
            f"gradient_descent: the problem has {problem.minimizer.size} parameters, but the start "
            f"has shape {start.shape}."
        )
    points = follow(GradientDescent(rate), problem.gradient, start, num_steps=num_steps)
    gaps = numpy.array([problem.value(point) for point in points]) - problem.minimum
    distance = float(numpy.linalg.norm(start - problem.minimizer))
    return Descent(points, gaps, rate, problem.smoothness, distance)
