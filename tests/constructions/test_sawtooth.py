import itertools
from fractions import Fraction

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.constructions.strategies import piecewise_linear, random_network

from rankscope.constructions.dense import evaluate
from rankscope.constructions.explicit_networks import (
    depth_separation,
    distance_to_sawtooth,
    l1_distance,
    most_pieces,
    sawtooth_distance_bound,
    sawtooth_function,
    sawtooth_network,
)
from rankscope.constructions.piecewise_linear import PiecewiseLinear, one_hidden_layer
from rankscope.constructions.regions import regions_on_line
from rankscope.errors import ConstructionError


@pytest.mark.parametrize("power", [1, 2, 3, 7, 12])
def test_the_tent_map_k_times_has_two_to_the_k_pieces(power: int) -> None:
    found = regions_on_line(sawtooth_network(power), ends=(0.0, 1.0))
    assert found.num_affine_pieces == 2**power
    points = numpy.linspace(-0.5, 1.5, 4097)
    plain = evaluate(sawtooth_network(power), points[:, None])[:, 0]
    assert (plain == sawtooth_function(power)(points)).all()


@settings(deadline=None)
@given(st.integers(1, 5), st.integers(1, 6), st.integers(0, 1000))
def test_no_network_has_more_pieces_than_the_product(depth: int, width: int, seed: int) -> None:
    network = random_network(1, *[width] * depth, 1, seed=seed)
    pieces = regions_on_line(network).num_patterns
    bound = most_pieces(num_layers=depth, num_nodes=depth * width)
    assert pieces <= bound == (width + 1) ** depth
    assert bound <= Fraction(2 * depth * width, depth) ** depth


@settings(deadline=None)
@given(st.integers(1, 4), st.integers(0, 30))
def test_equal_shares_of_units_make_the_most_pieces(layers: int, extra: int) -> None:
    nodes = layers + extra

    def best(left: int, units: int) -> int:
        if left == 1:
            return units + 1
        return max((n + 1) * best(left - 1, units - n) for n in range(units + 1))

    assert most_pieces(num_layers=layers, num_nodes=min(nodes, 12)) == best(layers, min(nodes, 12))


@settings(deadline=None, max_examples=200)
@given(st.integers(1, 6), st.data())
def test_every_piecewise_linear_function_is_as_far_from_the_sawtooth_as_its_pieces_say(
    power: int, data: st.DataObject
) -> None:
    kinks = data.draw(st.sets(st.floats(0.01, 0.99), max_size=2**power))
    points = numpy.array([0.0, *sorted(kinks), 1.0])
    heights = st.floats(-0.5, 1.5)
    # Competitors that follow the teeth where they can are the near ones.
    follow = sawtooth_function(power)(points)
    noise = data.draw(st.lists(heights, min_size=len(points), max_size=len(points)))
    share = data.draw(st.sampled_from([0.0, 0.1, 1.0]))
    rival = PiecewiseLinear.through(points, (1 - share) * follow + share * numpy.array(noise))
    bound = sawtooth_distance_bound(power=power, num_pieces=len(points) - 1)
    assert l1_distance(sawtooth_function(power), rival, 0.0, 1.0) >= float(bound) - 1e-12


@pytest.mark.parametrize("layers", [2, 3, 4, 6, 9])
def test_telgarskys_distance_is_at_least_one_over_32(layers: int) -> None:
    found = depth_separation(layers)
    assert found.distance >= Fraction(1, 32)
    assert found.competitor_pieces <= 2 ** (layers**2)
    assert (found.power, found.num_nodes) == (layers**2 + 2, 2**layers)
    # The published count of pieces alone gives the constant.
    assert sawtooth_distance_bound(power=found.power, num_pieces=2 ** (layers**2)) == Fraction(
        1, 32
    )


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 10**6))
def test_networks_of_two_layers_and_four_units_stay_away(seed: int) -> None:
    found = distance_to_sawtooth(random_network(1, 2, 2, 1, seed=seed), 6)
    assert found.distance >= float(depth_separation(2).distance)
    assert found.distance >= float(found.bound)


@settings(deadline=None)
@given(piecewise_linear(), piecewise_linear())
def test_the_l1_distance_is_the_integral(first: PiecewiseLinear, second: PiecewiseLinear) -> None:
    # On cells without kinks of either or a change of sign, the trapezium rule is exact.
    cells = numpy.linspace(-2.0, 2.0, 17)
    total = 0.0
    for low, high in itertools.pairwise(cells):
        before, after = (
            (first(p) - second(p))[0] for p in (numpy.array([low]), numpy.array([high]))
        )
        if before * after >= 0:
            total += abs(before + after) * (high - low) / 2
        else:
            total += (before**2 + after**2) / abs(before - after) * (high - low) / 2
    assert l1_distance(first, second, -2.0, 2.0) == pytest.approx(total, abs=1e-9)


def test_the_distance_of_the_sawtooth_from_itself_is_zero() -> None:
    assert distance_to_sawtooth(one_hidden_layer(sawtooth_function(5)), 5).distance == 0.0
    assert distance_to_sawtooth(sawtooth_network(5), 5).num_pieces == 32


def test_requests_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ConstructionError, match=r"power must be in 1..50, got 51"):
        sawtooth_network(51)
    with pytest.raises(ConstructionError, match=r"power must be in 1..22, got 0"):
        sawtooth_function(0)
    with pytest.raises(ConstructionError, match=r"got 3 layers and 2 units"):
        most_pieces(num_layers=3, num_nodes=2)
    with pytest.raises(ConstructionError, match=r"got 0 and 1"):
        sawtooth_distance_bound(power=0, num_pieces=1)
    with pytest.raises(ConstructionError, match=r"at least 2 layers, got 1"):
        depth_separation(1)
