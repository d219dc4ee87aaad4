import itertools
import math
from typing import Any, Literal, get_args

import numpy
import pytest
import torch
from hypothesis import assume, given, settings, strategies
from torch import nn
from torch.nn.utils import parametrizations

from rankscope.errors import ConstructionError, TooLargeError
from rankscope.lab.constructions import (
    Reals,
    SharedMatrix,
    as_matrix,
    shared_convolution,
    shared_graph_layer,
    shared_recurrence,
)
from rankscope.robust import OrthogonalConv2d

# Shared matrix.


@pytest.fixture
def matrix() -> SharedMatrix:
    """(w1, 0, 2 w3) and (0, 0, w3 - w1), with a term of coefficient zero."""
    return SharedMatrix(
        (2, 3),
        numpy.array([9.0, 5.0, 9.0, 7.0]),
        numpy.array([0, 0, 1, 1, 1]),
        numpy.array([0, 2, 2, 2, 0]),
        numpy.array([1, 3, 3, 1, 1]),
        numpy.array([1.0, 2.0, 1.0, -1.0, 0.0]),
        numpy.array([100.0, 200.0]),
    )


def test_terms_at_one_place_add_up(matrix: SharedMatrix) -> None:
    assert matrix.to_dense().tolist() == [[5.0, 0.0, 14.0], [0.0, 0.0, 2.0]]
    assert (matrix.to_sparse().toarray() == matrix.to_dense()).all()


def test_it_is_an_affine_map_of_rows(matrix: SharedMatrix) -> None:
    outputs = matrix(numpy.array([[1.0, 1.0, 1.0], [0.0, 0.0, -1.0]]))
    assert outputs.tolist() == [[119.0, 202.0], [86.0, 198.0]]


def test_it_counts_entries_and_weights(matrix: SharedMatrix) -> None:
    assert (matrix.num_entries, matrix.num_weights) == (3, 2)
    assert str(matrix) == "2 x 3 matrix, 3 of 6 entries, 2 different weights"


def test_it_says_where_a_weight_stands(matrix: SharedMatrix) -> None:
    assert matrix.places(3).tolist() == [[0, 2], [1, 2]]
    assert matrix.places(0).tolist() == []


# Structured matrix.


Mode = Literal["zeros", "circular", "reflect", "replicate"]
MODES: strategies.SearchStrategy[Mode] = strategies.sampled_from(get_args(Mode))
# One call for one and two axes, which no annotation of PyTorch allows.
CONVOLUTIONS: dict[int, Any] = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
TRANSPOSED: dict[int, Any] = {1: nn.ConvTranspose1d, 2: nn.ConvTranspose2d, 3: nn.ConvTranspose3d}
SMALL = strategies.integers(1, 3)


def with_integers(layer: nn.Module, seed: int = 0) -> nn.Module:
    """Small integer weights: sums of them are exact, so that equality can be asked for."""
    generator = torch.Generator().manual_seed(seed)
    for parameter in layer.parameters():
        parameter.data = torch.randint(
            -9, 10, parameter.shape, generator=generator, dtype=torch.float64
        )
    return layer


def assert_is_the_matrix(layer: nn.Module, input_shape: tuple[int, ...]) -> None:
    """Column j and the bias are what the layer makes of the unit vector j and of zero."""
    size = math.prod(input_shape)
    inputs = torch.eye(size, dtype=torch.float64).reshape(size, *input_shape)
    with torch.no_grad():
        zero = layer(torch.zeros(1, *input_shape, dtype=torch.float64)).flatten()
        columns = layer(inputs).flatten(1) - zero
    result = shared_convolution(layer, input_shape)
    numpy.testing.assert_array_equal(result.to_dense(), columns.numpy().T)
    numpy.testing.assert_array_equal(result.bias, zero.numpy())
    numpy.testing.assert_array_equal(as_matrix(layer, input_shape).toarray(), result.to_dense())


@strategies.composite
def sizes(draw: strategies.DrawFn, axes: int, low: int, high: int) -> tuple[int, ...]:
    return tuple(draw(strategies.integers(low, high)) for _ in range(axes))


