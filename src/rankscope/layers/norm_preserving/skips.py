"""Skips that do not lengthen: a mean of two paths, or two paths side by side."""

import torch
from torch import Tensor, nn

from rankscope.errors import LayerError
from rankscope.layers.norm_preserving.sorting import halves


class ConvexSkip(nn.Module):
    r"""A trained mean of two paths, :math:`\sigma(a)\, S(x) + (1 - \sigma(a))\, F(x)`.

    If neither path stretches, the mean does not: Lipschitz constant
    :math:`\sigma(a) L_S + (1 - \sigma(a)) L_F`. It does not preserve norms, as the paths may
    cancel. The mean starts in the middle, a = 0.

    Args:
        inner: F.
        shortcut: S; None for the input itself.

    Example:
        >>> ConvexSkip(nn.Flatten())(torch.tensor([[2.0, 3.0]]))
        tensor([[2., 3.]], grad_fn=<AddBackward0>)

    Raises:
        LayerError: if the outputs of the paths differ in shape.
    """

    def __init__(self, inner: nn.Module, shortcut: nn.Module | None = None) -> None:
        super().__init__()
        self.inner = inner
        self.shortcut = nn.Identity() if shortcut is None else shortcut
        self.balance = nn.Parameter(torch.zeros(()))

    def share(self) -> Tensor:
        """How much of the shortcut is in the mean: the sigmoid of the balance."""
        return torch.sigmoid(self.balance)

    def forward(self, inputs: Tensor) -> Tensor:
        """The mean of both paths."""
        kept, changed = self.shortcut(inputs), self.inner(inputs)
        if kept.shape != changed.shape:
            raise LayerError(
                f"ConvexSkip: the shortcut gives the shape {tuple(kept.shape)}, the other path "
                f"{tuple(changed.shape)}; give it a shortcut to the same."
            )
        share = self.share()
        mean: Tensor = share * kept + (1 - share) * changed
        return mean


class ConcatenativeSkip(nn.Module):
    """Half of the channels as they are beside the changed other half, then shuffled.

    Channels c and c + channels / 2 become neighbours, so that two such skips in a row change
    everything. It is orthogonal if the inner map is, and its Lipschitz constant is the larger of 1
    and that of the inner map.

    Args:
        inner: changes the second half; keeps its shape.

    Example:
        >>> ConcatenativeSkip(nn.Flatten())(torch.tensor([[1.0, 2.0, 3.0, 4.0]]))
        tensor([[1., 3., 2., 4.]])

    Raises:
        LayerError: if the number of channels is odd, or the inner map changes the shape.

    Reference:
        Ma et al. (2018), arXiv:1807.11164 (the shuffle).
    """

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, inputs: Tensor) -> Tensor:
        """(batch, channels, …) to the same."""
        kept, second = halves(type(self).__name__, inputs)
        changed = self.inner(second)
        if changed.shape != second.shape:
            raise LayerError(
                f"ConcatenativeSkip: the inner map must keep the shape {tuple(second.shape)}, "
                f"got {tuple(changed.shape)}."
            )
        return torch.stack([kept, changed], dim=2).flatten(1, 2)
