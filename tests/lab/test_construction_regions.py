from itertools import pairwise

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.lab.strategies import (
    piecewise_linear,
    points_in_square,
    random_network,
    sampled_patterns,
)

from rankscope.errors import ConstructionError, TooLargeError
from rankscope.lab.constructions import (
    Box,
    DenseLayer,
    PiecewiseLinear,
    Polygon,
    evaluate,
    montufar_lower_bound,
    one_hidden_layer,
    product_upper_bound,
    read_piecewise_linear,
    regions_in_plane,
    regions_in_space,
    regions_on_line,
    relu_network,
    zaslavsky_upper_bound,
)
from rankscope.lab.constructions.regions import split

# Region bounds.


@pytest.mark.parametrize(
    ("num_inputs", "widths", "lower", "upper"),
    [
        (1, [2, 2, 2], 12, 27),
        (1, [4, 4], 20, 25),
        (2, [4], 11, 11),
        (2, [4, 4], 44, 121),
        (2, [4, 4, 4], 176, 1331),
        (2, [8, 8, 8], 9472, 50653),
        (3, [6, 6], 336, 1764),
    ],
)
def test_bounds_are_those_of_the_specification(
    num_inputs: int, widths: list[int], lower: int, upper: int
) -> None:
    assert montufar_lower_bound(num_inputs=num_inputs, widths=widths).value == lower
    assert product_upper_bound(num_inputs=num_inputs, widths=widths).value == upper


@pytest.mark.parametrize(("num_inputs", "width"), [(1, 1), (2, 7), (3, 5), (5, 3)])
def test_one_layer_has_the_regions_of_an_arrangement(num_inputs: int, width: int) -> None:
    # Adding a hyperplane adds the regions of the arrangement that the others cut into it.
    def regions(dimension: int, planes: int) -> int:
        if dimension == 0 or planes == 0:
            return 1
        return regions(dimension, planes - 1) + regions(dimension - 1, planes - 1)

    bound = zaslavsky_upper_bound(num_inputs=num_inputs, width=width)
    assert bound.value == regions(num_inputs, width)
    assert bound.value == product_upper_bound(num_inputs=num_inputs, widths=[width]).value


def test_a_narrow_layer_stays_narrow_in_the_product() -> None:
    # After one unit everything is a line.
    assert product_upper_bound(num_inputs=3, widths=[1, 5]).value == 2 * 6


def test_sizes_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ConstructionError, match=r"got 0 inputs and widths \[3\]"):
        zaslavsky_upper_bound(num_inputs=0, width=3)
    with pytest.raises(ConstructionError, match=r"got 2 inputs and widths \[\]"):
        product_upper_bound(num_inputs=2, widths=[])
    with pytest.raises(ConstructionError, match=r"layer 2 has 1 units, fewer than the 2 inputs"):
        montufar_lower_bound(num_inputs=2, widths=[4, 1])


# Regions line.


WIDTHS = st.lists(st.integers(1, 5), min_size=1, max_size=3)


@settings(deadline=None)
@given(WIDTHS, st.integers(1, 3), st.integers(0, 10**6))
def test_the_pieces_along_a_line_are_the_network(widths: list[int], inputs: int, seed: int) -> None:
    network = random_network(inputs, *widths, 2, seed=seed)
    draw = numpy.random.default_rng(seed)
    start, direction = draw.standard_normal(inputs), draw.standard_normal(inputs)
    result = regions_on_line(network, start, direction)
    times = draw.uniform(-3, 3, 100)
    plain = evaluate(network, start + times[:, None] * direction)
    for output in (0, 1):
        numpy.testing.assert_allclose(result.function(output)(times), plain[:, output], atol=1e-9)
    assert result.num_affine_pieces <= result.num_patterns
    assert result.num_patterns <= (product_upper_bound(num_inputs=1, widths=widths).value or 0)


@settings(deadline=None, max_examples=30)
@given(WIDTHS, st.integers(0, 10**6))
def test_floats_and_fractions_count_alike(widths: list[int], seed: int) -> None:
    network = random_network(1, *widths, 1, seed=seed)
    floats, fractions = (regions_on_line(network, exactly=exactly) for exactly in (False, True))
    assert floats.num_patterns == fractions.num_patterns
    assert floats.num_affine_pieces == fractions.num_affine_pieces
    assert (floats.patterns == fractions.patterns).all()
    numpy.testing.assert_allclose(
        floats.function()(numpy.arange(5.0)), fractions.function()(numpy.arange(5.0)), atol=1e-9
    )


