"""Pooling scaled so that it is a projection."""

import math
from collections.abc import Sequence

from torch import Tensor, nn
from torch.nn import functional

from rankscope.errors import LayerError


class NormPreservingPool(nn.Module):
    """The sum of each block of pixels over the root of their number: s² of them over s.

    The rows of this map are orthonormal: its Lipschitz constant is 1, gradients keep their norms,
    and so do images that are constant on blocks. (An average is 1 / s of it.)

    Args:
        size: of a block, rows and columns; one number for both.

    Example:
        >>> import torch
        >>> NormPreservingPool(2)(torch.ones(1, 1, 2, 2))
        tensor([[[[2.]]]])

    Raises:
        LayerError: if blocks do not tile the images.
    """

    def __init__(self, size: int | Sequence[int]) -> None:
        super().__init__()
        sizes = (size, size) if isinstance(size, int) else tuple(size)
        if len(sizes) != 2 or min(sizes) < 1:
            raise LayerError(f"NormPreservingPool: a block has 2 sizes of at least 1, got {sizes}.")
        self.size = sizes

    def forward(self, inputs: Tensor) -> Tensor:
        """(batch, channels, rows, columns) to the same with fewer rows and columns."""
        shape = tuple(inputs.shape)
        if len(shape) != 4 or shape[2] % self.size[0] or shape[3] % self.size[1]:
            raise LayerError(
                f"NormPreservingPool: images (batch, channels, rows, columns) must be tiled by "
                f"blocks of {self.size}, got the shape {shape}."
            )
        return functional.avg_pool2d(inputs, self.size) * math.sqrt(math.prod(self.size))

    def extra_repr(self) -> str:
        """What a reader needs."""
        return f"{self.size}"
