"""A convolution on a torus falls apart into one small matrix for every frequency."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy
import torch
from torch import Tensor

from rankscope.errors import MatrixError

# Entries of the blocks held at a time: 64 MiB as complex128.
_MOST_ENTRIES = 2**22


@dataclass(frozen=True)
class Torus:
    """Where a kernel moves: an image that continues periodically, and the steps it takes.

    Args:
        sizes: of the image along each axis.
        stride: along each axis; divides the size.
        dilation: distance of neighbouring entries of the kernel, along each axis.
        groups: of channels that do not mix.
    """

    sizes: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int = 1

    def __post_init__(self) -> None:
        if any(n < 1 or n % s for n, s in zip(self.sizes, self.stride, strict=True)):
            raise MatrixError(
                f"A torus of {self.sizes} does not fit a stride of {self.stride}; take multiples."
            )


def frequency_blocks(kernel: Tensor, torus: Torus) -> Iterator[tuple[Tensor, Tensor]]:
    r"""The blocks of a convolution with circular padding, some frequencies at a time.

    With :math:`\hat K(f) = \sum_p K_p e^{-2 \pi i f \cdot p / n}`, the singular values of the
    operator are those of all :math:`\hat K(f)`. With strides :math:`s_a` the :math:`\prod s_a`
    frequencies that become one by leaving out pixels stand side by side in one block, over
    :math:`\prod s_a^{1/2}`.

    Args:
        kernel: (channels out, channels in of one group, positions ...). One that is larger than
            the image is wrapped around.
        torus: where it moves.

    Yields:
        complex128 blocks (frequencies, groups, out, in x aliases), and for how many frequencies
        each stands: of two opposite ones, whose blocks are conjugate, only one comes.

    Raises:
        MatrixError: if the groups do not divide the channels.

    Reference:
        Sedghi, Gupta & Long (2019), "The singular values of convolutional layers",
        arXiv:1805.10408 (stride 1).
    """
    groups = torus.groups
    if kernel.shape[0] % groups:
        raise MatrixError(
            f"frequency_blocks: {kernel.shape[0]} channels cannot be shared out among "
            f"{groups} groups."
        )
    grouped = kernel.double().reshape(groups, kernel.shape[0] // groups, kernel.shape[1], -1)
    coarse, weights = _half_of_frequencies(torus)
    waves = _waves(coarse, tuple(kernel.shape[2:]), torus) / math.sqrt(math.prod(torus.stride))
    count = max(1, _MOST_ENTRIES // (grouped[..., 0].numel() * waves.shape[1]))
    pieces = zip(torch.split(waves, count), torch.split(weights, count), strict=True)
    for piece, standing_for in pieces:
        # f frequency, a alias, p position, g group, o and i channels.
        blocks = torch.einsum("fap,goip->fgoia", piece, grouped.to(piece.dtype))
        yield blocks.flatten(-2), standing_for


def circular_spectrum(
    kernel: Tensor,
    torus: Torus,
    block_values: Callable[[Tensor], Tensor] = torch.linalg.svdvals,
) -> Tensor:
    """All singular values of a convolution with circular padding, descending.

    Args:
        kernel: as for `frequency_blocks`.
        torus: where it moves.
        block_values: singular values of a batch of complex128 blocks; a caller who needs less
            precision may have a faster way.

    Raises:
        MatrixError: if the groups do not divide the channels.
    """
    pieces = [
        block_values(blocks).flatten(1).repeat_interleave(weights, dim=0).flatten()
        for blocks, weights in frequency_blocks(kernel, torus)
    ]
    return torch.cat(pieces).sort(descending=True).values


def _half_of_frequencies(torus: Torus) -> tuple[Tensor, Tensor]:
    """One of each pair f, -f, and how many it stands for."""
    sides = tuple(n // s for n, s in zip(torus.sizes, torus.stride, strict=True))
    every = numpy.indices(sides).reshape(len(sides), -1)
    opposite = numpy.ravel_multi_index(tuple(-every % numpy.array(sides)[:, None]), sides)
    own = numpy.arange(every.shape[1])
    kept = own <= opposite
    weights = numpy.where(own == opposite, 1, 2)[kept]
    return torch.from_numpy(every[:, kept].T.copy()), torch.from_numpy(weights)


def _waves(coarse: Tensor, extents: tuple[int, ...], torus: Torus) -> Tensor:
    """Every frequency with its aliases, at every position of the kernel."""
    order = len(extents)
    positions = torch.from_numpy(numpy.indices(extents).reshape(order, -1))
    shifts = torch.from_numpy(numpy.indices(torus.stride).reshape(order, -1).T.copy())
    angles = torch.zeros(len(coarse), len(shifts), positions.shape[1], dtype=torch.float64)
    for axis, (size, stride, dilation) in enumerate(
        zip(torus.sizes, torus.stride, torus.dilation, strict=True)
    ):
        frequencies = coarse[:, None, axis] + size // stride * shifts[:, axis]
        # Whole turns are taken away while the numbers are integers, so that angles stay exact.
        turns = frequencies[..., None] * (dilation * positions[axis]) % size
        angles -= 2 * math.pi / size * turns.double()
    return torch.polar(torch.ones_like(angles), angles)
