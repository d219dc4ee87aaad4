"""Gradient descent, momentum in two parametrizations, and Adam, from their formulas."""

import itertools
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

import numpy

from rankscope.constructions.convex_problems import Gradient
from rankscope.constructions.dense import Reals
from rankscope.errors import ConstructionError


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
