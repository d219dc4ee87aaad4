"""Circular padding, and its adjoint: on a circle a convolution neither gains nor loses an edge."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

Margins = tuple[tuple[int, int], ...]


def circular_margins(
    kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int]
) -> Margins:
    """Before and after along each axis, so that the output is the input's size over the stride.

    Example:
        >>> circular_margins((3, 6), (1, 2), (1, 1))
        ((1, 1), (2, 2))
    """
    margins = []
    for taps, step, spacing in zip(kernel, stride, dilation, strict=True):
        reach = spacing * (taps - 1)  # from the first tap to the last
        shift = step // 2
        margins.append(((reach + 1) // 2 - shift, reach // 2 + shift - step + 1))
    return tuple(margins)


def pad_circularly(inputs: Tensor, margins: Margins) -> Tensor:
    """Continue (batch, channels, *sizes) periodically, also by more than its size."""
    sizes = inputs.shape[2:]
    if all(max(sides) <= size for sides, size in zip(margins, sizes, strict=True)):
        flat = [number for sides in reversed(margins) for number in sides]
        return functional.pad(inputs, flat, mode="circular")
    for axis, ((before, after), size) in enumerate(zip(margins, sizes, strict=True), start=2):
        places = torch.arange(-before, size + after, device=inputs.device) % size
        inputs = inputs.index_select(axis, places)
    return inputs


def fold_circularly(inputs: Tensor, margins: Margins) -> Tensor:
    """Add to every entry what stands in the margins for it: the adjoint of the padding."""
    for axis, (before, after) in enumerate(margins, start=2):
        size = inputs.shape[axis] - before - after
        places = torch.arange(-before, size + after, device=inputs.device) % size
        shape = [*inputs.shape]
        shape[axis] = size
        inputs = inputs.new_zeros(shape).index_add(axis, places, inputs)
    return inputs
