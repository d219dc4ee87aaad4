import itertools
from fractions import Fraction

import numpy
import pytest
from hypothesis import given, settings, strategies
from hypothesis import strategies as st
from tests.lab.strategies import (
    piecewise_linear,
    points_in_square,
    random_network,
    sampled_patterns,
)

from rankscope.errors import ConstructionError
from rankscope.lab.constructions import (
    Box,
    DenseLayer,
    MaxMinString,
    PiecewiseLinear,
    Step,
    dense_layers,
    depth_separation,
    distance_to_sawtooth,
    evaluate,
    l1_distance,
    montufar_lower_bound,
    montufar_network,
    most_pieces,
    narrow_form,
    narrow_network,
    one_hidden_layer,
    regions_in_plane,
    regions_in_space,
    regions_on_line,
    relu_network,
    sawtooth_distance_bound,
    sawtooth_function,
    sawtooth_network,
    two_five_one,
)

# Two five one.


@settings(deadline=None, max_examples=15)
@given(strategies.integers(0, 999), strategies.floats(0, 50))
def test_without_biases_the_function_is_homogeneous(seed: int, factor: float) -> None:
    network = two_five_one(seed).network
    points = points_in_square(30, seed=seed)
    numpy.testing.assert_allclose(
        evaluate(network, factor * points), factor * evaluate(network, points), atol=1e-10
    )


@settings(deadline=None, max_examples=15)
@given(strategies.integers(0, 999), strategies.sampled_from([0.0, 0.3, 1.0]))
def test_there_are_at_most_as_many_regions_as_lines_allow(seed: int, spread: float) -> None:
    result = two_five_one(seed, bias_spread=spread)
    seen = sampled_patterns(result.network, points_in_square(2000, size=2.0))
    assert len(seen) <= result.regions.num_patterns <= result.most_regions
    assert result.most_regions == (16 if spread else 10)
    assert result.seed == seed


def test_five_lines_through_the_origin_make_ten_regions() -> None:
    assert {two_five_one(seed).regions.num_patterns for seed in range(5)} == {10}


def test_a_seed_gives_one_network_and_another_seed_another() -> None:
    points = points_in_square(5)
    first, again, other = (evaluate(two_five_one(seed).network, points) for seed in (3, 3, 4))
    assert (first == again).all()
    assert (first != other).any()


@pytest.mark.parametrize("spread", [-0.5, float("inf"), float("nan")])
def test_a_spread_that_is_none_is_refused(spread: float) -> None:
    with pytest.raises(ConstructionError, match=f"of at least 0, got {spread}"):
        two_five_one(0, bias_spread=spread)


# Deep narrow.


STEPS = st.lists(st.sampled_from(list(Step)), max_size=6).map(tuple)


@settings(deadline=None)
@given(st.integers(1, 4), STEPS, st.integers(0, 1000))
def test_a_max_min_string_of_n_functions_is_a_network_of_width_d_plus_1_and_depth_n(
    inputs: int, steps: tuple[Step, ...], seed: int
) -> None:
    draw = numpy.random.default_rng(seed)
    count = len(steps) + 1
    string = MaxMinString(draw.standard_normal((count, inputs)), draw.standard_normal(count), steps)
    box = Box(-draw.uniform(0.5, 3, inputs), draw.uniform(0.5, 3, inputs))
    network = narrow_network(string, box)
    layers = dense_layers(network)
    assert len(layers) == count
    assert all(len(layer.bias) == inputs + 1 for layer in layers[:-1])
    points = draw.uniform(box.low, box.high, (100, inputs))
    numpy.testing.assert_allclose(evaluate(network, points)[:, 0], string(points), atol=1e-12)


@settings(deadline=None)
@given(st.integers(1, 4), st.integers(1, 8), st.integers(0, 1000))
def test_any_hidden_layer_becomes_a_network_of_width_d_plus_2(
    inputs: int, width: int, seed: int
) -> None:
    network = random_network(inputs, width, 1, seed=seed)
    box = Box.of([-2.0] * inputs, [1.0] * inputs)
    narrow = narrow_form(network, box)
    layers = dense_layers(narrow)
    assert [len(layer.bias) for layer in layers] == [inputs + 2] * width + [1]
    points = numpy.random.default_rng(seed).uniform(-2, 1, (100, inputs))
    numpy.testing.assert_allclose(evaluate(narrow, points), evaluate(network, points), atol=1e-10)


