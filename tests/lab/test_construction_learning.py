import itertools
import math
from collections.abc import Callable

import numpy
import pytest
import torch
from hypothesis import assume, given, settings, strategies
from torch.nn import functional

from rankscope.errors import ConstructionError
from rankscope.lab.constructions import (
    Adam,
    AveragedMomentum,
    ConvexProblem,
    Descent,
    Gradient,
    GradientDescent,
    HeavyBall,
    Reals,
    Rule,
    compare_distributions,
    cross_entropy,
    entropy,
    follow,
    gradient_descent,
    kullback_leibler,
    learning,
    least_squares,
    logistic_regression,
    total_variation,
)
from rankscope.lab.constructions.learning import CONVERGENCE

# Distances.


# Sums of a few terms of size at most 10.
ROUNDING = 1e-13
POWERS = strategies.sampled_from([1.0, 1.5, 2.0, 3.0, 50.0, math.inf])


@strategies.composite
def distributions(draw: strategies.DrawFn, count: int) -> tuple[Reals, ...]:
    """Some distributions on the same outcomes, zeros among their probabilities."""
    size = draw(strategies.integers(1, 6))
    weights = strategies.lists(strategies.integers(0, 6), min_size=size, max_size=size)
    results = [numpy.array(draw(weights.filter(any)), float) for _ in range(count)]
    return tuple(each / each.sum() for each in results)


@settings(deadline=None)
@given(distributions(2))
def test_total_variation_is_the_largest_over_all_events_and_half_of_l1(
    pair: tuple[Reals, ...],
) -> None:
    first, second = pair
    result = total_variation(first, second)
    events = itertools.chain.from_iterable(
        itertools.combinations(range(len(first)), count) for count in range(len(first) + 1)
    )
    largest = max(abs(first[list(event)].sum() - second[list(event)].sum()) for event in events)
    event = list(result.event)
    assert result.value == pytest.approx(largest, abs=ROUNDING)
    assert first[event].sum() - second[event].sum() == pytest.approx(result.value, abs=ROUNDING)
    assert result.value == pytest.approx(numpy.abs(first - second).sum() / 2, abs=ROUNDING)


@settings(deadline=None)
@given(distributions(2))
def test_the_divergence_is_positive_zero_for_equals_and_infinite_where_it_must_be(
    pair: tuple[Reals, ...],
) -> None:
    first, second = pair
    result = kullback_leibler(first, second)
    # Different shares of integers up to 6 differ by far more than rounding.
    assert (result > 1e-9) == bool((first != second).any())
    assert result >= 0
    assert math.isinf(result) == bool(((first > 0) & (second == 0)).any())


@settings(deadline=None)
@given(distributions(2))
def test_the_divergence_is_its_sum(pair: tuple[Reals, ...]) -> None:
    first, second = pair
    assume(not ((first > 0) & (second == 0)).any())
    terms = (p * math.log(p / q) for p, q in zip(first, second, strict=True) if p > 0)
    assert kullback_leibler(first, second) == pytest.approx(math.fsum(terms), abs=ROUNDING)


@settings(deadline=None)
@given(distributions(2))
def test_pinsker(pair: tuple[Reals, ...]) -> None:
    result = compare_distributions(*pair)
    assert result.pinsker <= result.kullback_leibler + ROUNDING
    assert result.pinsker <= result.kullback_leibler_reversed + ROUNDING


@settings(deadline=None)
@given(distributions(4), strategies.floats(0, 1))
def test_the_divergence_is_convex_in_both_arguments_together(
    four: tuple[Reals, ...], share: float
) -> None:
    first, other_first, second, other_second = four
    mixed = kullback_leibler(
        share * first + (1 - share) * other_first, share * second + (1 - share) * other_second
    )
    # A share of zero makes nothing of an infinite divergence.
    parts = ((share, first, second), (1 - share, other_first, other_second))
    apart = math.fsum(part * kullback_leibler(p, q) for part, p, q in parts if part > 0)
    assert mixed <= apart + ROUNDING


def test_convexity_as_the_lecture_prints_it_fails() -> None:
    """With Q in place of Q' in the last term: the right side is 0 for P = P' = Q."""
    first, other = numpy.array([0.5, 0.5]), numpy.array([0.9, 0.1])
    mixed = kullback_leibler(first, 0.5 * first + 0.5 * other)
    assert mixed > 0.5 * kullback_leibler(first, first) + 0.5 * kullback_leibler(first, first)