@settings(deadline=None, max_examples=120)
@given(strategies.data(), strategies.integers(1, 2), MODES)
def test_the_matrix_is_the_convolution_index_by_index(
    data: strategies.DataObject, axes: int, mode: Mode
) -> None:
    groups, out_each, in_each = (data.draw(SMALL) for _ in range(3))
    shape = data.draw(sizes(axes, 3, 6))
    kernel, dilation = data.draw(sizes(axes, 1, 3)), data.draw(sizes(axes, 1, 2))
    stride, padding = data.draw(sizes(axes, 1, 3)), data.draw(sizes(axes, 0, 2))
    assume(
        all(
            shape[i] + 2 * padding[i] > dilation[i] * (kernel[i] - 1) and padding[i] < shape[i]
            for i in range(axes)
        )
    )
    layer = CONVOLUTIONS[axes](
        groups * in_each,
        groups * out_each,
        kernel,
        stride=stride,
        padding=padding,
        dilation=dilation,
        groups=groups,
        padding_mode=mode,
        bias=data.draw(strategies.booleans()),
    )
    assert_is_the_matrix(with_integers(layer), (groups * in_each, *shape))


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")
@settings(deadline=None, max_examples=40)
@given(sizes(2, 4, 6), sizes(2, 1, 4), sizes(2, 1, 2), MODES)
def test_same_padding_with_an_odd_place_puts_it_at_the_end(
    shape: tuple[int, ...], kernel: tuple[int, int], dilation: tuple[int, int], mode: Mode
) -> None:
    assume(all(dilation[i] * (kernel[i] - 1) < 2 * shape[i] - 1 for i in range(2)))
    layer = nn.Conv2d(1, 2, kernel, padding="same", dilation=dilation, padding_mode=mode)
    assert_is_the_matrix(with_integers(layer), (1, *shape))


@settings(deadline=None, max_examples=80)
@given(strategies.data(), strategies.integers(1, 2))
def test_the_matrix_is_the_transposed_convolution_index_by_index(
    data: strategies.DataObject, axes: int
) -> None:
    groups, out_each, in_each = (data.draw(SMALL) for _ in range(3))
    shape, kernel = data.draw(sizes(axes, 1, 4)), data.draw(sizes(axes, 1, 3))
    stride, dilation = data.draw(sizes(axes, 1, 3)), data.draw(sizes(axes, 1, 3))
    padding, extra = data.draw(sizes(axes, 0, 2)), data.draw(sizes(axes, 0, 2))
    assume(all(extra[i] < max(stride[i], dilation[i]) for i in range(axes)))
    spans = [dilation[i] * (kernel[i] - 1) + 1 for i in range(axes)]
    assume(
        all(
            (shape[i] - 1) * stride[i] - 2 * padding[i] + spans[i] + extra[i] >= 1
            for i in range(axes)
        )
    )
    layer = TRANSPOSED[axes](
        groups * in_each,
        groups * out_each,
        kernel,
        stride=stride,
        padding=padding,
        output_padding=extra,
        groups=groups,
        dilation=dilation,
    )
    assert_is_the_matrix(with_integers(layer), (groups * in_each, *shape))


@pytest.mark.parametrize("kind", [nn.Conv3d, nn.ConvTranspose3d])
def test_three_axes_work_too(kind: Any) -> None:
    layer = kind(2, 4, (2, 1, 3), stride=(1, 2, 1), padding=(1, 0, 1), groups=2)
    assert_is_the_matrix(with_integers(layer), (2, 2, 3, 4))


def test_without_padding_it_is_the_matrix_of_the_lecture() -> None:
    layer = nn.Conv1d(1, 1, 3, bias=False)
    with_integers(layer)
    kernel = layer.weight.detach().flatten().tolist()
    wanted = numpy.zeros((5, 7))
    for row, offset in itertools.product(range(5), range(3)):
        wanted[row, row + offset] = kernel[offset]
    assert (as_matrix(layer, (1, 7)).toarray() == wanted).all()


