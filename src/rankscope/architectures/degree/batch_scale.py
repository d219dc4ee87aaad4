"""Normalization that leaves a polynomial a polynomial."""

import torch
from torch import Tensor, nn

MOMENTUM = 0.1
_SMALLEST = 1e-12


class BatchScale(nn.Module):
    """Divide each feature by its root mean square over a batch.

    At inference the running mean square takes the place of the batch's, so that the division is by
    fixed numbers, `scales()`, which the neighbouring weights can absorb. Nothing is subtracted: a
    homogeneous layer stays homogeneous.

    Args:
        num_features: how many.
        position: where they stand in the inputs, counted from 1 after the batch.

    Example:
        >>> normalize = BatchScale(2)
        >>> normalize(torch.tensor([[3.0, 0.5], [3.0, -0.5]])).tolist()
        [[1.0, 1.0], [1.0, -1.0]]
    """

    mean_square: Tensor
    num_batches: Tensor

    def __init__(self, num_features: int, *, position: int = -1) -> None:
        super().__init__()
        self.position = position
        self.register_buffer("mean_square", torch.ones(num_features))
        self.register_buffer("num_batches", torch.zeros((), dtype=torch.int64))

    def forward(self, inputs: Tensor) -> Tensor:
        """Inputs with mean squares of about 1, in each feature."""
        features = inputs.movedim(self.position, -1)
        if self.training:
            square = features.square().flatten(0, -2).mean(dim=0)
            self._remember(square.detach())
        else:
            square = self.mean_square
        return (features * square.clamp(min=_SMALLEST).rsqrt()).movedim(-1, self.position)

    def scales(self) -> Tensor:
        """What each feature is divided by at inference."""
        return self.mean_square.clamp(min=_SMALLEST).sqrt()

    def _remember(self, square: Tensor) -> None:
        # The first batches count as much as all before them: a plain mean has no start to forget.
        self.num_batches += 1
        share = max(MOMENTUM, 1 / int(self.num_batches))
        self.mean_square.lerp_(square, share)
