import numpy
import pytest
from hypothesis import given, settings, strategies

from rankscope.constructions.learning import (
    CONVERGENCE,
    Descent,
    gradient_descent,
    least_squares,
    logistic_regression,
)
from rankscope.errors import ConstructionError

SEEDS = strategies.integers(0, 9999)


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
