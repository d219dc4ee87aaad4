"""Kernels of any stride: by polyphase components, or one convolution and then a block transform."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from rankscope.errors import LayerError
from rankscope.layers.orthogonal.initialization import Initialization
from rankscope.layers.orthogonal.kernel import ParaunitarySystem, SystemSize
from rankscope.layers.orthogonal.parametrizations import Parametrization

_CONVOLUTIONS = {1: functional.conv1d, 2: functional.conv2d}


class OrthogonalKernel(nn.Module):
    """The kernel (out_channels, in_channels / groups, *kernel) of an orthogonal convolution.

    With stride s, a convolution sees s inputs along an axis as channels of one: a system of taps
    kernel / s. If that is no whole number, a convolution of kernel - s + 1 taps and stride 1 is
    followed by an orthogonal map of blocks of s. In and out channels that differ are cut out of a
    square system: more out than in keeps norms, fewer keep those of the adjoint.

    Args:
        channels: in, out.
        kernel: taps along each axis.
        stride: along each axis.
        groups: independent systems.
        parametrization: from free numbers to orthogonal matrices.
        initialization: where it starts.
    """

    def __init__(
        self,
        channels: tuple[int, int],
        kernel: tuple[int, ...],
        stride: tuple[int, ...],
        groups: int,
        parametrization: Parametrization,
        initialization: Initialization,
    ) -> None:
        super().__init__()
        self.in_size, self.out_size = _group_sizes(channels, groups)
        self.kernel, self.stride, self.groups = kernel, stride, groups
        self.is_polyphase = all(k % s == 0 for k, s in zip(kernel, stride, strict=True))
        if self.is_polyphase:
            size = max(self.out_size, self.in_size * math.prod(stride))
            taps = tuple(k // s for k, s in zip(kernel, stride, strict=True))
            sizes = [SystemSize(size, taps, groups)]
        else:
            sizes = self._composed_sizes()
        self.systems = nn.ModuleList(
            ParaunitarySystem(size, parametrization, initialization) for size in sizes
        )

    def forward(self) -> Tensor:
        """The kernel, differentiable in the free parameters."""
        kernels = [system() for system in self.systems]
        return self._interleaved(kernels[0]) if self.is_polyphase else self._composed(*kernels)

    def _interleaved(self, kernel: Tensor) -> Tensor:
        phases, axes = math.prod(self.stride), len(self.stride)
        kernel = kernel[:, : self.out_size, : self.in_size * phases]
        taps = kernel.shape[3:]
        kernel = kernel.reshape(self.groups * self.out_size, self.in_size, *self.stride, *taps)
        order = [place for axis in range(axes) for place in (2 + axes + axis, 2 + axis)]
        return kernel.permute(0, 1, *order).reshape(len(kernel), self.in_size, *self.kernel)

    def _composed_sizes(self) -> list[SystemSize]:
        if any(k < s for k, s in zip(self.kernel, self.stride, strict=True)):
            raise LayerError(
                f"An orthogonal convolution of kernel {self.kernel} and stride {self.stride} skips "
                f"inputs, so that it cannot keep norms. Take a kernel of at least the stride."
            )
        phases = math.prod(self.stride)
        # Rounded down, so that the block transform never has fewer outputs than it must keep.
        self.middle_size = max(self.in_size, self.out_size // phases)
        taps = tuple(k - s + 1 for k, s in zip(self.kernel, self.stride, strict=True))
        block = max(self.out_size, self.middle_size * phases)
        ones = tuple(1 for _ in taps)
        return [
            SystemSize(self.middle_size, taps, self.groups),
            SystemSize(block, ones, self.groups),
        ]

    def _composed(self, first: Tensor, block: Tensor) -> Tensor:
        axes = len(self.stride)
        phases = math.prod(self.stride)
        second = block[:, : self.out_size, : self.middle_size * phases].reshape(
            self.groups * self.out_size, self.middle_size, *self.stride
        )
        # (in, groups * middle, *taps) as a batch of images, so that one convolution joins the two.
        images = first[:, :, : self.in_size].movedim(2, 0).flatten(1, 2)
        padding = tuple(s - 1 for s in self.stride)
        joined = _CONVOLUTIONS[axes](
            images, second.flip([*range(2, 2 + axes)]), padding=padding, groups=self.groups
        )
        return joined.transpose(0, 1)


def _group_sizes(channels: tuple[int, int], groups: int) -> tuple[int, int]:
    for name, size in zip(("in", "out"), channels, strict=True):
        if groups < 1 or size < 1 or size % groups != 0:
            raise LayerError(
                f"An orthogonal convolution needs {name}_channels that groups divide, "
                f"got {size} channels and {groups} groups."
            )
    return channels[0] // groups, channels[1] // groups


def unique_kernel(kernel: Tensor) -> Tensor:
    """Detached, contiguous and of its own memory."""
    return torch.clone(kernel.detach(), memory_format=torch.contiguous_format)
