"""The share of examples that a classifier gets right."""

import torch
from torch import Tensor, nn

from rankscope.errors import DataError
from rankscope.modes import inference


def accuracy(model: nn.Module, inputs: Tensor, labels: Tensor, *, batch_size: int = 250) -> float:
    """The share of inputs, (count, …), whose largest logit is that of their label, (count,).

    The model is run in inference mode, and afterwards is in the mode it was in.

    Example:
        >>> accuracy(nn.Identity(), torch.eye(4), torch.tensor([0, 1, 2, 0]))
        0.75

    Raises:
        DataError: if there are no inputs, or another number of labels.
    """
    if len(inputs) == 0 or labels.shape != inputs.shape[:1]:
        raise DataError(
            f"accuracy: wanted one label for each of at least one input, got {len(inputs):,} "
            f"inputs and labels of shape {tuple(labels.shape)}."
        )
    right = 0
    batches = zip(torch.split(inputs, batch_size), torch.split(labels, batch_size), strict=True)
    with torch.no_grad(), inference(model):
        for batch, wanted in batches:
            right += int((model(batch).argmax(dim=1) == wanted).sum())
    return right / len(inputs)
