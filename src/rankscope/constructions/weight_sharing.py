"""A recurrence and a graph layer as dense layers that repeat a few weights.

The third form of weight sharing, the convolution, is in `structured_matrix`.
"""

import numpy
from torch import nn

from rankscope.constructions.dense import Reals, require_finite
from rankscope.constructions.shared_matrix import Integers, SharedMatrix
from rankscope.errors import ConstructionError


def shared_recurrence(layer: nn.Module, num_steps: int) -> SharedMatrix:
    r"""All steps of a recurrence as one dense layer, before its activation.

    .. math:: h_t = \sigma(W h_{t-1} + U x_t + b), \qquad t = 1, \dots, T

    Rows are h_1, …, h_T; columns are h_0, …, h_{T-1} and then x_1, …, x_T. The blocks W stand below
    the block diagonal that h_1, …, h_T would have, the blocks U on that of x_1, …, x_T. Weights are
    those of W, then those of U; both biases of PyTorch are added up.

    Example:
        >>> print(shared_recurrence(nn.RNN(2, 3), 4))
        12 x 20 matrix, 60 of 240 entries, 15 different weights

    Raises:
        ConstructionError: if the layer is not an RNN of one layer and one direction, or there is
            no step.
    """
    layer = _recurrence(layer, num_steps)
    hidden, inputs = layer.hidden_size, layer.input_size
    read, carry, *biases = (part.detach().cpu().double().numpy() for part in layer.all_weights[0])
    once = numpy.eye(num_steps)
    states = _kronecker(once, carry.shape, first_source=0, first_column=0)
    reads = _kronecker(once, read.shape, first_source=carry.size, first_column=num_steps * hidden)
    rows, columns, sources = (numpy.concatenate(pair) for pair in zip(states, reads, strict=True))
    bias = numpy.sum(biases, axis=0) if biases else numpy.zeros(hidden)
    return SharedMatrix(
        (num_steps * hidden, num_steps * (hidden + inputs)),
        numpy.concatenate([carry.ravel(), read.ravel()]),
        rows,
        columns,
        sources,
        numpy.ones(len(rows)),
        numpy.tile(bias, num_steps),
    )


def unrolled_states(layer: nn.Module, inputs: Reals, initial: Reals) -> Reals:
    """The states of a recurrence, by one dense layer that is applied once for each step.

    The layer maps (h_0, …, h_T, x) to itself with h_1, …, h_T renewed. Each time one more state is
    right, whatever they were before; after T times all are.

    Args:
        layer: an `nn.RNN` of one layer and one direction.
        inputs: (steps, inputs).
        initial: h_0.

    Raises:
        ConstructionError: as `shared_recurrence`.
    """
    matrix = shared_recurrence(layer, len(inputs))
    recurrence = _recurrence(layer, len(inputs))
    activation = numpy.tanh if recurrence.nonlinearity == "tanh" else _relu
    states = numpy.zeros((len(inputs), recurrence.hidden_size))
    for _ in range(len(inputs)):
        before = numpy.concatenate([initial.ravel(), states[:-1].ravel(), inputs.ravel()])
        states = activation(matrix(before[None])).reshape(states.shape)
    return states


def _relu(values: Reals) -> Reals:
    return numpy.maximum(values, 0.0)


def _recurrence(layer: nn.Module, num_steps: int) -> nn.RNN:
    # Also a subclass may be meant otherwise: exactly this class.
    if type(layer) is not nn.RNN or layer.num_layers != 1 or layer.bidirectional:
        raise ConstructionError(
            "shared_recurrence reads an RNN of one layer and one direction, whose step is affine "
            f"before its activation; got {layer}."
        )
    if num_steps < 1:
        raise ConstructionError(f"shared_recurrence needs at least 1 step, got {num_steps}.")
    return layer


def shared_graph_layer(adjacency: Reals, weight: Reals, bias: Reals | None = None) -> SharedMatrix:
    r"""A graph layer as one dense layer with the matrix A ⊗ W, before its activation.

    .. math:: h'_i = W \sum_j A_{ij} h_j + b, \qquad M_{(i,a),(j,b)} = A_{ij} W_{ab}

    Rows and columns run over nodes first, then features.

    Args:
        adjacency: A; how much node i hears of node j.
        weight: W, (features out, features in).
        bias: b, the same at each node; zero if left out.

    Example:
        >>> ring = numpy.roll(numpy.eye(5), 1, axis=1)
        >>> print(shared_graph_layer(ring, numpy.ones((2, 3))))
        10 x 15 matrix, 30 of 150 entries, 6 different weights

    Raises:
        ConstructionError: if A is not a square matrix, W not a matrix, the bias of another length,
            or a number not finite.
    """
    bias = numpy.zeros(len(weight)) if bias is None else bias
    square = adjacency.ndim == 2 and adjacency.shape[0] == adjacency.shape[1]
    if not square or weight.ndim != 2 or bias.shape != weight.shape[:1]:
        raise ConstructionError(
            "shared_graph_layer needs a square adjacency, a matrix as weight and a bias as long as "
            f"its rows, got shapes {adjacency.shape}, {weight.shape} and {bias.shape}."
        )
    require_finite("shared_graph_layer", adjacency=adjacency, weight=weight, bias=bias)
    rows, columns, sources = _kronecker(adjacency, weight.shape, first_source=0, first_column=0)
    return SharedMatrix(
        (len(adjacency) * weight.shape[0], len(adjacency) * weight.shape[1]),
        weight.ravel(),
        rows,
        columns,
        sources,
        adjacency[adjacency != 0].repeat(weight.size),
        numpy.tile(bias, len(adjacency)),
    )


def _kronecker(
    blocks: Reals, shape: tuple[int, ...], *, first_source: int, first_column: int
) -> tuple[Integers, Integers, Integers]:
    """Rows, columns and sources of the Kronecker product of `blocks` and a matrix of weights."""
    block_rows, block_columns = numpy.nonzero(blocks)
    height, width = shape
    block, row, column = numpy.ogrid[: len(block_rows), :height, :width]
    rows = block_rows[block] * height + row
    columns = first_column + block_columns[block] * width + column
    sources = first_source + row * width + column
    rows, columns, sources = numpy.broadcast_arrays(rows, columns, sources)
    return rows.ravel(), columns.ravel(), sources.ravel()