def test_the_divergence_is_neither_symmetric_nor_under_the_triangle_inequality() -> None:
    first, second, third = [0.5, 0.5], [0.9, 0.1], [0.99, 0.01]
    assert kullback_leibler(first, second) != pytest.approx(
        kullback_leibler(second, first), abs=0.1
    )
    way = kullback_leibler(first, second) + kullback_leibler(second, third)
    assert kullback_leibler(first, third) > way + 0.1


@settings(deadline=None)
@given(distributions(2))
def test_cross_entropy_is_entropy_and_divergence(pair: tuple[Reals, ...]) -> None:
    first, second = pair
    result = cross_entropy(first, second)
    assert result == pytest.approx(entropy(first) + kullback_leibler(first, second), abs=1e-12)
    assert result >= entropy(first) - ROUNDING >= -ROUNDING
    assert cross_entropy(first, first) == pytest.approx(entropy(first), abs=ROUNDING)


def test_cross_entropy_is_no_metric() -> None:
    assert cross_entropy([0.5, 0.5], [0.5, 0.5]) > 0
    assert cross_entropy([0.5, 0.5], [0.9, 0.1]) != cross_entropy([0.9, 0.1], [0.5, 0.5])


@settings(deadline=None)
@given(distributions(1))
def test_entropy_is_between_zero_and_the_logarithm_of_the_outcomes(one: tuple[Reals, ...]) -> None:
    (distribution,) = one
    assert 0 <= entropy(distribution) <= math.log(len(distribution)) + ROUNDING
    uniform = numpy.full(len(distribution), 1 / len(distribution))
    assert entropy(uniform) == pytest.approx(math.log(len(distribution)), abs=ROUNDING)


@settings(deadline=None)
@given(distributions(1), strategies.data())
def test_for_a_one_hot_target_cross_entropy_is_one_logarithm(
    one: tuple[Reals, ...], data: strategies.DataObject
) -> None:
    (predicted,) = one
    hot = data.draw(strategies.integers(0, len(predicted) - 1))
    target = numpy.eye(len(predicted))[hot]
    wanted = -math.log(predicted[hot]) if predicted[hot] > 0 else math.inf
    assert cross_entropy(target, predicted) == wanted
    assert entropy(target) == 0
    # The other way round nothing but the target itself is at a finite divergence.
    assert math.isfinite(kullback_leibler(predicted, target)) == bool((predicted == target).all())


@settings(deadline=None)
@given(strategies.floats(0, 1), strategies.floats(0, 1))
def test_on_two_outcomes_all_metrics_are_the_same_up_to_a_factor(p: float, q: float) -> None:
    result = compare_distributions([p, 1 - p], [q, 1 - q])
    gap = pytest.approx(abs(p - q), abs=1e-15)
    assert result.l_infinity == gap
    assert result.total_variation.value == gap
    assert result.l1 / 2 == gap
    assert result.l2 / math.sqrt(2) == gap


def test_the_comparison_holds_what_the_functions_return() -> None:
    first, second = [0.5, 0.25, 0.25], [0.25, 0.25, 0.5]
    result = compare_distributions(first, second)
    assert result.total_variation == total_variation(first, second)
    assert result.kullback_leibler == kullback_leibler(first, second)
    assert result.kullback_leibler_reversed == kullback_leibler(second, first)
    assert result.cross_entropy == cross_entropy(first, second)
    assert result.entropy == entropy(first)


@pytest.mark.parametrize(
    "function", [total_variation, kullback_leibler, cross_entropy, compare_distributions]
)
@pytest.mark.parametrize(
    ("first", "message"),
    [
        ([0.5, 0.75, -0.25], r"at least 0, got -0.25 at position 2"),
        ([0.5, math.nan], r"at least 0, got nan at position 1"),
        ([0.5, 0.25], r"add up to 1, got 0.75"),
        ([math.inf, 0.0], r"add up to 1, got inf"),
        ([1.0], r"same outcomes, got 1 and 2"),
        ([], r"shape \(0,\)"),
    ],
)
def test_what_is_no_distribution_is_refused(
    function: Callable[[list[float], list[float]], object], first: list[float], message: str
) -> None:
    with pytest.raises(ConstructionError, match=f"{function.__name__}.*{message}"):
        function(first, [0.5, 0.5])


def test_a_table_is_refused() -> None:
    with pytest.raises(ConstructionError, match=r"entropy needs a list.*shape \(2, 2\)"):
        entropy(numpy.eye(2))


# Convex problems.


