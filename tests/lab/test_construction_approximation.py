from fractions import Fraction

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from rankscope.errors import ConstructionError, TooLargeError
from rankscope.lab.constructions import (
    Box,
    ExponentialSum,
    IntervalFunction,
    LipschitzFunction,
    Reals,
    Target,
    approximate_on_box,
    approximate_on_interval,
    cos,
    dense_layers,
    evaluate,
    exact_values,
    exp,
    fit_exponentials,
    lattice,
    sin,
)

# Approximation.


WAVE = IntervalFunction(lambda x: sin(5 * x) * exp(-x) + abs(x - 0.3))


@settings(deadline=None, max_examples=25)
@given(st.floats(0.5, 8.0), st.floats(-3.0, 3.0), st.floats(0.01, 0.5))
def test_the_error_is_at_most_epsilon_everywhere(
    frequency: float, low: float, epsilon: float
) -> None:
    target = LipschitzFunction(lambda x: numpy.sin(frequency * x) + abs(x), frequency + 1.0)
    result = approximate_on_interval(target, low, low + 2.0, epsilon=epsilon)
    points = numpy.linspace(low, low + 2.0, 2001)[:, None]
    error = numpy.abs(evaluate(result.network, points)[:, 0] - target.values(points)).max()
    assert error <= result.certified_error <= epsilon


@pytest.mark.parametrize("epsilon", [0.3, 0.03, 0.003])
def test_intervals_prove_the_error_too(epsilon: float) -> None:
    result = approximate_on_interval(WAVE, -1.0, 2.0, epsilon=epsilon)
    points = numpy.linspace(-1.0, 2.0, 5001)[:, None]
    error = numpy.abs(evaluate(result.network, points)[:, 0] - WAVE.values(points)).max()
    assert error <= result.certified_error <= epsilon
    assert f"asked for {epsilon:g}" in str(result)


def test_smooth_functions_take_about_one_over_the_root_of_epsilon_units() -> None:
    # Straight pieces of width h are off by at most h² f'' / 8, and halving is off by at most 2.
    counts = [
        approximate_on_interval(IntervalFunction(exp), 0.0, 1.0, epsilon=epsilon).num_units
        for epsilon in (1e-2, 1e-4)
    ]
    assert 5 <= counts[1] / counts[0] <= 20


def test_a_jump_cannot_be_proved() -> None:
    step: Target = LipschitzFunction(lambda x: (x > 0.3) * 1.0, 1e9)
    with pytest.raises(ConstructionError, match=r"error of 0.1 with 10,000 intervals; \d+ pieces"):
        approximate_on_interval(step, 0.0, 1.0, epsilon=0.1, max_evaluations=10_000)


def test_an_epsilon_below_the_rounding_of_weights_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def off_by_one(network: nn.Module, points: Reals) -> list[Fraction]:
        return [value + 1 for value in exact_values(network, points)]

    monkeypatch.setattr("rankscope.lab.constructions.approximation.exact_values", off_by_one)
    with pytest.raises(ConstructionError, match=r"epsilon 0.5 is below .* which is 1\.\d"):
        approximate_on_interval(WAVE, 0.0, 1.0, epsilon=0.5)


@pytest.mark.parametrize(
    ("low", "high", "epsilon", "message"),
    [
        (1.0, 1.0, 0.1, "must go upwards, got 1.0 to 1.0"),
        (0.0, 1.0, 0.0, "epsilon must be positive, got 0.0"),
        (0.0, numpy.inf, 0.1, "high must be finite, got inf"),
    ],
)
def test_requests_that_make_no_sense_are_refused(
    low: float, high: float, epsilon: float, message: str
) -> None:
    with pytest.raises(ConstructionError, match=message):
        approximate_on_interval(WAVE, low, high, epsilon=epsilon)


# Exponential fit.


@settings(deadline=None)
@given(st.integers(1, 3), st.integers(0, 1000), st.floats(0.01, 0.3))
def test_a_sum_varies_in_a_cell_by_no_more_than_its_bound(
    inputs: int, seed: int, size: float
) -> None:
    draw = numpy.random.default_rng(seed)
    result = ExponentialSum(
        draw.standard_normal(5), 3 * draw.standard_normal((5, inputs)), numpy.zeros(inputs)
    )
    centres, half = draw.uniform(-1, 1, (4, inputs)), numpy.full(inputs, size)
    bound = result.variation(centres, half)
    for _ in range(20):
        moved = centres + draw.uniform(-1, 1, centres.shape) * half
        change = result.terms(moved).sum(axis=1) - result.terms(centres).sum(axis=1)
        assert (numpy.abs(change) <= bound * (1 + 1e-9)).all()


def test_a_sum_of_the_lattice_is_found_again() -> None:
    samples = Box.unit(2).points(12)
    directions = lattice(2, 1)
    assert len(directions) == 9
    values = numpy.exp(samples @ directions[2]) - 2 * numpy.exp(samples @ directions[5])
    result, error = fit_exponentials(samples, values, directions, lambda e: e < 1e-6)
    assert error < 1e-6
    numpy.testing.assert_allclose(result.terms(samples).sum(axis=1), values, atol=1e-6)


# Ridge approximation.


SMOOTH = IntervalFunction(lambda x, y: sin(2 * x) * cos(y))


def largest_error(target: Target, box: Box, network: object) -> float:
    draw = numpy.random.default_rng(0)
    points = draw.uniform(box.low, box.high, (1000, box.num_inputs))
    return float(numpy.abs(evaluate(network, points)[:, 0] - target.values(points)).max())  # type: ignore[arg-type]


