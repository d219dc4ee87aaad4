"""Topics: distances between distributions, and how to walk downhill."""

from collections.abc import Callable

import numpy
import torch

from rankscope.constructions.convex_problems import (
    ConvexProblem,
    least_squares,
    logistic_regression,
)
from rankscope.constructions.dense import Reals
from rankscope.constructions.descent import CONVERGENCE, gradient_descent
from rankscope.constructions.distances import compare_distributions
from rankscope.constructions.optimizers import (
    Adam,
    AveragedMomentum,
    GradientDescent,
    HeavyBall,
    follow,
)
from rankscope.constructions.pictures_descent import draw_descent, draw_ways
from rankscope.constructions.pictures_distances import draw_binary_distances
from rankscope.constructions.topic import Shown, Topic
from rankscope.experiments.topics.lecture import in_lecture, recalled

MakeOptimizer = Callable[[list[torch.Tensor]], torch.optim.Optimizer]


def _valley() -> ConvexProblem:
    """Ten times as steep in one direction as in the other."""
    return least_squares(numpy.diag([1.0, 10.0**0.5]), numpy.zeros(2))


def _torch_points(problem: ConvexProblem, start: Reals, make: MakeOptimizer, steps: int) -> Reals:
    """The way of a torch optimizer with the same gradients."""
    theta = torch.tensor(start, requires_grad=True)
    optimizer = make([theta])
    found = [start]
    for _ in range(steps):
        theta.grad = torch.from_numpy(problem.gradient(theta.detach().numpy().copy()))
        optimizer.step()
        found.append(theta.detach().numpy().copy())
    return numpy.stack(found)


def _distances() -> Shown:
    first, second = numpy.array([0.5, 0.3, 0.2]), numpy.array([0.25, 0.25, 0.5])
    found = compare_distributions(first, second)
    return Shown(
        {
            "P": first.tolist(),
            "Q": second.tolist(),
            "L1": found.l1,
            "L2": found.l2,
            "L∞": found.l_infinity,
            "total variation, half of L1": found.total_variation.value,
            "an event that has it": [place + 1 for place in found.total_variation.event],
            "KL(P ‖ Q)": found.kullback_leibler,
            "KL(Q ‖ P)": found.kullback_leibler_reversed,
            "both are at least (Pinsker)": found.pinsker,
            "entropy of P": found.entropy,
            "cross-entropy, entropy plus KL": found.cross_entropy,
        },
        pictures={"binary": draw_binary_distances},
    )


def _descent() -> Shown:
    draw = numpy.random.default_rng(0)
    features = draw.normal(size=(60, 4))
    problem = logistic_regression(
        features, (features @ numpy.ones(4) + draw.normal(size=60) > 0).astype(float), ridge=0.01
    )
    start = numpy.full(4, -2.0)
    runs = {
        f"η = {share:g}/L": gradient_descent(
            problem, start, rate=share / problem.smoothness, num_steps=200
        )
        for share in (1.0, 0.2)
    }
    valley = _valley()
    wild = gradient_descent(valley, numpy.ones(2), rate=2.1 / valley.smoothness, num_steps=50)
    fast = runs["η = 1/L"]
    assert fast.bounds is not None, "the rate is 1/L"
    return Shown(
        {
            "problem": "logistic regression, 60 points, 4 parameters",
            "gap after 10 steps at 1/L": float(fast.gaps[10]),
            "its bound": float(fast.bounds[10]),
            "gap after 40 steps at 1/L": float(fast.gaps[40]),
            "its bound, too": float(fast.bounds[40]),
            "the bound is never crossed": bool((fast.gaps[1:] <= fast.bounds[1:]).all()),
            "at 2.1/L a quadratic grows by a factor of": float(wild.gaps[-1] / wild.gaps[0]),
        },
        pictures={"bound": lambda path: draw_descent(runs, path)},
    )


