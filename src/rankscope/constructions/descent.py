"""Gradient descent on convex smooth functions, beside the bound of its theorem."""

from dataclasses import dataclass

import numpy

from rankscope.constructions.convex_problems import ConvexProblem
from rankscope.constructions.dense import Reals
from rankscope.constructions.optimizers import GradientDescent, follow
from rankscope.errors import ConstructionError
from rankscope.theorem import Theorem

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
