"""Repair a compressed model: stage by stage to the outputs of the original, then end to end."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, kl_div, log_softmax, mse_loss

from rankscope.compression.stages import Stage, input_of_stage, output_of_stage, split_into_stages
from rankscope.compression.training.loop import Evaluate, Loss, fit
from rankscope.compression.training.recipe import (
    FullPrecision,
    History,
    Precision,
    Recipe,
    working_seconds,
)
from rankscope.errors import CompressionError
from rankscope.modes import inference
from rankscope.networks.batches import Batch, TensorData
from rankscope.progress import Progress, Report, ignore
from rankscope.resumable import ResumableFolder
from rankscope.seeds import generator_of

_BATCH_SIZE = 128
_FULL = FullPrecision()

# --- Train a compressed model end to end: on labels, or to imitate the uncompressed model ---------


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
            wanted = self.teacher(batch.inputs)
        return self.distance(outputs, wanted, batch.targets)

    def distance(self, outputs: Tensor, wanted: Tensor, labels: Tensor | None) -> Tensor:
        """The loss for given outputs of the reference."""
        reference = log_softmax(wanted / self.temperature, dim=1)
        predicted = log_softmax(outputs / self.temperature, dim=1)
        predictions = outputs.numel() // outputs.shape[1]
        divergence = kl_div(predicted, reference, reduction="sum", log_target=True) / predictions
        loss = (1 - self.labels) * self.temperature**2 * divergence
        if self.labels:
            assert labels is not None
            loss = loss + self.labels * cross_entropy(outputs, labels)
        return loss

    @property
    def needs_labels(self) -> bool:
        return self.labels > 0

    @property
    def reference(self) -> nn.Module:
        return self.teacher


@dataclass(frozen=True, eq=False)
class KeptDistillation(Objective):
    """`Distillation` for data of `keep_predictions`: the reference is not run again.

    Args:
        distillation: whose reference made the predictions.
    """

    distillation: Distillation

    def loss(self, outputs: Tensor, batch: Batch) -> Tensor:
        assert batch.targets is not None
        wanted, labels = batch.targets[:, :-1], batch.targets[:, -1].long()
        return self.distillation.distance(outputs, wanted, labels)

    @property
    def needs_labels(self) -> bool:
        return True

    @property
    def reference(self) -> nn.Module:
        return self.distillation.teacher


def keep_predictions(
    teacher: nn.Module,
    data: TensorData,
    copies: int,
    *,
    seed: int = 0,
    precision: Precision = _FULL,
) -> TensorData:
    """Every sample a few times, each with another augmentation and the reference's prediction.

    Args:
        teacher: its outputs are logits (batch, classes).
        data: with numbers of classes as targets.
        copies: of every sample.
        seed: of the augmentations.
        precision: in which the reference is run.

    Returns:
        Samples that are augmented already; targets (samples, classes + 1) are logits and the label.

    Raises:
        CompressionError: if there are no labels, or no copy is wanted.
    """
    if data.targets is None or copies < 1:
        raise CompressionError(
            f"keep_predictions: wanted labels and at least 1 copy, got "
            f"{'no labels' if data.targets is None else 'labels'} and {copies} copies."
        )
    inputs = data.inputs.repeat(copies, *[1] * (data.inputs.ndim - 1))
    if data.augment is not None:
        for at, part in enumerate(torch.split(inputs, _BATCH_SIZE)):
            part.copy_(data.augment(part, generator_of("kept augmentation", seed, at)))
    labels = data.targets.repeat(copies)
    kept = TensorData(inputs, labels, normalize=data.normalize)
    device = next(teacher.parameters()).device
    wanted = []
    with torch.no_grad(), inference(teacher), precision.context(device):
        for part in torch.split(torch.arange(len(kept)), _BATCH_SIZE):
            batch = kept.some(part).to(device)
            wanted.append(teacher(batch.inputs).float().cpu())
    return TensorData(
        inputs, torch.cat([torch.cat(wanted), labels[:, None].float()], 1), normalize=data.normalize
    )


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
        progress: called after every step.

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


# --- What a stage is given, and what is wanted of it, computed once and kept in memory ------------


def keep_outputs(
    networks: tuple[nn.Module, nn.Module],
    stage: Stage,
    data: TensorData,
    count: int,
    *,
    seed: int,
    is_first: bool,
) -> TensorData:
    """What the module of a stage is given, with what the reference's gives as targets.

    Args:
        networks: the reference and the compressed model.
        stage: of the compressed model.
        data: augmented as in its first epoch.
        count: of samples to keep.
        seed: of their order and augmentation.
        is_first: nothing comes before the stage: it is given the model's inputs.

    Raises:
        CompressionError: if `count` is below 1, or the stage cannot be run alone.
    """
    reference, compressed = networks
    if count < 1:
        raise CompressionError(f"keep_outputs: wanted at least 1 sample to keep, got {count}.")
    outside = stage.outside
    if outside and not is_first:
        raise CompressionError(
            f"The stage {stage.name!r} also trains {len(outside)} parameters that are not in its "
            f"module, such as {outside[0]!r}, so that it cannot be run alone; fit it without "
            "keeping, or name a module for them."
        )
    given, wanted = [], []
    with torch.no_grad(), inference(reference), inference(compressed):
        for batch in _first(data, count, seed):
            wanted.append(output_of_stage(reference, stage.name, batch.inputs))
            inputs = batch.inputs
            given.append(inputs if is_first else input_of_stage(compressed, stage.name, inputs))
    return TensorData(_concatenate(given), _concatenate(wanted))


def _first(data: TensorData, count: int, seed: int) -> Iterator[Batch]:
    left = min(count, len(data))
    for batch in data.epoch(0, _BATCH_SIZE, seed=seed):
        yield Batch(batch.inputs[:left], None)
        left -= batch.num_samples
        if left <= 0:
            return


def _concatenate(parts: list[Tensor]) -> Tensor:
    """One tensor in the memory order of the parts; they are freed as they are copied."""
    first = parts[0]
    count = sum(map(len, parts))
    channels_last = first.ndim == 4 and first.is_contiguous(memory_format=torch.channels_last)
    whole = torch.empty(
        (count, *first.shape[1:]),
        dtype=first.dtype,
        memory_format=torch.channels_last if channels_last else torch.contiguous_format,
    )
    start = 0
    while parts:
        part = parts.pop(0)
        whole[start : start + len(part)] = part
        start += len(part)
    return whole


# --- Repair a compressed model stage by stage, so that each gives what the uncompressed one gives


_MANIFEST = "stages.json"


@dataclass(frozen=True)
class StageFit:
    """One stage that was fitted, how its loss went, and the seconds that keeping outputs took."""

    stage: str
    history: History
    keeping_seconds: float = 0.0


def fit_stages(  # noqa: PLR0913 - the parts of a run, all by name
    reference: nn.Module,
    compressed: nn.Module,
    data: TensorData,
    *,
    stages: Sequence[str],
    recipe: Recipe,
    folder: Path | None = None,
    progress: Report | None = None,
    keep: int | None = None,
) -> tuple[StageFit, ...]:
    """Fit each stage of a compressed model, in place, to that of the uncompressed one.

    Only the parameters of the current stage train (of the first also those of what comes before
    it; those of what comes after the last not at all). Both models stay in inference mode: batch
    normalizations keep their statistics, and nothing is dropped out, since the reference is not
    random either. Each stage gets the whole recipe and a fresh optimizer.

    Args:
        reference: left as it is.
        compressed: with the same stages; changed in place.
        data: its targets are not used.
        stages: names of modules, in the order in which they end, see `stages_of`.
        recipe: of each stage.
        folder: where each stage keeps its checkpoint; the same call again goes on from there.
        progress: called after every step.
        keep: for the first stage, and those that train nothing outside of their module, so many
            samples are run once through what does not change, and kept in memory (see
            `keep_outputs`); the recipe's seconds are also spent on that. None: nothing is kept.

    Raises:
        CompressionError: if a stage cannot be one, or its outputs differ in shape.
        CheckpointError: if the folder is of another run, or in use.
        TrainingError: as `fit` raises it.
    """
    start = data.head(2).batches(2)[0].inputs
    fitted_stages = split_into_stages(compressed, stages, start)
    _check_outputs(reference, compressed, stages, start)
    finished = []
    with ExitStack() as stack:
        if folder is not None:
            stack.enter_context(_claim_folder(folder, reference, stages))
        for number, stage in enumerate(fitted_stages, start=1):
            began = working_seconds()
            job = _Job(_difference(reference, stage.name), data, recipe)
            is_first = number == 1
            if keep is not None and (is_first or not stage.outside):
                networks = (reference, compressed)
                kept = keep_outputs(
                    networks, stage, data, keep, seed=recipe.seed, is_first=is_first
                )
                rest = _less(recipe, working_seconds() - began)
                job = _Job(_kept_difference(stage.name, is_first=is_first), kept, rest)
            keeping = working_seconds() - began
            with inference(reference):
                history = fit(
                    compressed,
                    job.loss,
                    job.data,
                    job.recipe,
                    parameters=[part for part in stage.parameters.values() if part.requires_grad],
                    folder=None if folder is None else folder / f"stage {number}",
                    progress=_name_progress(progress or ignore, stage.name),
                    batch_norm_frozen=True,
                )
            finished.append(StageFit(stage.name, history, keeping))
    return tuple(finished)


@dataclass(frozen=True, eq=False)
class _Job:
    loss: Loss
    data: TensorData
    recipe: Recipe


def _less(recipe: Recipe, seconds: float) -> Recipe:
    """The recipe, with what is left of its seconds."""
    if recipe.max_seconds is None:
        return recipe
    left = recipe.max_seconds - seconds
    if left <= 0:
        raise CompressionError(
            f"Of the stage's {recipe.max_seconds:.0f} seconds, {seconds:.0f} were spent on keeping "
            "outputs; keep fewer samples, or give it more time."
        )
    return replace(recipe, max_seconds=left)


def _kept_difference(stage: str, *, is_first: bool) -> Loss:
    """Mean squared difference to the reference's kept outputs, of one stage run alone."""

    def loss(model: nn.Module, batch: Batch) -> Tensor:
        if model.training:
            model.eval()
        inputs = batch.inputs
        outputs = (
            output_of_stage(model, stage, inputs)
            if is_first
            else model.get_submodule(stage)(inputs)
        )
        assert batch.targets is not None, "outputs of the reference were kept"
        return mse_loss(outputs[0] if isinstance(outputs, tuple | list) else outputs, batch.targets)

    return loss