def _momentum() -> Shown:
    problem, start = _valley(), numpy.array([3.0, 1.0])
    plain, ball = GradientDescent(0.05), HeavyBall(0.05, 0.7)
    averaged = ball.averaged()
    ways = {
        "gradient descent": follow(plain, problem.gradient, start, num_steps=40),
        "momentum 0.7": follow(ball, problem.gradient, start, num_steps=40),
    }
    other = follow(averaged, problem.gradient, start, num_steps=40)
    theirs = _torch_points(
        problem, start, lambda thetas: torch.optim.SGD(thetas, lr=0.05, momentum=0.7), 40
    )
    return Shown(
        {
            "rate γ, momentum m": [ball.rate, ball.momentum],
            "rate η = γ/(1-m), decay β = m": [averaged.rate, averaged.decay],
            "both parametrizations go the same way": _is_same(ways["momentum 0.7"], other),
            "equal to torch.optim.SGD in each of 40 steps": _is_same(ways["momentum 0.7"], theirs),
            "cost after 40 steps, without": problem.value(ways["gradient descent"][-1]),
            "cost after 40 steps, with": problem.value(ways["momentum 0.7"][-1]),
        },
        pictures={"ways": lambda path: draw_ways(problem, ways, path)},
    )


def _adam() -> Shown:
    problem, start = _valley(), numpy.array([3.0, 1.0])
    rule = Adam(rate=0.2)
    way = follow(rule, problem.gradient, start, num_steps=60)
    theirs = _torch_points(problem, start, lambda thetas: torch.optim.Adam(thetas, lr=0.2), 60)
    ways = {
        "gradient descent": follow(GradientDescent(0.05), problem.gradient, start, num_steps=60),
        "Adam": way,
        "momentum 0.9": follow(AveragedMomentum(0.05, 0.9), problem.gradient, start, num_steps=60),
    }
    return Shown(
        {
            "first step, each coordinate": (way[1] - start).tolist(),
            "equal to torch.optim.Adam in each of 60 steps": _is_same(way, theirs),
            "cost after 60 steps": problem.value(way[-1]),
        },
        pictures={"ways": lambda path: draw_ways(problem, ways, path)},
    )


def _is_same(ours: Reals, theirs: Reals) -> bool:
    return bool(numpy.abs(ours - theirs).max() <= 1e-12)


LEARNING = (
    Topic(
        "distances",
        "Distances between distributions",
        "Lp distances and total variation are metrics, and total variation is half of L1: the set "
        "on which P is larger attains it. The Kullback-Leibler divergence is not symmetric, zero "
        "only for equal distributions, and infinite if Q misses what P has. Cross-entropy is the "
        "divergence plus the entropy of P, so for fixed P both are least at the same Q.",
        in_lecture("section 1.4", "finitely many outcomes"),
        _distances,
    ),
    Topic(
        "gradient-descent",
        "Gradient descent and its theorem",
        "For a convex cost whose gradient is Lipschitz with constant L, and a rate η of at most "
        "1/L, the gap to the minimum after t steps is at most ‖θ0 - θ*‖² / (2ηt). Above 2/L, "
        "gradient descent on a quadratic diverges.",
        CONVERGENCE,
        _descent,
    ),
    Topic(
        "momentum",
        "Momentum, in both parametrizations",
        "A velocity remembers earlier gradients: v ← m v - γ ∇C, θ ← θ + v. Or an average of "
        "gradients: v ← β v + (1-β) ∇C, θ ← θ - η v. With β = m and η = γ/(1-m) both walk the "
        "same way. The new velocity is added, not the old one that the lecture prints.",
        in_lecture("section 1.5"),
        _momentum,
    ),
    Topic(
        "adam",
        "Adam",
        "Averages of gradients and of their squares, both corrected for starting at zero; the "
        "step is their quotient, so its first size is the rate in every coordinate, however steep "
        "the cost is there.",
        recalled("Kingma & Ba (2015)", "Algorithm 1", "1412.6980"),
        _adam,
    ),
)
