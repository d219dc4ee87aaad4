"""Convolutions as operators on images, with their true singular values.

On a torus (circular padding) the operator falls apart into one small matrix for every frequency.
Their singular values together are those of the operator, which the flattened kernel does not have.
"""

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from rankscope.auditing.singular_values import block_values, computation_error
from rankscope.auditing.spectra import Spectrum
from rankscope.layers.frequency_blocks import Torus, circular_spectrum

# Image sides to choose from: the first whose decompositions take less than about this many steps.
_SIDES = (32, 16, 8)
_MOST_STEPS = 2**31


@dataclass(frozen=True)
class Geometry:
    """What a kernel alone does not tell; a file of weights has none of it.

    Args:
        stride: the same along all axes of the image, as are the others.
        dilation: distance of neighbouring entries of the kernel.
        groups: of channels that do not mix.
    """

    stride: int = 1
    dilation: int = 1
    groups: int = 1

    def __str__(self) -> str:
        said = [f"stride {self.stride}"]
        if self.dilation > 1:
            said.append(f"dilation {self.dilation}")
        if self.groups > 1:
            said.append(f"{self.groups} groups")
        return ", ".join(said)


def geometries(module: nn.Module) -> dict[str, Geometry]:
    """The geometry of every convolution of a module, by the name of its weight.

    One with different strides or dilations along its axes is left out: it is seen as in a file.

    Example:
        >>> geometries(nn.Sequential(nn.Conv2d(4, 8, 3, stride=2, groups=2)))
        {'0.weight': Geometry(stride=2, dilation=1, groups=2)}
    """
    results = {}
    for name, part in module.named_modules():
        if isinstance(part, nn.Conv1d | nn.Conv2d | nn.Conv3d):
            strides, dilations = set(part.stride), set(part.dilation)
            if len(strides) == len(dilations) == 1:
                place = f"{name}.weight" if name else "weight"
                results[place] = Geometry(strides.pop(), dilations.pop(), part.groups)
    return results


def image_side(shape: tuple[int, ...], geometry: Geometry, wanted: int | None = None) -> int:
    """The side of the image that a kernel is looked at on: a multiple of the stride.

    If none is wanted, 32 for up to about 128 channels, 8 for 512 and more, and never smaller than
    the kernel; otherwise the one wanted, rounded up.

    Example:
        >>> image_side((64, 64, 3, 3), Geometry()), image_side((512, 512, 3, 3), Geometry())
        (32, 8)
    """
    if wanted is not None:
        return math.ceil(wanted / geometry.stride) * geometry.stride
    rows, columns = shape[0] // geometry.groups, shape[1]
    order = len(shape) - 2
    steps = shape[0] * columns * min(rows, columns)
    side = next((s for s in _SIDES if steps * s**order // 2 <= _MOST_STEPS), _SIDES[-1])
    extent = geometry.dilation * (max(shape[2:]) - 1) + 1
    return math.ceil(max(side, extent) / geometry.stride) * geometry.stride


def convolution_spectrum(kernel: Tensor, side: int, geometry: Geometry) -> Spectrum:
    r"""All singular values of a convolution on an image with equal sides and circular padding.

    Those of all blocks of `frequency_blocks` together. Padding with zeros changes only what touches
    the border.

    Args:
        kernel: (channels out, channels in of one group, positions ...).
        side: of the image; a multiple of the stride. A larger kernel is wrapped around.
        geometry: stride, dilation, groups.

    Raises:
        MatrixError: if the stride does not divide the side, or the groups the channels.
    """
    order = kernel.ndim - 2
    torus = Torus(
        (side,) * order, (geometry.stride,) * order, (geometry.dilation,) * order, geometry.groups
    )
    values = circular_spectrum(kernel, torus, lambda blocks: block_values(blocks, kernel.dtype))
    columns = kernel.shape[1] * geometry.stride**order
    return _with_rounding(kernel, values, (kernel.shape[0] // geometry.groups, columns))


def depthwise(shape: tuple[int, ...], geometry: Geometry) -> Geometry:
    """The same with one channel to each group."""
    return replace(geometry, groups=shape[0])


def _with_rounding(kernel: Tensor, values: Tensor, shape: tuple[int, int]) -> Spectrum:
    """The transform of an error of the kernel is at most the root of the positions as large."""
    positions = math.sqrt(math.prod(kernel.shape[2:]))
    stored = torch.finfo(kernel.dtype).eps / 2 * positions * float(kernel.double().norm())
    computed = computation_error(kernel.dtype, min(shape)) * float(values[0])
    return Spectrum(shape, values.numpy(), max(stored, computed))
