from itertools import pairwise

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.constructions.strategies import points_in_square, random_network, sampled_patterns

from rankscope.constructions.dense import Box, DenseLayer, evaluate, relu_network
from rankscope.constructions.regions import product_upper_bound, regions_in_plane
from rankscope.constructions.regions_space import regions_in_space
from rankscope.errors import ConstructionError, TooLargeError

SQUARE = Box.of([-1.0, -1.0], [1.0, 1.0])


@settings(deadline=None, max_examples=30)
@given(st.lists(st.integers(1, 6), min_size=1, max_size=3), st.integers(0, 10**6))
def test_polygons_cover_the_box_and_carry_the_network(widths: list[int], seed: int) -> None:
    network = random_network(2, *widths, 2, seed=seed)
    found = regions_in_plane(network, SQUARE)
    assert sum(region.polygon.area for region in found.regions) == pytest.approx(4.0)
    assert len({region.pattern for region in found.regions}) == found.num_patterns
    assert found.num_patterns <= (product_upper_bound(num_inputs=2, widths=widths).value or 0)
    for region in found.regions:
        corners = numpy.array(region.polygon.vertices)
        numpy.testing.assert_allclose(region.output(corners), evaluate(network, corners), atol=1e-9)


@settings(deadline=None, max_examples=15)
@given(st.lists(st.integers(1, 4), min_size=1, max_size=2), st.integers(0, 10**6))
def test_counts_agree_with_linear_programs_in_fractions(widths: list[int], seed: int) -> None:
    network = random_network(2, *widths, 1, seed=seed)
    polygons, polyhedra = regions_in_plane(network, SQUARE), regions_in_space(network, SQUARE)
    if polygons.smallest_margin > 1e-6:
        assert polyhedra.num_unproved == 0
        assert polygons.num_patterns == polyhedra.num_patterns
        assert polygons.num_affine_pieces == polyhedra.num_affine_pieces


@settings(deadline=None, max_examples=15)
@given(st.lists(st.integers(1, 4), min_size=1, max_size=2), st.integers(0, 10**6))
def test_counts_agree_where_lines_meet_in_points_and_on_lines(widths: list[int], seed: int) -> None:
    draw = numpy.random.default_rng(seed)
    sizes = [2, *widths, 1]
    layers = [
        DenseLayer(
            numpy.rint(draw.uniform(-2, 2, (outputs, inputs))),
            numpy.rint(draw.uniform(-2, 2, outputs)),
        )
        for inputs, outputs in pairwise(sizes)
    ]
    box = Box.of([-3.0, -3.0], [3.0, 3.0])
    network = relu_network(layers)
    polygons, polyhedra = regions_in_plane(network, box), regions_in_space(network, box)
    assert polyhedra.num_unproved == 0
    assert polygons.num_patterns == polyhedra.num_patterns
    assert polygons.num_affine_pieces == polyhedra.num_affine_pieces


@settings(deadline=None, max_examples=20)
@given(st.integers(1, 5), st.integers(0, 10**6))
def test_every_pattern_of_a_dense_sample_is_found(width: int, seed: int) -> None:
    network = random_network(2, width, width, 1, seed=seed)
    sampled = sampled_patterns(network, points_in_square(4000, seed=seed))
    assert sampled <= {region.pattern for region in regions_in_plane(network, SQUARE).regions}


@settings(deadline=None, max_examples=20)
@given(st.lists(st.integers(1, 5), min_size=1, max_size=2), st.integers(0, 10**6))
def test_neighbours_agree_on_the_edge_they_share(widths: list[int], seed: int) -> None:
    found = regions_in_plane(random_network(2, *widths, 1, seed=seed), SQUARE)
    for pair in found.neighbours:
        ends = numpy.array(pair.segment)
        first, second = (found.regions[n].output(ends) for n in (pair.first, pair.second))
        numpy.testing.assert_allclose(first, second, atol=1e-8)
    # Regions are connected: the neighbours of a box's regions span all of them.
    reached, waiting = {0}, [0]
    while waiting:
        here = waiting.pop()
        for pair in found.neighbours:
            if here in (pair.first, pair.second):
                other = pair.second if here == pair.first else pair.first
                if other not in reached:
                    reached.add(other)
                    waiting.append(other)
    assert len(reached) == found.num_patterns


def test_lines_that_nothing_listens_to_separate_patterns_but_no_pieces() -> None:
    hidden = DenseLayer(numpy.array([[1.0, 0.0], [0.0, 1.0]]), numpy.zeros(2))
    deaf = relu_network([hidden, DenseLayer(numpy.array([[1.0, 0.0]]), numpy.zeros(1))])
    found = regions_in_plane(deaf, SQUARE)
    assert (found.num_patterns, found.num_affine_pieces) == (4, 2)
    assert str(found).startswith("4 activation patterns, 2 affine pieces")


def test_equal_functions_that_do_not_touch_are_two_pieces() -> None:
    # Flat for x < -1/2 and for x > 1/2, a slope between.
    hidden = DenseLayer(
        numpy.array([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0]]), numpy.array([0.5, 0.0, -0.5])
    )
    hat = relu_network([hidden, DenseLayer(numpy.array([[1.0, -2.0, 1.0]]), numpy.zeros(1))])
    found = regions_in_plane(hat, SQUARE)
    assert (found.num_patterns, found.num_affine_pieces) == (4, 4)


def test_other_dimensions_are_refused() -> None:
    with pytest.raises(ConstructionError, match=r"got a network with 3 and a box with 2"):
        regions_in_plane(random_network(3, 2, 1, seed=0), SQUARE)


def test_too_many_regions_are_refused() -> None:
    with pytest.raises(TooLargeError, match=r"over the limit of 3"):
        regions_in_plane(random_network(2, 6, 1, seed=0), SQUARE, max_regions=3)
