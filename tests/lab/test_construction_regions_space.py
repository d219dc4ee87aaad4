from fractions import Fraction

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.lab.strategies import points_in_square, random_network, sampled_patterns

from rankscope.errors import ConstructionError, TooLargeError
from rankscope.lab.constructions import (
    Ball,
    Box,
    DenseLayer,
    evaluate,
    largest_ball,
    product_upper_bound,
    proves_empty,
    proves_interior,
    rational,
    regions_in_space,
    regions_on_line,
    relu_network,
    zaslavsky_upper_bound,
)

# Largest ball.


def test_the_largest_ball_of_a_square_is_its_circle() -> None:
    normals = numpy.array([[1.0, 0.0], [-2.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    result = largest_ball(normals, numpy.array([0.0, 1.0, 0.0, 0.5]))
    assert result.radius == pytest.approx(0.25)
    assert proves_interior(result, rational(normals), rational(numpy.array([0.0, 1.0, 0.0, 0.5])))


def test_an_unbounded_polyhedron_has_a_ball_of_radius_one() -> None:
    assert largest_ball(numpy.array([[1.0, 1.0]]), numpy.zeros(1)).radius == pytest.approx(1.0)


@settings(deadline=None, max_examples=50)
@given(st.integers(1, 4), st.integers(2, 8), st.integers(0, 10**6))
def test_each_decision_has_a_proof_in_fractions(inputs: int, count: int, seed: int) -> None:
    draw = numpy.random.default_rng(seed)
    normals, offsets = draw.standard_normal((count, inputs)), draw.standard_normal(count) - 0.3
    result = largest_ball(normals, offsets)
    is_solid = result.radius > 1e-8
    assert proves_interior(result, rational(normals), rational(offsets)) == is_solid
    assert proves_empty(result, rational(normals), rational(offsets)) == (result.radius <= 0)


def test_two_halves_that_only_touch_are_proved_to_have_no_interior() -> None:
    normals, offsets = numpy.array([[3.0, 1.0], [-3.0, -1.0]]), numpy.array([1.0, -1.0])
    result = largest_ball(normals, offsets)
    assert result.radius == pytest.approx(0.0, abs=1e-9)
    assert proves_empty(result, rational(normals), rational(offsets))


def test_multipliers_that_do_not_combine_to_zero_prove_nothing() -> None:
    normals, offsets = rational(numpy.eye(2)), rational(-numpy.ones(2))
    assert not proves_empty(Ball(numpy.zeros(2), -1.0, numpy.ones(2)), normals, offsets)
    assert not proves_empty(Ball(numpy.zeros(2), -1.0, numpy.zeros(2)), normals, offsets)
    assert not proves_interior(Ball(numpy.ones(2), 1.0, numpy.ones(2)), normals, offsets)
    assert offsets[0] == Fraction(-1)


def test_a_solver_that_gives_up_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    class Failed:
        status = 4
        message = "numerical trouble"

    monkeypatch.setattr(
        "rankscope.lab.constructions.regions_space.linprog", lambda *_, **__: Failed()
    )
    with pytest.raises(
        ConstructionError, match=r"1 constraints in 2 dimensions: numerical trouble"
    ):
        largest_ball(numpy.ones((1, 2)), numpy.ones(1))


# Regions space.


@settings(deadline=None, max_examples=8)
@given(st.integers(1, 3), st.integers(1, 5), st.integers(0, 10**6))
def test_one_layer_in_general_position_has_zaslavskys_count(
    inputs: int, width: int, seed: int
) -> None:
    result = regions_in_space(random_network(inputs, width, 1, seed=seed))
    if result.smallest_margin > 1e-5:
        bound = zaslavsky_upper_bound(num_inputs=inputs, width=width)
        assert result.num_patterns == bound.value
        assert result.num_unproved == 0
        assert result.largest_rejected < 0 or result.num_patterns == 2**width


@settings(deadline=None, max_examples=10)
@given(st.lists(st.integers(1, 4), min_size=1, max_size=3), st.integers(0, 10**6))
def test_a_line_is_a_space_of_one_dimension(widths: list[int], seed: int) -> None:
    network = random_network(1, *widths, 1, seed=seed)
    line, space = regions_on_line(network, exactly=True), regions_in_space(network)
    if space.smallest_margin > 1e-6 and space.num_unproved == 0:
        assert space.num_patterns == line.num_patterns
        assert space.num_affine_pieces == line.num_affine_pieces


@settings(deadline=None, max_examples=6)
@given(st.integers(1, 3), st.integers(0, 10**6))
def test_every_pattern_of_a_dense_sample_is_found_once(width: int, seed: int) -> None:
    network = random_network(3, width, width, 1, seed=seed)
    result = regions_in_space(network, Box.of([-1.0] * 3, [1.0] * 3))
    sampled = sampled_patterns(network, points_in_square(3000, inputs=3, seed=seed))
    patterns = [region.pattern for region in result.regions]
    assert sampled <= set(patterns)
    assert len(set(patterns)) == len(patterns)
    assert len(patterns) <= (product_upper_bound(num_inputs=3, widths=[width] * 2).value or 0)


def test_each_region_carries_the_affine_map_of_the_network() -> None:
    network = random_network(3, 4, 3, 2, seed=1)
    for region in regions_in_space(network).regions:
        plain = evaluate(network, region.centre[None, :])[0]
        affine = region.weight.astype(float) @ region.centre + region.bias.astype(float)
        numpy.testing.assert_allclose(affine, plain, atol=1e-9)


def test_units_that_nothing_listens_to_and_constant_units_are_no_pieces() -> None:
    hidden = DenseLayer(
        numpy.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 0.0]]),
        numpy.array([0.0, 0.0, 1.0]),
    )
    deaf = relu_network([hidden, DenseLayer(numpy.array([[1.0, 0.0, 1.0]]), numpy.zeros(1))])
    result = regions_in_space(deaf)
    assert (result.num_patterns, result.num_affine_pieces) == (4, 2)
    assert "proved in fractions" in str(result)


def test_equal_functions_that_meet_in_an_edge_only_are_two_pieces() -> None:
    # ReLU(x) ReLU-like product: zero on two opposite quadrants, which share no face.
    hidden = DenseLayer(numpy.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]), numpy.zeros(3))
    second = DenseLayer(numpy.array([[-1.0, -1.0, 1.0]]), numpy.zeros(1))
    corner = relu_network([hidden, second, DenseLayer(numpy.ones((1, 1)), numpy.zeros(1))])
    # ReLU(ReLU(x + y) - ReLU(x) - ReLU(y)) is zero everywhere: one piece.
    assert regions_in_space(corner).num_affine_pieces == 1
    outer = relu_network([hidden, DenseLayer(-second.weight, second.bias)])
    # Without the last ReLU it is zero on the quadrants x, y > 0 and x, y < 0 only.
    assert regions_in_space(outer).num_affine_pieces == 6


def test_a_box_of_another_dimension_is_refused() -> None:
    with pytest.raises(ConstructionError, match=r"network has 2 inputs, the box 3"):
        regions_in_space(random_network(2, 2, 1, seed=0), Box.unit(3))


def test_too_many_regions_are_refused() -> None:
    with pytest.raises(TooLargeError, match=r"over the limit of 3"):
        regions_in_space(random_network(2, 4, 1, seed=0), max_regions=3)