def example(seed: int, *, kind: str) -> tuple[ConvexProblem, Reals, Reals]:
    generator = numpy.random.default_rng(seed)
    features = generator.normal(size=(12, 4)) * generator.uniform(0.1, 3.0, size=4)
    if kind == "least squares":
        targets = generator.normal(size=12)
        return least_squares(features, targets), features, targets
    targets = generator.integers(0, 2, 12).astype(float)
    return logistic_regression(features, targets, ridge=0.01), features, targets


KINDS = strategies.sampled_from(["least squares", "logistic"])
SEEDS = strategies.integers(0, 9999)


@settings(deadline=None, max_examples=40)
@given(SEEDS, KINDS)
def test_values_and_gradients_are_those_of_pytorch(seed: int, kind: str) -> None:
    problem, features, targets = example(seed, kind=kind)
    theta = torch.randn(4, dtype=torch.float64, requires_grad=True)
    scores = torch.from_numpy(features) @ theta
    wanted = torch.from_numpy(targets)
    if kind == "least squares":
        cost = functional.mse_loss(scores, wanted) / 2
    else:
        cost = functional.binary_cross_entropy_with_logits(scores, wanted)
        cost = cost + 0.01 / 2 * (theta @ theta)
    (slope,) = torch.autograd.grad(cost, theta)
    point = theta.detach().numpy()
    assert problem.value(point) == pytest.approx(float(cost.detach()), rel=1e-12)
    numpy.testing.assert_allclose(problem.gradient(point), slope.numpy(), rtol=1e-10, atol=1e-12)


@settings(deadline=None, max_examples=40)
@given(SEEDS, KINDS)
def test_it_is_convex_smooth_and_least_at_its_minimizer(seed: int, kind: str) -> None:
    problem, _, _ = example(seed, kind=kind)
    generator = numpy.random.default_rng(seed + 1)
    first, second = generator.normal(size=(2, 4))
    step = second - first
    slopes = problem.gradient(second) - problem.gradient(first)
    assert problem.value(first) + problem.gradient(first) @ step <= problem.value(second) + 1e-12
    assert numpy.linalg.norm(slopes) <= problem.smoothness * numpy.linalg.norm(step) * (1 + 1e-12)
    numpy.testing.assert_allclose(problem.gradient(problem.minimizer), 0, atol=1e-9)
    assert problem.minimum <= min(problem.value(first), problem.value(second))


def test_the_smoothness_of_least_squares_is_attained() -> None:
    problem, features, _ = example(0, kind="least squares")
    steepest = numpy.linalg.svd(features)[2][0]
    slopes = problem.gradient(steepest) - problem.gradient(0 * steepest)
    assert numpy.linalg.norm(slopes) == pytest.approx(problem.smoothness, rel=1e-12)


def test_more_parameters_than_targets_still_have_a_minimizer() -> None:
    problem = least_squares(numpy.array([[1.0, 2.0, 2.0]]), numpy.array([9.0]))
    numpy.testing.assert_allclose(problem.minimizer, [1.0, 2.0, 2.0], atol=1e-12)
    assert problem.minimum == pytest.approx(0.0, abs=1e-24)


def test_separated_classes_have_a_minimum_through_the_ridge() -> None:
    features = numpy.array([[-1.0], [1.0]])
    problem = logistic_regression(features, numpy.array([0.0, 1.0]), ridge=1e-6)
    assert problem.minimizer[0] > 5
    numpy.testing.assert_allclose(problem.gradient(problem.minimizer), 0, atol=1e-12)


@pytest.mark.parametrize("make", [least_squares, lambda x, y: logistic_regression(x, y, ridge=1.0)])
def test_features_and_targets_that_do_not_fit_are_refused(make: object) -> None:
    assert callable(make)
    with pytest.raises(ConstructionError, match=r"got shapes \(2, 3\) and \(3,\)"):
        make(numpy.ones((2, 3)), numpy.ones(3))
    with pytest.raises(ConstructionError, match="targets must be finite, got inf at position 1"):
        make(numpy.ones((2, 3)), numpy.array([1.0, numpy.inf]))
    with pytest.raises(ConstructionError, match="all 6 features are 0"):
        make(numpy.zeros((2, 3)), numpy.ones(2))


def test_other_labels_and_ridges_are_refused() -> None:
    with pytest.raises(ConstructionError, match=r"labels \[0.0, 2.0\] and ridge 1.0"):
        logistic_regression(numpy.ones((2, 1)), numpy.array([0.0, 2.0]), ridge=1.0)
    with pytest.raises(ConstructionError, match=r"labels \[1.0\] and ridge 0.0"):
        logistic_regression(numpy.ones((2, 1)), numpy.ones(2), ridge=0.0)


