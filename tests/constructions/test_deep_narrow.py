import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.constructions.strategies import random_network

from rankscope.constructions.dense import Box, DenseLayer, dense_layers, evaluate, relu_network
from rankscope.constructions.explicit_networks import (
    MaxMinString,
    Step,
    narrow_form,
    narrow_network,
)
from rankscope.errors import ConstructionError

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
