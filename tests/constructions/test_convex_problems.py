import numpy
import pytest
import torch
from hypothesis import given, settings, strategies
from torch.nn import functional

from rankscope.constructions import learning
from rankscope.constructions.dense import Reals
from rankscope.constructions.learning import (
    ConvexProblem,
    least_squares,
    logistic_regression,
)
from rankscope.errors import ConstructionError


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
