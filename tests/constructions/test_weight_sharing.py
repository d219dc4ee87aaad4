import itertools

import numpy
import pytest
import torch
from hypothesis import given, settings, strategies
from torch import nn

from rankscope.constructions.dense import Reals
from rankscope.constructions.weight_sharing import (
    shared_graph_layer,
    shared_recurrence,
)
from rankscope.errors import ConstructionError

SIZE = strategies.integers(1, 4)


@settings(deadline=None, max_examples=40)
@given(
    SIZE, SIZE, strategies.integers(1, 6), strategies.sampled_from(["tanh", "relu"]),
    strategies.booleans(),
)  # fmt: skip
def test_one_dense_layer_applied_at_every_step_is_the_recurrence(
    inputs: int, hidden: int, num_steps: int, kind: str, has_bias: bool
) -> None:
    layer = nn.RNN(inputs, hidden, nonlinearity=kind, bias=has_bias, dtype=torch.float64)
    sequence = torch.randn(num_steps, inputs, dtype=torch.float64)
    initial = torch.randn(1, hidden, dtype=torch.float64)
    with torch.no_grad():
        wanted = layer(sequence, initial)[0].numpy()
    matrix = shared_recurrence(layer, num_steps)
    activate = numpy.tanh if kind == "tanh" else lambda values: numpy.maximum(values, 0)

    def renewed(states: Reals) -> Reals:
        before = numpy.concatenate([initial.numpy(), states[:-1]]).ravel()
        outputs = matrix(numpy.concatenate([before, sequence.numpy().ravel()])[None])
        values: Reals = activate(outputs).reshape(wanted.shape)
        return values

    # Each time one more state is right, whatever they were before.
    states = numpy.zeros_like(wanted)
    for _ in range(num_steps):
        states = renewed(states)
    numpy.testing.assert_allclose(states, wanted, rtol=1e-12, atol=1e-12)
    # All steps at once, from the states that are right.
    numpy.testing.assert_allclose(renewed(wanted), wanted, atol=1e-12)


def test_blocks_of_a_recurrence_are_the_same_matrix_again_and_again() -> None:
    layer = nn.RNN(2, 3)
    dense = shared_recurrence(layer, 4).to_dense()
    read, carry = (weight.detach().double().numpy() for weight in layer.all_weights[0][:2])
    for step, other in itertools.product(range(4), range(4)):
        rows = slice(3 * step, 3 * step + 3)
        same = float(step == other)
        assert (dense[rows, 3 * other : 3 * other + 3] == same * carry).all()
        assert (dense[rows, 12 + 2 * other : 14 + 2 * other] == same * read).all()


def test_each_weight_of_a_recurrence_stands_once_for_each_step() -> None:
    matrix = shared_recurrence(nn.RNN(2, 3), 5)
    assert matrix.num_weights == 9 + 6
    assert all(len(matrix.places(source)) == 5 for source in range(15))


@pytest.mark.parametrize(
    "layer",
    [nn.LSTM(2, 3), nn.GRU(2, 3), nn.RNN(2, 3, num_layers=2), nn.RNN(2, 3, bidirectional=True)],
)
def test_other_recurrences_are_refused_by_name(layer: nn.Module) -> None:
    with pytest.raises(ConstructionError, match=r"one layer and one direction.*got [A-Z]+\(2, 3"):
        shared_recurrence(layer, 3)


def test_no_step_is_refused() -> None:
    with pytest.raises(ConstructionError, match="at least 1 step, got 0"):
        shared_recurrence(nn.RNN(2, 3), 0)


@settings(deadline=None, max_examples=40)
@given(SIZE, SIZE, SIZE, strategies.integers(0, 999))
def test_a_graph_layer_is_the_kronecker_product(
    nodes: int, outputs: int, inputs: int, seed: int
) -> None:
    generator = numpy.random.default_rng(seed)
    adjacency = generator.integers(-1, 3, (nodes, nodes)).astype(float)
    weight, bias = generator.normal(size=(outputs, inputs)), generator.normal(size=outputs)
    matrix = shared_graph_layer(adjacency, weight, bias)
    features = generator.normal(size=(nodes, inputs))
    wanted = numpy.einsum("ij,jb,ab->ia", adjacency, features, weight) + bias
    found = matrix(features.reshape(1, -1)).reshape(nodes, outputs)
    numpy.testing.assert_allclose(found, wanted, atol=1e-12)
    numpy.testing.assert_array_equal(matrix.to_dense(), numpy.kron(adjacency, weight))


def test_a_graph_layer_does_not_care_how_nodes_are_numbered() -> None:
    generator = numpy.random.default_rng(0)
    adjacency, features = generator.random((5, 5)), generator.normal(size=(5, 3))
    weight = generator.normal(size=(2, 3))
    order = generator.permutation(5)
    plain = shared_graph_layer(adjacency, weight)(features.reshape(1, -1)).reshape(5, 2)
    again = shared_graph_layer(adjacency[order][:, order], weight)(
        features[order].reshape(1, -1)
    ).reshape(5, 2)
    numpy.testing.assert_allclose(again, plain[order], atol=1e-14)


def test_each_weight_of_a_graph_layer_stands_once_for_each_edge() -> None:
    adjacency = numpy.array([[0.0, 1.0, 0.0], [1.0, 0.0, 1.0], [0.0, 1.0, 0.0]])
    matrix = shared_graph_layer(adjacency, numpy.ones((2, 2)))
    assert [len(matrix.places(source)) for source in range(4)] == [4, 4, 4, 4]


@pytest.mark.parametrize(
    ("adjacency", "weight", "bias", "message"),
    [
        ((2, 3), (2, 2), (2,), r"shapes \(2, 3\), \(2, 2\) and \(2,\)"),
        ((2, 2), (2,), (2,), r"shapes \(2, 2\), \(2,\) and \(2,\)"),
        ((2, 2), (4, 2), (2,), r"shapes \(2, 2\), \(4, 2\) and \(2,\)"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(
    adjacency: tuple[int, ...], weight: tuple[int, ...], bias: tuple[int, ...], message: str
) -> None:
    with pytest.raises(ConstructionError, match=message):
        shared_graph_layer(numpy.zeros(adjacency), numpy.zeros(weight), numpy.zeros(bias))


def test_numbers_that_are_not_finite_are_refused() -> None:
    with pytest.raises(ConstructionError, match="weight must be finite, got nan at position 0"):
        shared_graph_layer(numpy.eye(2), numpy.array([[numpy.nan]]))