@settings(deadline=None)
@given(WIDTHS, st.integers(0, 10**6))
def test_patterns_are_those_of_a_dense_sample(widths: list[int], seed: int) -> None:
    network = random_network(1, *widths, 1, seed=seed)
    result = regions_on_line(network, ends=(-2.0, 2.0))
    sampled = sampled_patterns(network, numpy.linspace(-2, 2, 1001)[:, None])
    assert sampled <= {tuple(row) for row in result.patterns.tolist()}
    if result.smallest_margin > 0.005:
        assert len(sampled) == result.num_patterns


@settings(deadline=None)
@given(piecewise_linear())
def test_the_affine_pieces_of_one_hidden_layer_are_those_read_off_its_units(
    function: PiecewiseLinear,
) -> None:
    network = one_hidden_layer(function)
    result = regions_on_line(network, exactly=True)
    assert result.num_affine_pieces == len(read_piecewise_linear(network).slopes)
    assert (result.function().breakpoints == function.simplified().breakpoints).all()


def test_patterns_that_change_nothing_are_not_affine_pieces() -> None:
    hidden = DenseLayer(numpy.array([[1.0], [1.0]]), numpy.array([0.0, -1.0]))
    network = relu_network([hidden, DenseLayer(numpy.array([[1.0, 0.0]]), numpy.zeros(1))])
    result = regions_on_line(network)
    assert (result.num_patterns, result.num_affine_pieces) == (3, 2)
    assert result.smallest_margin == 1.0


def test_lines_that_do_not_fit_are_refused() -> None:
    network = random_network(2, 3, 1, seed=0)
    with pytest.raises(ConstructionError, match=r"2 inputs needs a direction"):
        regions_on_line(network)
    with pytest.raises(ConstructionError, match=r"vectors of 2 numbers, .* got .* \[0.0, 0.0\]"):
        regions_on_line(network, direction=numpy.zeros(2))
    with pytest.raises(ConstructionError, match=r"in order, got \(1.0, 0.0\)"):
        regions_on_line(network, direction=numpy.ones(2), ends=(1.0, 0.0))


# Polygons.


SQUARE = Polygon(((0.0, 0.0), (1.0, 0.0), (1.0, 1.0), (0.0, 1.0)), (-1, -1, -1, -1))


@settings(deadline=None)
@given(st.lists(st.tuples(*[st.floats(-1, 1)] * 3), max_size=6))
def test_cutting_keeps_the_area_and_puts_each_part_on_its_side(
    lines: list[tuple[float, float, float]],
) -> None:
    polygons = [SQUARE]
    for number, (a, b, c) in enumerate(lines):
        following: list[Polygon] = []
        for polygon in polygons:
            values = [a * x + b * y + c for x, y in polygon.vertices]
            parts = split(polygon, values, 1e-12, number)
            if parts is not None:
                for part, sign in zip(parts, (1, -1), strict=True):
                    assert all(sign * (a * x + b * y + c) >= -1e-9 for x, y in part.vertices)
                    assert number in part.cuts
            following.extend(parts or (polygon,))
        polygons = following
    numpy.testing.assert_allclose(sum(polygon.area for polygon in polygons), 1.0, atol=1e-9)


def test_an_edge_remembers_its_cut() -> None:
    left, right = split(SQUARE, [0.5 - x for x, _ in SQUARE.vertices], 1e-12, 7) or (SQUARE, SQUARE)
    for part in (left, right):
        assert len(part.vertices) == 4
        place = part.cuts.index(7)
        ends = part.vertices[place], part.vertices[(place + 1) % 4]
        assert {end[0] for end in ends} == {0.5}
        assert sorted(part.cuts) == [-1, -1, -1, 7]


def test_a_diagonal_cut_through_corners_makes_triangles() -> None:
    parts = split(SQUARE, [x - y for x, y in SQUARE.vertices], 1e-12, 3)
    assert parts is not None
    assert [len(part.vertices) for part in parts] == [3, 3]
    assert all(sorted(part.cuts) == [-1, -1, 3] for part in parts)