def test_a_minimum_that_is_not_found_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learning, "MAX_NEWTON_STEPS", 2)
    with pytest.raises(ConstructionError, match=r"after 2 steps of Newton's method.* still 0"):
        logistic_regression(numpy.eye(2), numpy.ones(2), ridge=1e-6)


# Optimizers.


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
    result = follow(rule, gradient, start, num_steps=STEPS)
    numpy.testing.assert_allclose(result, wanted, rtol=1e-12, atol=1e-12)


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


# Descent.


@settings(deadline=None, max_examples=60)
@given(SEEDS, strategies.floats(0.01, 1.0), strategies.booleans())
def test_the_bound_is_never_crossed(seed: int, share: float, is_logistic: bool) -> None:
    generator = numpy.random.default_rng(seed)
    num_parameters = int(generator.integers(1, 7))
    scales = numpy.logspace(0, -generator.uniform(0, 3), num_parameters)
    features = generator.normal(size=(5, num_parameters)) * scales
    if is_logistic:
        labels = generator.integers(0, 2, 5).astype(float)
        problem = logistic_regression(features, labels, ridge=float(generator.uniform(1e-3, 0.1)))
    else:
        problem = least_squares(features, generator.normal(size=5))
    start = generator.normal(size=num_parameters) * 3
    run = gradient_descent(problem, start, rate=share / problem.smoothness, num_steps=120)
    assert run.bounds is not None
    # The gap is a difference of two costs, each rounded.
    rounding = 1e-13 * (1 + problem.value(start))
    assert (run.gaps <= run.bounds + rounding).all()
    assert (numpy.diff(run.gaps) <= rounding).all()
    assert (run.gaps >= -rounding).all()


def test_the_bound_is_the_formula() -> None:
    run = Descent(numpy.zeros((5, 2)), numpy.zeros(5), rate=0.5, smoothness=2.0, distance=3.0)
    assert run.bounds is not None
    assert run.bounds.tolist() == [numpy.inf, 9.0, 4.5, 3.0, 2.25]


@settings(deadline=None, max_examples=40)
@given(strategies.floats(0.05, 2.5), strategies.floats(0.1, 10))
def test_on_a_parabola_each_step_multiplies_by_one_minus_rate_times_curvature(
    share: float, scale: float
) -> None:
    problem = least_squares(numpy.array([[scale]]), numpy.zeros(1))
    run = gradient_descent(problem, numpy.ones(1), rate=share / problem.smoothness, num_steps=30)
    wanted = (1 - share) ** numpy.arange(31.0)
    numpy.testing.assert_allclose(run.points[:, 0], wanted, rtol=1e-9, atol=1e-12)
    assert (run.bounds is None) == (share > 1)


@settings(deadline=None, max_examples=30)
@given(SEEDS, strategies.floats(2.05, 2.5))
def test_a_rate_above_two_over_l_diverges_on_a_quadratic(seed: int, share: float) -> None:
    generator = numpy.random.default_rng(seed)
    features = generator.normal(size=(6, 3))
    problem = least_squares(features, generator.normal(size=6))
    start = generator.normal(size=3)
    run = gradient_descent(problem, start, rate=share / problem.smoothness, num_steps=150)
    assert run.bounds is None
    steepest = numpy.linalg.svd(features)[2][0]
    parts = (run.points - problem.minimizer) @ steepest
    numpy.testing.assert_allclose(parts[1:], (1 - share) * parts[:-1], rtol=1e-6)
    # This part of the cost alone grows by 1.05² or more at each step.
    assert run.gaps[-1] >= problem.smoothness / 2 * parts[-1] ** 2 * (1 - 1e-6)
    assert abs(parts[-1]) > 1000 * abs(parts[0])


def test_a_rate_between_one_and_two_over_l_converges_without_a_bound() -> None:
    problem = least_squares(numpy.diag([1.0, 0.5]), numpy.ones(2))
    run = gradient_descent(problem, numpy.zeros(2), rate=1.9 / problem.smoothness, num_steps=500)
    assert run.bounds is None
    assert run.gaps[-1] < 1e-12


def test_the_theorem_names_its_paper() -> None:
    assert "Garrigos" in CONVERGENCE.citation
    assert Descent.bounds.__doc__ is not None
    assert str(CONVERGENCE.arxiv) in Descent.bounds.__doc__


def test_a_start_of_another_size_is_refused() -> None:
    problem = least_squares(numpy.eye(2), numpy.ones(2))
    with pytest.raises(
        ConstructionError, match=r"has 2 parameters, but the start has shape \(3,\)"
    ):
        gradient_descent(problem, numpy.ones(3), rate=1.0, num_steps=1)