def test_the_largest_of_affine_functions_is_a_string() -> None:
    draw = numpy.random.default_rng(0)
    weight, bias, points = (
        draw.standard_normal((5, 3)),
        draw.standard_normal(5),
        draw.random((9, 3)),
    )
    expected = (points @ weight.T + bias).max(axis=1)
    numpy.testing.assert_allclose(MaxMinString.maximum(weight, bias)(points), expected)


def test_counts_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ConstructionError, match=r"got 2, 2 and 0"):
        MaxMinString(numpy.ones((2, 1)), numpy.ones(2), ())


def test_a_box_of_another_dimension_is_refused() -> None:
    string = MaxMinString.maximum(numpy.ones((2, 3)), numpy.ones(2))
    with pytest.raises(ConstructionError, match=r"3 inputs, the box 2"):
        narrow_network(string, Box.unit(2))
    with pytest.raises(ConstructionError, match=r"3 inputs, the box 1"):
        narrow_form(random_network(3, 2, 1, seed=0), Box.unit(1))


def test_only_one_hidden_layer_with_a_unit_and_one_output_is_made_narrow() -> None:
    with pytest.raises(ConstructionError, match=r"one hidden layer and one output, got 2 and 1"):
        narrow_form(random_network(1, 2, 2, 1, seed=0), Box.unit(1))
    with pytest.raises(ConstructionError, match=r"one hidden layer and one output, got 1 and 3"):
        narrow_form(random_network(1, 2, 3, seed=0), Box.unit(1))
    empty = relu_network(
        [
            DenseLayer(numpy.ones((0, 1)), numpy.ones(0)),
            DenseLayer(numpy.ones((1, 0)), numpy.ones(1)),
        ]
    )
    with pytest.raises(ConstructionError, match=r"at least one hidden unit, got 0"):
        narrow_form(empty, Box.unit(1))


# Sawtooth.


@pytest.mark.parametrize("power", [1, 2, 3, 7, 12])
def test_the_tent_map_k_times_has_two_to_the_k_pieces(power: int) -> None:
    result = regions_on_line(sawtooth_network(power), ends=(0.0, 1.0))
    assert result.num_affine_pieces == 2**power
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
    result = depth_separation(layers)
    assert result.distance >= Fraction(1, 32)
    assert result.competitor_pieces <= 2 ** (layers**2)
    assert (result.power, result.num_nodes) == (layers**2 + 2, 2**layers)
    # The published count of pieces alone gives the constant.
    assert sawtooth_distance_bound(power=result.power, num_pieces=2 ** (layers**2)) == Fraction(
        1, 32
    )


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 10**6))
def test_networks_of_two_layers_and_four_units_stay_away(seed: int) -> None:
    result = distance_to_sawtooth(random_network(1, 2, 2, 1, seed=seed), 6)
    assert result.distance >= float(depth_separation(2).distance)
    assert result.distance >= float(result.bound)


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


# Montufar.


@settings(deadline=None)
@given(st.lists(st.integers(1, 5), min_size=1, max_size=4))
def test_the_bound_is_attained_on_the_unit_interval(widths: list[int]) -> None:
    network = montufar_network(num_inputs=1, widths=widths)
    result = regions_on_line(network, ends=(0.0, 1.0), exactly=True)
    assert result.num_patterns == montufar_lower_bound(num_inputs=1, widths=widths).value
    if widths[-1] > 1:
        assert result.num_affine_pieces == result.num_patterns


@pytest.mark.parametrize("widths", [[2], [3], [4, 4], [5, 6, 3], [4, 4, 4], [2, 7]])
def test_the_bound_is_attained_in_the_unit_square(widths: list[int]) -> None:
    result = regions_in_plane(montufar_network(num_inputs=2, widths=widths), Box.unit(2))
    assert result.num_patterns == montufar_lower_bound(num_inputs=2, widths=widths).value
    assert result.num_affine_pieces == result.num_patterns


@pytest.mark.parametrize("widths", [[5], [6, 4]])
def test_the_bound_is_attained_in_the_unit_cube(widths: list[int]) -> None:
    result = regions_in_space(montufar_network(num_inputs=3, widths=widths), Box.unit(3))
    assert result.num_patterns == montufar_lower_bound(num_inputs=3, widths=widths).value
    assert result.num_affine_pieces == result.num_patterns
    assert result.num_unproved == 0


def test_layers_that_are_too_narrow_are_refused() -> None:
    with pytest.raises(ConstructionError, match=r"layer 1 has 2 units, fewer than the 3 inputs"):
        montufar_network(num_inputs=3, widths=[2, 3])
