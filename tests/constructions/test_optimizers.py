from collections.abc import Callable

import numpy
import pytest
import torch
from hypothesis import given, settings, strategies

from rankscope.constructions.dense import Reals
from rankscope.constructions.learning import (
    Adam,
    AveragedMomentum,
    ConvexProblem,
    Gradient,
    GradientDescent,
    HeavyBall,
    Rule,
    follow,
    least_squares,
)
from rankscope.errors import ConstructionError

SEEDS = strategies.integers(0, 9999)
SHARES = strategies.sampled_from([0.0, 0.5, 0.9, 0.99])
STEPS = 40


def problem(seed: int) -> ConvexProblem:
    generator = numpy.random.default_rng(seed)
    return least_squares(generator.normal(size=(8, 3)), generator.normal(size=8))


def walk_of_pytorch(
    make: Callable[[list[torch.Tensor]], torch.optim.Optimizer], gradient: Gradient, start: Reals
) -> Reals:
    theta = torch.from_numpy(start.copy()).requires_grad_()
    optimizer = make([theta])
    points = [start]
    for _ in range(STEPS):
        theta.grad = torch.from_numpy(gradient(theta.detach().numpy()))
        optimizer.step()
        points.append(theta.detach().numpy().copy())
    return numpy.stack(points)


def assert_same_walk(rule: Rule, wanted: Reals, gradient: Gradient, start: Reals) -> None:
    found = follow(rule, gradient, start, num_steps=STEPS)
    numpy.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-12)


@settings(deadline=None, max_examples=20)
@given(SEEDS)
def test_gradient_descent_is_that_of_pytorch(seed: int) -> None:
    of, start = problem(seed), numpy.ones(3)
    rate = 1 / of.smoothness
    wanted = walk_of_pytorch(lambda theta: torch.optim.SGD(theta, lr=rate), of.gradient, start)
    assert_same_walk(GradientDescent(rate), wanted, of.gradient, start)


@settings(deadline=None, max_examples=30)
@given(SEEDS, SHARES)
def test_both_forms_of_momentum_are_that_of_pytorch(seed: int, momentum: float) -> None:
    of, start = problem(seed), numpy.ones(3)
    rule = HeavyBall(rate=0.5 / of.smoothness, momentum=momentum)
    wanted = walk_of_pytorch(
        lambda theta: torch.optim.SGD(theta, lr=rule.rate, momentum=momentum), of.gradient, start
    )
    assert_same_walk(rule, wanted, of.gradient, start)
    assert_same_walk(rule.averaged(), wanted, of.gradient, start)


def test_the_dampening_of_pytorch_is_another_walk() -> None:
    """Its first buffer is the whole gradient, where the average holds 1 - β of it."""
    of, start = problem(0), numpy.ones(3)
    damped = walk_of_pytorch(
        lambda theta: torch.optim.SGD(theta, lr=0.1, momentum=0.75, dampening=0.75),
        of.gradient,
        start,
    )
    ours = follow(AveragedMomentum(0.1, 0.75), of.gradient, start, num_steps=STEPS)
    numpy.testing.assert_allclose(damped[1] - start, 4 * (ours[1] - start), rtol=1e-12)


@settings(deadline=None, max_examples=30)
@given(SEEDS, SHARES, SHARES, strategies.sampled_from([1e-8, 1e-3, 1.0]))
def test_adam_is_that_of_pytorch(seed: int, first: float, second: float, epsilon: float) -> None:
    """On given gradients: with β₂ = 0 the step is nearly a sign, which rounding may turn."""
    slopes = numpy.random.default_rng(seed).normal(size=(STEPS + 1, 3))
    start = numpy.ones(3)
    ours, theirs = iter(slopes), iter(slopes)
    wanted = walk_of_pytorch(
        lambda theta: torch.optim.Adam(theta, lr=0.01, betas=(first, second), eps=epsilon),
        lambda _: next(theirs),
        start,
    )
    assert_same_walk(Adam(0.01, first, second, epsilon), wanted, lambda _: next(ours), start)


def test_adam_has_the_defaults_of_pytorch() -> None:
    of, start = problem(1), numpy.ones(3)
    assert_same_walk(
        Adam(), walk_of_pytorch(torch.optim.Adam, of.gradient, start), of.gradient, start
    )


def test_the_first_step_of_adam_has_the_size_of_its_rate() -> None:
    """Both moments are corrected for their start at zero, so that they are g and g²."""
    slope = numpy.array([1e3, -1e-3, 5.0])
    points = follow(Adam(0.1, epsilon=1e-15), lambda _: slope, numpy.zeros(3), num_steps=1)
    numpy.testing.assert_allclose(points[1], -0.1 * numpy.sign(slope), rtol=1e-9)


@settings(deadline=None, max_examples=30)
@given(strategies.floats(0.05, 1.9).filter(lambda step: abs(step - 1) > 0.05))
def test_the_index_that_the_lecture_prints_halves_the_rates_that_converge(step: float) -> None:
    """θ_t + v_t uses the gradient of the step before: z² = z - ηλ instead of z = 1 - ηλ."""
    right = follow(HeavyBall(step, 0.0), lambda theta: theta, numpy.ones(1), num_steps=400)
    theta, velocity = 1.0, 0.0
    for _ in range(400):
        theta, velocity = theta + velocity, -step * theta
    assert abs(right[-1, 0]) < 1e-3
    assert (abs(theta) < 1e-3) == (step < 1)


def test_the_inputs_are_left_alone() -> None:
    start = numpy.ones(3)
    for rule in (GradientDescent(0.1), HeavyBall(0.1, 0.5), AveragedMomentum(0.1, 0.5), Adam()):
        points = follow(rule, problem(0).gradient, start, num_steps=3)
        assert points.shape == (4, 3)
        assert (start == 1).all()
        assert (points[1] != points[0]).all()


@pytest.mark.parametrize(
    "make",
    [
        lambda: GradientDescent(0.0),
        lambda: GradientDescent(float("inf")),
        lambda: HeavyBall(-1.0, 0.5),
        lambda: AveragedMomentum(float("nan"), 0.5),
        lambda: Adam(epsilon=0.0),
    ],
)
def test_a_rate_that_is_not_positive_is_refused(make: Callable[[], Rule]) -> None:
    with pytest.raises(ConstructionError, match=r"positive and finite, got [A-Z]\w+\(.*=(0|-|n|i)"):
        make()


@pytest.mark.parametrize(
    "make",
    [
        lambda: HeavyBall(1.0, 1.0),
        lambda: AveragedMomentum(1.0, 1.5),
        lambda: Adam(first_decay=-0.5),
        lambda: Adam(second_decay=1.0),
    ],
)
def test_a_share_outside_its_range_is_refused(make: Callable[[], Rule]) -> None:
    with pytest.raises(ConstructionError, match=r"in \[0, 1\), got .*=(1.0|1.5|-0.5)"):
        make()


def test_a_negative_number_of_steps_is_refused() -> None:
    with pytest.raises(ConstructionError, match="at least 0 steps, got -1"):
        follow(GradientDescent(1.0), lambda theta: theta, numpy.ones(1), num_steps=-1)


def test_a_walk_that_overflows_is_refused() -> None:
    with pytest.raises(ConstructionError, match=r"point 3\d\d of 999 is not .*rate=11.0"):
        follow(GradientDescent(11.0), lambda theta: theta, numpy.ones(1), num_steps=999)