def _difference(reference: nn.Module, stage: str) -> Loss:
    def loss(model: nn.Module, batch: Batch) -> Tensor:
        if model.training:
            model.eval()  # the loop trains in training mode, in which dropout would act
        with torch.no_grad():
            wanted = output_of_stage(reference, stage, batch.inputs)
        # What comes before the stage is not trained, so that no gradients are kept for it.
        return mse_loss(output_of_stage(model, stage, batch.inputs), wanted)

    return loss


def _check_outputs(
    reference: nn.Module, compressed: nn.Module, stages: Sequence[str], inputs: Tensor
) -> None:
    for stage in stages:
        with torch.no_grad(), inference(reference), inference(compressed):
            wanted = output_of_stage(reference, stage, inputs).shape
            got = output_of_stage(compressed, stage, inputs).shape
        if wanted != got:
            raise CompressionError(
                f"The stage {stage!r} gives {tuple(wanted)} in the reference, but {tuple(got)} in "
                "the compressed model; compress the same model."
            )


def _claim_folder(folder: Path, reference: nn.Module, stages: Sequence[str]) -> ResumableFolder:
    """The folder, which is for this reference and these stages; of another run it is refused."""
    digest = hashlib.sha256()
    for name, value in reference.state_dict().items():
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
        digest.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    identity = {"reference": digest.hexdigest(), "stages": list(stages)}
    return ResumableFolder(folder, identity, what="repair", manifest=_MANIFEST, is_shared=True)


def _name_progress(progress: Report, stage: str) -> Report:
    def report(step: Progress) -> None:
        progress(Progress(f"{stage}, {step.what}", step.done, step.total))

    return report