@settings(deadline=None, max_examples=8)
@given(st.floats(0.2, 0.6), st.floats(0.5, 2.5), st.floats(-1.0, 1.0))
def test_the_error_in_the_plane_is_at_most_epsilon(
    epsilon: float, frequency: float, corner: float
) -> None:
    target = LipschitzFunction(
        lambda x, y: numpy.sin(frequency * x) + numpy.cos(y), frequency + 1.0
    )
    box = Box.of([corner, 0.0], [corner + 1.0, 1.5])
    result = approximate_on_box(target, box, epsilon=epsilon)
    assert largest_error(target, box, result.network) <= result.certified_error <= epsilon


@pytest.mark.parametrize(
    ("target", "box"),
    [
        (IntervalFunction(lambda x: sin(3 * x)), Box.of([-1.0], [1.0])),
        (SMOOTH, Box.unit(2)),
        (IntervalFunction(lambda x, y, z: x * y + z * 0.5), Box.unit(3)),
    ],
)
def test_one_two_and_three_dimensions_are_proved_with_intervals(target: Target, box: Box) -> None:
    result = approximate_on_box(target, box, epsilon=0.4)
    assert largest_error(target, box, result.network) <= result.certified_error <= 0.4
    assert "asked for 0.4" in str(result)


def test_more_than_three_dimensions_are_refused_with_the_grid_they_need() -> None:
    target = LipschitzFunction(lambda *x: sum(x), 2.0)
    with pytest.raises(ConstructionError, match=r"at most 3 dimensions, got 4: .* about .* cells"):
        approximate_on_box(target, Box.unit(4), epsilon=0.1)


def test_a_grid_that_is_too_large_is_refused() -> None:
    with pytest.raises(TooLargeError, match=r"over the limit of 100"):
        approximate_on_box(SMOOTH, Box.unit(2), epsilon=0.1, max_cells=100)


def test_functions_that_exponentials_do_not_reach_are_refused() -> None:
    wild = IntervalFunction(lambda x: sin(200 * x))
    with pytest.raises(ConstructionError, match=r"25 exponentials are still .* more than 0.025"):
        approximate_on_box(wild, Box.unit(1), epsilon=0.1)


def test_networks_that_would_be_too_wide_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rankscope.lab.constructions.approximation.MAX_UNITS", 10)
    with pytest.raises(TooLargeError, match=r"over the limit of 10"):
        approximate_on_box(SMOOTH, Box.unit(2), epsilon=0.3)


def test_a_bound_that_stays_above_epsilon_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rankscope.lab.constructions.approximation._bound", lambda *_: 0.5)
    with pytest.raises(ConstructionError, match=r"within 0.5 of the function .* below epsilon 0.3"):
        approximate_on_box(SMOOTH, Box.unit(2), epsilon=0.3)


def test_epsilon_must_be_positive() -> None:
    with pytest.raises(ConstructionError, match=r"epsilon must be positive, got 0.0"):
        approximate_on_box(SMOOTH, Box.unit(2), epsilon=0.0)


@pytest.mark.parametrize("size", [1.0, 1e-310])
def test_epsilons_that_are_flushed_to_zero_are_refused(size: float) -> None:
    target = IntervalFunction(lambda x: 0.0 * x + size)
    with pytest.raises(ConstructionError, match=r"at least 2.45e-296, got 1e-312: products"):
        approximate_on_box(target, Box.unit(1), epsilon=1e-312)


@pytest.mark.parametrize("offset", [1e13, 1e14])
def test_far_from_zero_the_rounding_of_weights_is_refused(offset: float) -> None:
    """The weights of the network cannot hold x - 1e13 to three digits."""
    target = IntervalFunction(lambda x: sin(3.0 * (x - offset)))
    with pytest.raises(ConstructionError, match=r"float64 numbers there are 0\.\d+ apart"):
        approximate_on_box(target, Box.of([offset], [offset + 1]), epsilon=1e-3)


@settings(deadline=None, max_examples=15)
@given(
    offset=st.sampled_from([0.0, 1e3, -1e5, 1e9, 1e-300]),
    width=st.sampled_from([1e-200, 1e-6, 1.0, 1e6, 1e100]),
    frequency=st.sampled_from([0.01, 1.0, 5.0]),
    size=st.sampled_from([1e-200, 1.0, 1e8]),
    lost=st.sampled_from([0.0, 1e6]),
)
def test_the_error_of_a_box_anywhere_is_bounded_in_exact_arithmetic(
    offset: float, width: float, frequency: float, size: float, lost: float
) -> None:
    """Far away, tiny and huge, with terms that cancel: what is not refused is within its error."""
    flint = pytest.importorskip("flint")
    if offset + width == offset:
        return
    box = Box.of([offset], [offset + width])
    steep = frequency / width
    target = IntervalFunction(lambda x: size * (sin(steep * (x - offset)) + lost - lost))
    try:
        result = approximate_on_box(target, box, epsilon=size / 20, max_cells=2**12)
    except (ConstructionError, TooLargeError):
        return
    first, last = dense_layers(result.network)
    with flint.ctx.workprec(2400):
        for share in (0.0, 0.3, 0.5, 0.77, 1.0):
            x = flint.arb(min(offset + share * width, offset + width))
            hidden = [
                flint.arb(float(w)) * x + float(b)
                for w, b in zip(first.weight[:, 0], first.bias, strict=True)
            ]
            terms = (
                flint.arb(float(w)) * h
                for w, h in zip(last.weight[0], hidden, strict=True)
                if h > 0
            )
            value = sum(terms, flint.arb(float(last.bias[0])))
            true = size * (flint.arb(steep) * (x - offset)).sin()
            assert abs(value - true) < result.certified_error <= size / 20
