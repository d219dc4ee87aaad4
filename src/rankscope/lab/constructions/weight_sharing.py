"""Layers that repeat a few weights, as matrices: convolutions, recurrences and graph layers."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy
from numpy.typing import NDArray
from scipy import sparse
from torch import nn

from rankscope.errors import ConstructionError, TooLargeError
from rankscope.lab.constructions.dense import Reals, require_finite

# A dense layer whose matrix repeats a few weights: weight sharing, entry by entry.


Integers = NDArray[numpy.int64]


@dataclass(frozen=True, eq=False)
class SharedMatrix:
    """The affine map x -> M x + `bias`, with M written as terms.

    Term n adds `coefficients[n]` times `weights[sources[n]]` to M at `rows[n]`, `columns[n]`. An
    entry without a term is zero whatever the weights; one place may have several terms.

    Args:
        shape: of M.
        weights: the free numbers, as one list.
        rows: of the terms.
        columns: of the terms.
        sources: which weight each term repeats.
        coefficients: how often; 1 in convolutions and recurrences.
        bias: one for each row.
    """

    shape: tuple[int, int]
    weights: Reals
    rows: Integers
    columns: Integers
    sources: Integers
    coefficients: Reals
    bias: Reals

    def to_sparse(self) -> sparse.csr_array:
        """M, with several terms at one place added up."""
        terms = self.coefficients * self.weights[self.sources]
        return sparse.coo_array((terms, (self.rows, self.columns)), shape=self.shape).tocsr()

    def to_dense(self) -> Reals:
        """M as an array."""
        return numpy.asarray(self.to_sparse().toarray())

    def __call__(self, vectors: Reals) -> Reals:
        """Apply the affine map to each row of `vectors`."""
        return numpy.asarray((self.to_sparse() @ vectors.T).T + self.bias)

    @property
    def num_entries(self) -> int:
        """How many entries of M are not zero for almost all weights."""
        places = self.rows * self.shape[1] + self.columns
        return len(numpy.unique(places[self.coefficients != 0]))

    @property
    def num_weights(self) -> int:
        """How many different weights stand in M."""
        return len(numpy.unique(self.sources))

    def places(self, source: int) -> Integers:
        """Rows and columns where a weight stands, one pair for each term.

        These entries are equal where they have no other term and the same coefficient.
        """
        chosen = self.sources == source
        return numpy.stack([self.rows[chosen], self.columns[chosen]], axis=1)

    def __str__(self) -> str:
        rows, columns = self.shape
        return (
            f"{rows} x {columns} matrix, {self.num_entries:,} of {rows * columns:,} entries, "
            f"{self.num_weights:,} different weights"
        )


# A convolution as a sparse matrix, for every stride, padding, dilation and number of groups.


Convolution = nn.Conv1d | nn.Conv2d | nn.Conv3d
TransposedConvolution = nn.ConvTranspose1d | nn.ConvTranspose2d | nn.ConvTranspose3d
KINDS = (*Convolution.__args__, *TransposedConvolution.__args__)
# About 60 bytes each.
MAX_TERMS = 5 * 10**7


@dataclass(frozen=True)
class _Axis:
    """One spatial axis of a convolution that reads `size` places and writes `count`."""

    size: int
    count: int
    kernel: int
    stride: int
    dilation: int
    before: int

    def reads(self, mode: str) -> Integers:
        """Which place each output reads under each kernel entry; -1 where there is only zero."""
        starts = numpy.arange(self.count)[:, None] * self.stride - self.before
        places = starts + numpy.arange(self.kernel) * self.dilation
        match mode:
            case "zeros":
                return numpy.where((places >= 0) & (places < self.size), places, -1)
            case "circular":
                return numpy.asarray(places % self.size)
            case "replicate":
                return places.clip(0, self.size - 1)
            case _:  # reflect: there and back again, the ends once
                period = max(2 * (self.size - 1), 1)
                return numpy.asarray(self.size - 1 - numpy.abs(places % period - (self.size - 1)))


def as_matrix(layer: nn.Module, input_shape: Sequence[int]) -> sparse.csr_array:
    """The matrix of a convolution: rows are its flattened outputs, columns its flattened inputs.

    The bias is left out; `shared_convolution` has it, and says which weight each entry is.

    Args:
        layer: Conv1d, Conv2d, Conv3d, or one of their transposed kin.
        input_shape: channels and sizes, without the batch.

    Example:
        >>> import torch
        >>> layer = nn.Conv1d(1, 1, 3, bias=False)
        >>> _ = layer.weight.data.copy_(torch.tensor([[[1.0, 2.0, 3.0]]]))
        >>> print(as_matrix(layer, (1, 5)).toarray().astype(int))
        [[1 2 3 0 0]
         [0 1 2 3 0]
         [0 0 1 2 3]]

    Raises:
        ConstructionError: as `shared_convolution`.
        TooLargeError: if there would be more than 5 · 10^7 terms.
    """
    return shared_convolution(layer, input_shape).to_sparse()


def shared_convolution(layer: nn.Module, input_shape: Sequence[int]) -> SharedMatrix:
    """A convolution as a dense layer, with the weight that each entry of its matrix repeats.

    Example:
        >>> print(shared_convolution(nn.Conv1d(1, 1, 3), (1, 10)))
        8 x 10 matrix, 24 of 80 entries, 3 different weights

    Raises:
        ConstructionError: if the layer is of another kind, its weight is complex, or the shape
            does not fit it.
        TooLargeError: if there would be more than 5 · 10^7 terms.

    Reference:
        Diehl (2023), Section 1.1, the matrix A of a convolutional layer.
    """
    convolution = _convolution(layer)
    sizes = _sizes(convolution, input_shape)
    if isinstance(convolution, TransposedConvolution):
        axes = _transposed_axes(convolution, sizes)
        # The transposed layer is the transposed matrix of the convolution that reads its outputs.
        matrix = _terms(convolution, axes, convolution.out_channels)
        shape = matrix.shape[1], matrix.shape[0]
        rows, columns = matrix.columns, matrix.rows
        positions = math.prod(axis.size for axis in axes)
    else:
        axes = _axes(convolution, sizes)
        matrix = _terms(convolution, axes, convolution.in_channels)
        shape, rows, columns = matrix.shape, matrix.rows, matrix.columns
        positions = math.prod(axis.count for axis in axes)
    bias = numpy.zeros(shape[0])
    if convolution.bias is not None:
        bias = convolution.bias.detach().cpu().double().numpy().repeat(positions)
    return SharedMatrix(
        shape, matrix.weights, rows, columns, matrix.sources, matrix.coefficients, bias
    )


def _convolution(layer: nn.Module) -> Convolution | TransposedConvolution:
    # A subclass with a forward of its own need not be a convolution.
    if not isinstance(layer, KINDS) or not any(
        type(layer).forward is kind.forward for kind in KINDS
    ):
        raise ConstructionError(
            f"as_matrix reads {', '.join(kind.__name__ for kind in KINDS)}; a "
            f"{type(layer).__name__} is none of these, and has no convolution's matrix."
        )
    if layer.weight.is_complex():
        raise ConstructionError(f"as_matrix needs real weights, got {layer.weight.dtype}.")
    result: Convolution | TransposedConvolution = layer
    return result


def _sizes(layer: Convolution | TransposedConvolution, input_shape: Sequence[int]) -> list[int]:
    wanted = 1 + len(layer.kernel_size)
    if len(input_shape) != wanted or input_shape[0] != layer.in_channels or min(input_shape) < 1:
        raise ConstructionError(
            f"as_matrix: {type(layer).__name__} reads {wanted} axes without the batch, the first "
            f"of {layer.in_channels} channels, none empty; got input_shape {tuple(input_shape)}."
        )
    return list(input_shape[1:])


def _axes(layer: Convolution, sizes: list[int]) -> list[_Axis]:
    axes = []
    for place, size in enumerate(sizes):
        kernel, stride = layer.kernel_size[place], layer.stride[place]
        dilation = layer.dilation[place]
        if layer.padding == "same":
            total = dilation * (kernel - 1)
            before = total // 2
        else:
            before = 0 if isinstance(layer.padding, str) else layer.padding[place]
            total = 2 * before
        _require_padding(layer, size, max(before, total - before))
        reach = size + total - dilation * (kernel - 1) - 1
        if reach < 0:
            raise ConstructionError(
                f"as_matrix: a kernel of {kernel} with dilation {dilation} spans "
                f"{dilation * (kernel - 1) + 1} places, but axis {place} has {size + total} with "
                "its padding."
            )
        axes.append(_Axis(size, reach // stride + 1, kernel, stride, dilation, before))
    return axes


def _require_padding(layer: Convolution, size: int, padding: int) -> None:
    most = {"circular": size, "reflect": size - 1}.get(layer.padding_mode, padding)
    if padding > most:
        raise ConstructionError(
            f"as_matrix: {layer.padding_mode} padding of {padding} needs an axis longer than this "
            f"one of {size}; PyTorch allows {most}."
        )


def _transposed_axes(layer: TransposedConvolution, sizes: list[int]) -> list[_Axis]:
    axes = []
    for place, count in enumerate(sizes):
        kernel, stride = layer.kernel_size[place], layer.stride[place]
        dilation, before = layer.dilation[place], int(layer.padding[place])
        span = dilation * (kernel - 1) + 1
        size = (count - 1) * stride - 2 * before + span + layer.output_padding[place]
        if size < 1:
            raise ConstructionError(
                f"as_matrix: axis {place} of {count} places would become one of {size}."
            )
        axes.append(_Axis(size, count, kernel, stride, dilation, before))
    return axes


def _terms(
    layer: Convolution | TransposedConvolution, axes: list[_Axis], channels: int
) -> SharedMatrix:
    """Terms of a convolution that reads `channels` channels, by its weight (out, in, kernel)."""
    outputs, per_group = layer.weight.shape[:2]
    reads = _reads(axes, layer.padding_mode)
    positions, kernel = reads.shape
    if layer.weight.numel() * positions > MAX_TERMS:
        raise TooLargeError(
            what="as_matrix",
            entries=layer.weight.numel() * positions,
            limit=MAX_TERMS,
            instead="Use a smaller input_shape, or the layer itself.",
        )
    size = math.prod(axis.size for axis in axes)
    output, offset, position, entry = numpy.ogrid[:outputs, :per_group, :positions, :kernel]
    group = output // (outputs // layer.groups)
    place = reads[position, entry]
    columns = (group * per_group + offset) * size + place
    rows = output * positions + position
    sources = (output * per_group + offset) * kernel + entry
    rows, columns, sources, place = numpy.broadcast_arrays(rows, columns, sources, place)
    real = place >= 0
    return SharedMatrix(
        (outputs * positions, channels * size),
        layer.weight.detach().cpu().double().numpy().ravel(),
        rows[real],
        columns[real],
        sources[real],
        numpy.ones(int(real.sum())),
        numpy.zeros(outputs * positions),
    )


def _reads(axes: list[_Axis], mode: str) -> Integers:
    """Flat input places by flat output place and flat kernel entry; -1 where there is only zero."""
    reads: Integers = numpy.zeros((1, 1), dtype=numpy.int64)
    for axis in axes:
        along = axis.reads(mode)
        joined = reads[:, None, :, None] * axis.size + along[None, :, None, :]
        outside = (reads[:, None, :, None] < 0) | (along[None, :, None, :] < 0)
        joined = numpy.where(outside, -1, joined)
        reads = joined.reshape(len(reads) * len(along), -1)
    return reads


# A recurrence and a graph layer as dense layers that repeat a few weights.
#
# The third form of weight sharing, the convolution, is in `structured_matrix`.


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
