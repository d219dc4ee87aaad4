"""Pixels to what a network sees, as a part of the network, so that its constant counts."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from rankscope.errors import LayerError


class InputScaling(nn.Module):
    """(pixel - mean) / deviation, channel by channel; Lipschitz constant 1 / smallest deviation.

    Args:
        means: of each channel.
        deviations: of each channel; None only moves images, which keeps distances.

    Example:
        >>> InputScaling((0.5, 0.5), (0.25, 0.5)).lipschitz_constant
        4.0

    Raises:
        LayerError: if there are other deviations than means, or one is not above 0; or images
            have other channels.
    """

    means: Tensor
    deviations: Tensor

    def __init__(self, means: Sequence[float], deviations: Sequence[float] | None = None) -> None:
        super().__init__()
        scales = [1.0] * len(means) if deviations is None else [*deviations]
        if len(scales) != len(means) or min(scales, default=0.0) <= 0:
            raise LayerError(
                f"InputScaling: wanted one deviation above 0 for each of {len(means)} means, got "
                f"{tuple(scales)}."
            )
        self.register_buffer("means", torch.tensor(means).reshape(-1, 1, 1))
        self.register_buffer("deviations", torch.tensor(scales).reshape(-1, 1, 1))

    @property
    def lipschitz_constant(self) -> float:
        """Of the numbers it holds now."""
        return 1 / float(self.deviations.min())

    def forward(self, images: Tensor) -> Tensor:
        """(batch, channels, rows, columns) to the same."""
        if images.ndim != 4 or images.shape[1] != len(self.means):
            # One channel would be taken for several, without a word.
            raise LayerError(
                f"InputScaling: wanted images (batch, {len(self.means)}, rows, columns), got the "
                f"shape {tuple(images.shape)}."
            )
        return (images - self.means) / self.deviations
