"""Train a compressed model end to end: on labels, or to imitate the uncompressed model."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, kl_div, log_softmax, mse_loss

from rankscope.errors import CompressionError
from rankscope.modes import inference
from rankscope.progress import Report
from rankscope.training.batches import Batch, TensorData
from rankscope.training.history import History
from rankscope.training.loop import fit
from rankscope.training.preparation import Evaluate
from rankscope.training.recipe import Recipe


class Objective(ABC):
    """What a model is fine-tuned for. Subclasses are frozen dataclasses."""

    @abstractmethod
    def loss(self, outputs: Tensor, batch: Batch) -> Tensor:
        """One number for a model's outputs on a batch."""

    @property
    def needs_labels(self) -> bool:
        """Whether the data must have targets."""
        return False

    @property
    def reference(self) -> nn.Module | None:
        """The model that is imitated, if one is."""
        return None


@dataclass(frozen=True)
class Labels(Objective):
    """Cross entropy with the data's targets; outputs (batch, classes, ...) are logits."""

    def loss(self, outputs: Tensor, batch: Batch) -> Tensor:
        assert batch.targets is not None
        return cross_entropy(outputs, batch.targets)

    @property
    def needs_labels(self) -> bool:
        return True


@dataclass(frozen=True, eq=False)
class Distillation(Objective):
    r"""Kullback-Leibler divergence from the reference's predictions at a temperature.

    .. math:: (1 - s)\, \tau^2\, \mathrm{KL}(p^{\tau}_{\text{reference}} \,\|\, p^{\tau})
              + s\, \text{cross entropy with the labels}

    Args:
        teacher: the reference, whose outputs (batch, classes, ...) are logits.
        temperature: τ, which both models' logits are divided by.
        labels: s, the share of the labels, in 0..1; with 0 the data need none.

    Reference:
        Hinton, Vinyals & Dean (2015), Sec. 2, arXiv:1503.02531.
    """

    teacher: nn.Module
    temperature: float = 3.0
    labels: float = 0.0

    def __post_init__(self) -> None:
        if not (self.temperature > 0 and 0 <= self.labels <= 1):
            raise CompressionError(
                "Distillation: temperature must be above 0 and labels in 0..1, got "
                f"{self.temperature} and {self.labels}."
            )

    def loss(self, outputs: Tensor, batch: Batch) -> Tensor:
        with torch.no_grad():
            wanted = log_softmax(self.teacher(batch.inputs) / self.temperature, dim=1)
        found = log_softmax(outputs / self.temperature, dim=1)
        predictions = outputs.numel() // outputs.shape[1]
        divergence = kl_div(found, wanted, reduction="sum", log_target=True) / predictions
        loss = (1 - self.labels) * self.temperature**2 * divergence
        if self.labels:
            loss = loss + self.labels * Labels().loss(outputs, batch)
        return loss

    @property
    def needs_labels(self) -> bool:
        return self.labels > 0

    @property
    def reference(self) -> nn.Module:
        return self.teacher


@dataclass(frozen=True, eq=False)
class Imitation(Objective):
    """Mean squared difference to the reference's outputs: for those that are no logits."""

    teacher: nn.Module

    def loss(self, outputs: Tensor, batch: Batch) -> Tensor:
        with torch.no_grad():
            wanted = self.teacher(batch.inputs)
        return mse_loss(outputs, wanted)

    @property
    def reference(self) -> nn.Module:
        return self.teacher


def fine_tune(  # noqa: PLR0913 - the parts of a run, all by name
    model: nn.Module,
    objective: Objective,
    data: TensorData,
    recipe: Recipe,
    *,
    folder: Path | None = None,
    evaluate: Evaluate | None = None,
    progress: Report | None = None,
) -> History:
    """Train all parameters of a model in place; a reference stays in inference mode, untouched.

    Args:
        model: its weights must not be quantized.
        objective: `Labels()`, `Distillation(reference)` or `Imitation(reference)`.
        data: with targets, if the objective needs them.
        recipe: how.
        folder: where the run keeps its checkpoint; the same call again goes on from there.
        evaluate: called after every epoch; what it gives is recorded.
        progress: told of every step.

    Raises:
        CompressionError: if targets are wanted that the data do not have.
        TrainingError, CheckpointError: as `fit` raises them.
    """
    if objective.needs_labels and data.targets is None:
        raise CompressionError(
            f"{type(objective).__name__} needs targets, but the {len(data):,} samples have none; "
            "use Distillation(reference) or Imitation(reference)."
        )

    def loss(trained: nn.Module, batch: Batch) -> Tensor:
        return objective.loss(trained(batch.inputs), batch)

    with inference(objective.reference or nn.Identity()):
        return fit(model, loss, data, recipe, folder=folder, evaluate=evaluate, progress=progress)
