"""The loss of networks that are to be certified: right by a margin, and no further."""

import math
from dataclasses import dataclass

from torch import Tensor, nn
from torch.nn import functional

from rankscope.errors import TrainingError
from rankscope.training.batches import Batch


@dataclass(frozen=True)
class MarginLoss:
    r"""How much the logits lack to a margin, :math:`\sum_{i \ne y} \max(0, m - f_y + f_i) / C`.

    A logit that is ahead of all others by m adds nothing, however far ahead it is. With Lipschitz
    constant 1, a margin of m certifies a radius of m / √2; the published networks were trained
    with m = 1/2.

    Args:
        margin: m.

    Example:
        >>> import torch
        >>> batch = Batch(torch.tensor([[1.0, 0.75, 0.0, 0.0]]), torch.tensor([0]))
        >>> float(MarginLoss()(nn.Identity(), batch))
        0.0625

    Raises:
        TrainingError: if the margin is not positive.
    """

    margin: float = 0.5

    def __post_init__(self) -> None:
        if not 0 < self.margin < math.inf:
            raise TrainingError(
                f"MarginLoss: the margin must be finite and above 0, got {self.margin}."
            )

    def __call__(self, model: nn.Module, batch: Batch) -> Tensor:
        """The mean over a batch."""
        assert batch.targets is not None, "a classifier is trained on labels"
        return functional.multi_margin_loss(model(batch.inputs), batch.targets, margin=self.margin)
