"""A convolution as a sparse matrix, for every stride, padding, dilation and number of groups."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy
from scipy import sparse
from torch import nn

from rankscope.constructions.shared_matrix import Integers, SharedMatrix
from rankscope.errors import ConstructionError, TooLargeError

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
    found: Convolution | TransposedConvolution = layer
    return found


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
