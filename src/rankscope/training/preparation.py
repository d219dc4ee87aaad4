"""A model while it is trained or scored: modes and gradients, all as they were afterwards."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import nn

from rankscope.errors import TrainingError

_BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)

Evaluate = Callable[[nn.Module], dict[str, float]]


@dataclass(frozen=True)
class EveryFewEpochs:
    """Scores that cost more than an epoch: only after every so many, and after the last.

    Args:
        evaluate: gives the scores.
        epochs: how many from one time to the next.

    Example:
        >>> few = EveryFewEpochs(lambda model: {}, 4)
        >>> [epoch for epoch in range(1, 11) if few.is_due(epoch, last=10)]
        [4, 8, 10]

    Raises:
        TrainingError: if the number of epochs is below 1.
    """

    evaluate: Evaluate
    epochs: int

    def __post_init__(self) -> None:
        if self.epochs < 1:
            raise TrainingError(f"EveryFewEpochs: epochs must be at least 1, got {self.epochs}.")

    def __call__(self, model: nn.Module) -> dict[str, float]:
        """The scores."""
        return self.evaluate(model)

    def is_due(self, epoch: int, *, last: int) -> bool:
        """Whether scores are wanted after this epoch, counted from 1."""
        return epoch % self.epochs == 0 or epoch == last


def trained_parameters(
    model: nn.Module, parameters: Sequence[nn.Parameter] | None
) -> dict[str, nn.Parameter]:
    """What is to be trained, by name.

    Args:
        model: whose they are.
        parameters: only these; None for all that require gradients.

    Raises:
        TrainingError: if there are none, or one is not the model's.
    """
    names = dict(model.named_parameters())
    if parameters is None:
        chosen = {name: value for name, value in names.items() if value.requires_grad}
    else:
        wanted = {id(parameter) for parameter in parameters}
        chosen = {name: value for name, value in names.items() if id(value) in wanted}
        if len(chosen) < len(wanted):
            raise TrainingError(
                f"fit: {len(wanted) - len(chosen)} of the {len(wanted)} parameters given are not "
                f"the model's."
            )
    if not chosen:
        raise TrainingError(f"fit: none of the model's {len(names)} parameters is to be trained.")
    return chosen


@contextmanager
def training_mode(
    model: nn.Module, names: Mapping[str, nn.Parameter], *, batch_norm_frozen: bool
) -> Iterator[None]:
    """Train mode, and gradients of what is trained only."""
    gradients = {value: value.requires_grad for value in model.parameters()}
    with _modes_kept(model):
        model.train()
        for module in model.modules():
            if batch_norm_frozen and isinstance(module, _BATCH_NORMS):
                module.eval()
        for name, value in model.named_parameters():
            value.requires_grad_(name in names)
        try:
            yield
        finally:
            for value, wanted in gradients.items():
                value.requires_grad_(wanted)
            for value in names.values():
                value.grad = None


def require_no_batch_statistics(model: nn.Module) -> None:
    """Refuse batch normalizations that would see only a share of each batch.

    Raises:
        TrainingError: if there is one in train mode that is not a `SyncBatchNorm`.
    """
    for name, module in model.named_modules():
        is_own = isinstance(module, _BATCH_NORMS) and not isinstance(module, nn.SyncBatchNorm)
        if is_own and module.training:
            raise TrainingError(
                f"fit: {name} ({type(module).__name__}) would see only a share of each batch in "
                f"each process. Use nn.SyncBatchNorm, set batch_norm_frozen, or train with one "
                f"process."
            )


def scores(model: nn.Module, evaluate: Evaluate) -> dict[str, float]:
    """What `evaluate` gives for the model in inference mode."""
    with _modes_kept(model), torch.no_grad():
        return evaluate(model.eval())


@contextmanager
def _modes_kept(model: nn.Module) -> Iterator[None]:
    modes = {module: module.training for module in model.modules()}
    try:
        yield
    finally:
        # Parents come before their parts, so that the parts have the last word.
        for module, mode in modes.items():
            module.train(mode)
