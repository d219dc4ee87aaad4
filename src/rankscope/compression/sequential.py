"""Repair a compressed model stage by stage, so that each gives what the uncompressed one gives.

Stage after stage, the mean squared difference between the outputs of the two models' stages is
minimized. A stage runs on what the compressed model's own stages before it give, so that it also
corrects what they still lack. No labels are used.

Reference:
    Su, Li, Bhattacharjee & Huang (2018), arXiv:1805.10352, and the code released with it.
"""

import hashlib
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss

from rankscope.compression.kept_outputs import keep_outputs
from rankscope.compression.stages import output_of_stage, split_into_stages
from rankscope.errors import CompressionError
from rankscope.modes import inference
from rankscope.progress import Progress, Report, ignore
from rankscope.resumable import ResumableFolder
from rankscope.training.batches import Batch, TensorData
from rankscope.training.history import History, working_seconds
from rankscope.training.loop import Loss, fit
from rankscope.training.recipe import Recipe

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
        progress: told of every step.
        keep: for the first stage, and those that train nothing outside of their module, so many
            samples are run once through what does not change, and kept in memory (see
            `keep_outputs`); the recipe's seconds are also spent on that. None: nothing is kept.

    Raises:
        CompressionError: if a stage cannot be one, or its outputs differ in shape.
        CheckpointError: if the folder is of another run, or in use.
        TrainingError: as `fit` raises it.
    """
    start = data.head(2).batches(2)[0].inputs
    found = split_into_stages(compressed, stages, start)
    _check_outputs(reference, compressed, stages, start)
    finished = []
    with ExitStack() as stack:
        if folder is not None:
            stack.enter_context(_claimed(folder, reference, stages))
        for number, stage in enumerate(found, start=1):
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
                    progress=_named(progress or ignore, stage.name),
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
    """Of the first stage, or one whose module is run alone, on what was kept."""

    def loss(model: nn.Module, batch: Batch) -> Tensor:
        if model.training:
            model.eval()
        inputs = batch.inputs
        found = (
            output_of_stage(model, stage, inputs)
            if is_first
            else model.get_submodule(stage)(inputs)
        )
        assert batch.targets is not None, "outputs of the reference were kept"
        return mse_loss(found[0] if isinstance(found, tuple | list) else found, batch.targets)

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


def _claimed(folder: Path, reference: nn.Module, stages: Sequence[str]) -> ResumableFolder:
    """The folder, which is for this reference and these stages; of another run it is refused."""
    digest = hashlib.sha256()
    for name, value in reference.state_dict().items():
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
        digest.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    identity = {"reference": digest.hexdigest(), "stages": list(stages)}
    return ResumableFolder(folder, identity, what="repair", manifest=_MANIFEST, is_shared=True)


def _named(progress: Report, stage: str) -> Report:
    def report(step: Progress) -> None:
        progress(Progress(f"{stage}, {step.what}", step.done, step.total))

    return report