def test_each_weight_stands_once_in_each_row_of_its_channel() -> None:
    layer = nn.Conv2d(2, 3, 2)
    matrix = shared_convolution(layer, (2, 4, 5))
    assert matrix.num_weights == layer.weight.numel()
    positions = 3 * 4
    for source, value in enumerate(layer.weight.detach().double().flatten().tolist()):
        places = matrix.places(source)
        channel = source // (2 * 2 * 2)
        first = channel * positions
        assert places[:, 0].tolist() == list(range(first, first + positions))
        assert {matrix.to_dense()[row, column] for row, column in places} == {value}


def test_a_parametrized_layer_is_read_by_its_present_weight() -> None:
    layer = parametrizations.weight_norm(nn.Conv1d(1, 2, 3, dtype=torch.float64))
    columns = layer(torch.eye(6, dtype=torch.float64)[:, None]).flatten(1) - layer(
        torch.zeros(1, 1, 6, dtype=torch.float64)
    ).flatten(1)
    numpy.testing.assert_allclose(
        as_matrix(layer, (1, 6)).toarray(), columns.detach().numpy().T, atol=1e-15
    )


def test_other_layers_are_refused_by_name() -> None:
    with pytest.raises(ConstructionError, match=r"reads Conv1d, Conv2d.*a Linear is none of these"):
        as_matrix(nn.Linear(2, 2), (2,))


def test_a_subclass_with_another_forward_is_refused() -> None:
    class Odd(nn.Conv1d):
        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            return inputs

    with pytest.raises(ConstructionError, match="a Odd is none of these"):
        as_matrix(Odd(1, 1, 1), (1, 2))
    with pytest.raises(ConstructionError, match="a OrthogonalConv2d is none of these"):
        as_matrix(OrthogonalConv2d(2, 2, 3), (2, 4, 4))


def test_complex_weights_are_refused() -> None:
    with pytest.raises(ConstructionError, match=r"real weights, got torch.complex64"):
        as_matrix(nn.Conv1d(1, 1, 1, dtype=torch.complex64), (1, 2))


@pytest.mark.parametrize("shape", [(2,), (3, 5), (2, 0), (2, 5, 5)])
def test_a_shape_that_does_not_fit_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ConstructionError, match=r"2 axes.* of 2 channels.*input_shape \(") as error:
        as_matrix(nn.Conv1d(2, 1, 1), shape)
    assert str(shape) in str(error.value)


def test_a_kernel_longer_than_the_axis_is_refused() -> None:
    layer = nn.Conv2d(1, 1, (1, 3), dilation=(1, 4), padding=(0, 1))
    with pytest.raises(
        ConstructionError, match="of 3 with dilation 4 spans 9 places, but axis 1 ha"
    ):
        as_matrix(layer, (1, 9, 6))


@pytest.mark.parametrize(("mode", "most"), [("circular", 2), ("reflect", 1)])
def test_padding_that_pytorch_refuses_is_refused(mode: Mode, most: int) -> None:
    layer = nn.Conv1d(1, 1, 1, padding=3, padding_mode=mode)
    with pytest.raises(ConstructionError, match=f"{mode} padding of 3.* one of 2;.*allows {most}"):
        as_matrix(layer, (1, 2))
    with pytest.raises(RuntimeError):
        layer(torch.zeros(1, 1, 2))


def test_a_transposed_layer_without_outputs_is_refused() -> None:
    with pytest.raises(ConstructionError, match="axis 0 of 1 places would become one of -1"):
        as_matrix(nn.ConvTranspose1d(1, 1, 1, padding=1), (1, 1))


def test_a_matrix_that_would_not_fit_is_refused() -> None:
    with pytest.raises(TooLargeError, match="9,437,184,000 entries, over the limit of 50,000,000"):
        as_matrix(nn.Conv2d(256, 256, 3, padding=1), (256, 160, 100))


# Weight sharing.


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
    result = matrix(features.reshape(1, -1)).reshape(nodes, outputs)
    numpy.testing.assert_allclose(result, wanted, atol=1e-12)
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
