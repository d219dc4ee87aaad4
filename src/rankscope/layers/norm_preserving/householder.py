"""The Householder activation: pairs of channels, reflected where they lie behind a line."""

import math

import torch
from torch import Tensor, nn

from rankscope.errors import LayerError
from rankscope.layers.norm_preserving.sorting import halves


class HouseholderActivation(nn.Module):
    r"""Reflect each pair of channels (a, b) into one half of its plane, given by a trained angle.

    .. math:: (a, b) \mapsto \begin{cases} (a, b) & a \sin(\theta/2) \ge b \cos(\theta/2) \\
              (a \cos\theta + b \sin\theta,\; a \sin\theta - b \cos\theta) & \text{otherwise}
              \end{cases}

    Channel c is paired with c + channels / 2. The reflection leaves the line itself in place, so
    the map is continuous; it keeps norms and gradients, and its Lipschitz constant is 1. All
    angles start at a right angle, which is `MaxMin`.

    Args:
        channels: an even number.

    Raises:
        LayerError: if the channels are odd, or inputs have others.

    Reference:
        Singla, Singla & Feizi (2022), arXiv:2108.04062.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        if channels < 2 or channels % 2:
            raise LayerError(
                f"HouseholderActivation: channels are taken in pairs, so their number must be even "
                f"and positive, got {channels}."
            )
        self.channels = channels
        self.angles = nn.Parameter(torch.full((channels // 2,), math.pi / 2))

    def forward(self, inputs: Tensor) -> Tensor:
        """(batch, channels, …) to the same."""
        first, second = halves(type(self).__name__, inputs)
        if inputs.shape[1] != self.channels:
            raise LayerError(
                f"HouseholderActivation: wanted {self.channels} channels, got inputs of shape "
                f"{tuple(inputs.shape)}."
            )
        angles = self.angles.view(-1, *[1] * (inputs.ndim - 2))
        stays = first * torch.sin(angles / 2) >= second * torch.cos(angles / 2)
        cosine, sine = torch.cos(angles), torch.sin(angles)
        reflected = (first * cosine + second * sine, first * sine - second * cosine)
        return torch.cat(
            [
                torch.where(stays, first, reflected[0]),
                torch.where(stays, second, reflected[1]),
            ],
            dim=1,
        )

    def extra_repr(self) -> str:
        """What a reader needs."""
        return f"{self.channels}"