def test_a_line_along_an_edge_cuts_nothing() -> None:
    assert split(SQUARE, [x for x, _ in SQUARE.vertices], 1e-12, 0) is None


def test_the_inner_radius_is_no_larger_than_that_of_the_inscribed_circle() -> None:
    assert SQUARE.area == 1.0
    assert SQUARE.inner_radius == 0.25


# Regions plane.


UNIT_BOX = Box.of([-1.0, -1.0], [1.0, 1.0])


@settings(deadline=None, max_examples=30)
@given(st.lists(st.integers(1, 6), min_size=1, max_size=3), st.integers(0, 10**6))
def test_polygons_cover_the_box_and_carry_the_network(widths: list[int], seed: int) -> None:
    network = random_network(2, *widths, 2, seed=seed)
    result = regions_in_plane(network, UNIT_BOX)
    assert sum(region.polygon.area for region in result.regions) == pytest.approx(4.0)
    assert len({region.pattern for region in result.regions}) == result.num_patterns
    assert result.num_patterns <= (product_upper_bound(num_inputs=2, widths=widths).value or 0)
    for region in result.regions:
        corners = numpy.array(region.polygon.vertices)
        numpy.testing.assert_allclose(region.output(corners), evaluate(network, corners), atol=1e-9)


@settings(deadline=None, max_examples=15)
@given(st.lists(st.integers(1, 4), min_size=1, max_size=2), st.integers(0, 10**6))
def test_counts_agree_with_linear_programs_in_fractions(widths: list[int], seed: int) -> None:
    network = random_network(2, *widths, 1, seed=seed)
    polygons, polyhedra = regions_in_plane(network, UNIT_BOX), regions_in_space(network, UNIT_BOX)
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
    assert sampled <= {region.pattern for region in regions_in_plane(network, UNIT_BOX).regions}


@settings(deadline=None, max_examples=20)
@given(st.lists(st.integers(1, 5), min_size=1, max_size=2), st.integers(0, 10**6))
def test_neighbours_agree_on_the_edge_they_share(widths: list[int], seed: int) -> None:
    result = regions_in_plane(random_network(2, *widths, 1, seed=seed), UNIT_BOX)
    for pair in result.neighbours:
        ends = numpy.array(pair.segment)
        first, second = (result.regions[n].output(ends) for n in (pair.first, pair.second))
        numpy.testing.assert_allclose(first, second, atol=1e-8)
    # Regions are connected: the neighbours of a box's regions span all of them.
    reached, waiting = {0}, [0]
    while waiting:
        here = waiting.pop()
        for pair in result.neighbours:
            if here in (pair.first, pair.second):
                other = pair.second if here == pair.first else pair.first
                if other not in reached:
                    reached.add(other)
                    waiting.append(other)
    assert len(reached) == result.num_patterns


def test_lines_that_nothing_listens_to_separate_patterns_but_no_pieces() -> None:
    hidden = DenseLayer(numpy.array([[1.0, 0.0], [0.0, 1.0]]), numpy.zeros(2))
    deaf = relu_network([hidden, DenseLayer(numpy.array([[1.0, 0.0]]), numpy.zeros(1))])
    result = regions_in_plane(deaf, UNIT_BOX)
    assert (result.num_patterns, result.num_affine_pieces) == (4, 2)
    assert str(result).startswith("4 activation patterns, 2 affine pieces")


def test_equal_functions_that_do_not_touch_are_two_pieces() -> None:
    # Flat for x < -1/2 and for x > 1/2, a slope between.
    hidden = DenseLayer(
        numpy.array([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0]]), numpy.array([0.5, 0.0, -0.5])
    )
    hat = relu_network([hidden, DenseLayer(numpy.array([[1.0, -2.0, 1.0]]), numpy.zeros(1))])
    result = regions_in_plane(hat, UNIT_BOX)
    assert (result.num_patterns, result.num_affine_pieces) == (4, 4)


def test_other_dimensions_are_refused() -> None:
    with pytest.raises(ConstructionError, match=r"got a network with 3 and a box with 2"):
        regions_in_plane(random_network(3, 2, 1, seed=0), UNIT_BOX)


def test_too_many_regions_are_refused() -> None:
    with pytest.raises(TooLargeError, match=r"over the limit of 3"):
        regions_in_plane(random_network(2, 6, 1, seed=0), UNIT_BOX, max_regions=3)
