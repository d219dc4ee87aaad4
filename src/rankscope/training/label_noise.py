"""Training labels replaced at random, to see how much of them a network learns by heart."""

from dataclasses import replace

import torch

from rankscope.errors import TrainingError
from rankscope.seeds import generator_of
from rankscope.training.batches import TensorData


def with_random_labels(
    data: TensorData, share: float, num_classes: int, *, seed: int = 0
) -> TensorData:
    """The same samples, a share of them with labels drawn anew from all classes alike.

    A drawn label may be the right one: at share s of c classes, s (c - 1) / c become wrong. A
    larger share replaces those of a smaller one and more, for the same seed.

    Args:
        data: with labels 0..num_classes - 1.
        share: of samples whose labels are drawn, in 0..1; rounded to whole samples.
        num_classes: to draw from.
        seed: of which samples these are, and of their labels.

    Example:
        >>> data = TensorData(torch.zeros(4, 1), torch.tensor([0, 1, 0, 1]))
        >>> noisy = with_random_labels(data, 1.0, 5, seed=1)
        >>> noisy.targets.shape
        torch.Size([4])

    Raises:
        TrainingError: if there are no labels, the share is not in 0..1, or there is no class.

    Reference:
        Zhang et al. (2017), Sec. 2.1, arXiv:1611.03530.
    """
    if data.targets is None or not 0 <= share <= 1 or num_classes < 1:
        found = "no labels" if data.targets is None else f"{len(data):,} labels"
        raise TrainingError(
            f"with_random_labels: wanted labels, a share in 0..1 and at least 1 class, got "
            f"{found}, {share} and {num_classes}."
        )
    generator = generator_of("label noise", seed)
    order = torch.randperm(len(data), generator=generator)
    drawn = torch.randint(num_classes, data.targets.shape, generator=generator)
    chosen = order[: round(share * len(data))]
    labels = data.targets.clone()
    labels[chosen] = drawn[chosen].to(labels.dtype)
    return replace(data, targets=labels)
