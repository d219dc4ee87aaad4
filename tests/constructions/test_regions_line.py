import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.constructions.strategies import piecewise_linear, random_network, sampled_patterns

from rankscope.constructions.dense import DenseLayer, evaluate, relu_network
from rankscope.constructions.piecewise_linear import (
    PiecewiseLinear,
    one_hidden_layer,
    read_piecewise_linear,
)
from rankscope.constructions.regions import product_upper_bound, regions_on_line
from rankscope.errors import ConstructionError

WIDTHS = st.lists(st.integers(1, 5), min_size=1, max_size=3)


@settings(deadline=None)
@given(WIDTHS, st.integers(1, 3), st.integers(0, 10**6))
def test_the_pieces_along_a_line_are_the_network(widths: list[int], inputs: int, seed: int) -> None:
    network = random_network(inputs, *widths, 2, seed=seed)
    draw = numpy.random.default_rng(seed)
    start, direction = draw.standard_normal(inputs), draw.standard_normal(inputs)
    found = regions_on_line(network, start, direction)
    times = draw.uniform(-3, 3, 100)
    plain = evaluate(network, start + times[:, None] * direction)
    for output in (0, 1):
        numpy.testing.assert_allclose(found.function(output)(times), plain[:, output], atol=1e-9)
    assert found.num_affine_pieces <= found.num_patterns
    assert found.num_patterns <= (product_upper_bound(num_inputs=1, widths=widths).value or 0)


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
    found = regions_on_line(network, ends=(-2.0, 2.0))
    sampled = sampled_patterns(network, numpy.linspace(-2, 2, 1001)[:, None])
    assert sampled <= {tuple(row) for row in found.patterns.tolist()}
    if found.smallest_margin > 0.005:
        assert len(sampled) == found.num_patterns


@settings(deadline=None)
@given(piecewise_linear())
def test_the_affine_pieces_of_one_hidden_layer_are_those_read_off_its_units(
    function: PiecewiseLinear,
) -> None:
    network = one_hidden_layer(function)
    found = regions_on_line(network, exactly=True)
    assert found.num_affine_pieces == len(read_piecewise_linear(network).slopes)
    assert (found.function().breakpoints == function.simplified().breakpoints).all()


def test_patterns_that_change_nothing_are_not_affine_pieces() -> None:
    hidden = DenseLayer(numpy.array([[1.0], [1.0]]), numpy.array([0.0, -1.0]))
    network = relu_network([hidden, DenseLayer(numpy.array([[1.0, 0.0]]), numpy.zeros(1))])
    found = regions_on_line(network)
    assert (found.num_patterns, found.num_affine_pieces) == (3, 2)
    assert found.smallest_margin == 1.0


def test_lines_that_do_not_fit_are_refused() -> None:
    network = random_network(2, 3, 1, seed=0)
    with pytest.raises(ConstructionError, match=r"2 inputs needs a direction"):
        regions_on_line(network)
    with pytest.raises(ConstructionError, match=r"vectors of 2 numbers, .* got .* \[0.0, 0.0\]"):
        regions_on_line(network, direction=numpy.zeros(2))
    with pytest.raises(ConstructionError, match=r"in order, got \(1.0, 0.0\)"):
        regions_on_line(network, direction=numpy.ones(2), ends=(1.0, 0.0))
