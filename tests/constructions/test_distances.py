import itertools
import math
from collections.abc import Callable

import numpy
import pytest
from hypothesis import assume, given, settings, strategies

from rankscope.constructions.dense import Reals
from rankscope.constructions.learning import (
    compare_distributions,
    cross_entropy,
    entropy,
    kullback_leibler,
    total_variation,
)
from rankscope.errors import ConstructionError

# Sums of a few terms of size at most 10.
ROUNDING = 1e-13
POWERS = strategies.sampled_from([1.0, 1.5, 2.0, 3.0, 50.0, math.inf])


@strategies.composite
def distributions(draw: strategies.DrawFn, count: int) -> tuple[Reals, ...]:
    """Some distributions on the same outcomes, zeros among their probabilities."""
    size = draw(strategies.integers(1, 6))
    weights = strategies.lists(strategies.integers(0, 6), min_size=size, max_size=size)
    found = [numpy.array(draw(weights.filter(any)), float) for _ in range(count)]
    return tuple(each / each.sum() for each in found)


@settings(deadline=None)
@given(distributions(2))
def test_total_variation_is_the_largest_over_all_events_and_half_of_l1(
    pair: tuple[Reals, ...],
) -> None:
    first, second = pair
    found = total_variation(first, second)
    events = itertools.chain.from_iterable(
        itertools.combinations(range(len(first)), count) for count in range(len(first) + 1)
    )
    largest = max(abs(first[list(event)].sum() - second[list(event)].sum()) for event in events)
    event = list(found.event)
    assert found.value == pytest.approx(largest, abs=ROUNDING)
    assert first[event].sum() - second[event].sum() == pytest.approx(found.value, abs=ROUNDING)
    assert found.value == pytest.approx(numpy.abs(first - second).sum() / 2, abs=ROUNDING)


@settings(deadline=None)
@given(distributions(2))
def test_the_divergence_is_positive_zero_for_equals_and_infinite_where_it_must_be(
    pair: tuple[Reals, ...],
) -> None:
    first, second = pair
    found = kullback_leibler(first, second)
    # Different shares of integers up to 6 differ by far more than rounding.
    assert (found > 1e-9) == bool((first != second).any())
    assert found >= 0
    assert math.isinf(found) == bool(((first > 0) & (second == 0)).any())


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
    found = compare_distributions(*pair)
    assert found.pinsker <= found.kullback_leibler + ROUNDING
    assert found.pinsker <= found.kullback_leibler_reversed + ROUNDING


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
    found = cross_entropy(first, second)
    assert found == pytest.approx(entropy(first) + kullback_leibler(first, second), abs=1e-12)
    assert found >= entropy(first) - ROUNDING >= -ROUNDING
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
    found = compare_distributions([p, 1 - p], [q, 1 - q])
    gap = pytest.approx(abs(p - q), abs=1e-15)
    assert found.l_infinity == gap
    assert found.total_variation.value == gap
    assert found.l1 / 2 == gap
    assert found.l2 / math.sqrt(2) == gap


def test_the_comparison_holds_what_the_functions_return() -> None:
    first, second = [0.5, 0.25, 0.25], [0.25, 0.25, 0.5]
    found = compare_distributions(first, second)
    assert found.total_variation == total_variation(first, second)
    assert found.kullback_leibler == kullback_leibler(first, second)
    assert found.kullback_leibler_reversed == kullback_leibler(second, first)
    assert found.cross_entropy == cross_entropy(first, second)
    assert found.entropy == entropy(first)


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
