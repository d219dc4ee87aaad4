"""Activations that sort: outputs are the inputs in another order, so norms and gradients stay."""

import torch
from torch import Tensor, nn

from rankscope.errors import LayerError


class MaxMin(nn.Module):
    """The larger of two channels, then the smaller; channel c is paired with c + channels / 2.

    Lipschitz constant 1. Each output is one of the inputs, also where the two are equal, so that
    gradients keep their norms everywhere.

    Example:
        >>> MaxMin()(torch.tensor([[1.0, 5.0, 2.0, 4.0]]))
        tensor([[2., 5., 1., 4.]])

    Raises:
        LayerError: if the number of channels is odd.

    Reference:
        Anil, Lucas & Grosse (2019), arXiv:1811.05381.
    """

    def forward(self, inputs: Tensor) -> Tensor:
        """(batch, channels, …) to the same."""
        first, second = halves(type(self).__name__, inputs)
        # Not torch.maximum, which halves the gradients of equal entries, such as dark pixels; and
        # not torch.where, which takes three times as long. With weights 0 and 1, lerp is exact.
        is_larger = (first >= second).to(inputs.dtype)
        ordered = torch.lerp(second, first, is_larger), torch.lerp(first, second, is_larger)
        return torch.cat(ordered, dim=1)


class GroupSort(nn.Module):
    """Channels sorted in groups, the largest first; groups of 2 are `MaxMin`.

    Channel c is in a group with c + n, c + 2n, …, for n = channels / group_size. Lipschitz constant
    1: sorting never moves two vectors apart, and each output is one of the inputs.

    Args:
        group_size: how many channels are sorted together.

    Example:
        >>> GroupSort(4)(torch.tensor([[1.0, 5.0, 2.0, 4.0]]))
        tensor([[5., 4., 2., 1.]])

    Raises:
        LayerError: if the group size does not divide the number of channels.

    Reference:
        Anil, Lucas & Grosse (2019), arXiv:1811.05381.
    """

    def __init__(self, group_size: int) -> None:
        super().__init__()
        if group_size < 1:
            raise LayerError(f"GroupSort: a group holds at least 1 channel, got {group_size}.")
        self.group_size = group_size

    def forward(self, inputs: Tensor) -> Tensor:
        """(batch, channels, …) to the same."""
        channels = inputs.shape[1] if inputs.ndim > 1 else 0
        if channels == 0 or channels % self.group_size:
            raise LayerError(
                f"GroupSort: groups of {self.group_size} must divide the channels, got inputs of "
                f"shape {tuple(inputs.shape)}."
            )
        sizes = (self.group_size, channels // self.group_size)
        groups = inputs.reshape(inputs.shape[0], *sizes, *inputs.shape[2:])
        return torch.sort(groups, dim=1, descending=True, stable=True).values.flatten(1, 2)

    def extra_repr(self) -> str:
        """What a reader needs."""
        return f"{self.group_size}"


def halves(who: str, inputs: Tensor) -> tuple[Tensor, Tensor]:
    """The first and the second half of the channels.

    Raises:
        LayerError: if their number is odd.
    """
    channels = inputs.shape[1] if inputs.ndim > 1 else 0
    if channels == 0 or channels % 2:
        raise LayerError(
            f"{who}: channels are taken in two halves, so their number must be even, got inputs of "
            f"shape {tuple(inputs.shape)}."
        )
    first, second = inputs.chunk(2, dim=1)
    return first, second
