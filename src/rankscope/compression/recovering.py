"""Repair a compressed model within a given time: block by block, then end to end.

    run = repair_model(dense, small.model, data, minutes=20, folder=Path("out.repair"))

A third of the time, at most ten minutes, goes to the blocks, each fitted to the original's outputs,
where the model is a row of blocks and every one of them gets enough steps; the rest goes to
distillation from the original, with the labels beside it where there are some. The model is changed
in place; the same call again goes on where a killed one stopped.
"""

import time
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor, nn

from rankscope.compression.repair import Distillation, Objective, fine_tune, fit_stages
from rankscope.compression.scores import Batch as Given
from rankscope.compression.scores import run
from rankscope.compression.stages import stages_of
from rankscope.compression.training.loop import Evaluate
from rankscope.compression.training.recipe import Adam, History, Recipe, TimedCosine
from rankscope.errors import CompressionError
from rankscope.modes import inference
from rankscope.networks.batches import Batch, TensorData
from rankscope.progress import Report, ignore

STAGE_SHARE = 1 / 3  # of the time, for all blocks together
MOST_STAGE_SECONDS = 600.0  # a longer repair spends the rest on the model as a whole
LEAST_STEPS = 40  # of a block; with fewer its time is better spent end to end
EPOCHS = 10_000  # more than any time allows
LABEL_SHARE = 0.5  # of the labels in the loss, where there are labels


class TokenModel(nn.Module):
    """A model of transformers as a map of one tensor to logits, classes second.

    Args:
        model: that gives `logits` (batch, …, classes).
        name: of its input; tokens (batch, tokens) if nothing else is said.
    """

    def __init__(self, model: nn.Module, name: str = "input_ids") -> None:
        super().__init__()
        self.model = model
        self.name = name

    def forward(self, inputs: Tensor) -> Tensor:
        """(batch, …) to (batch, classes, …)."""
        named: dict[str, object] = {self.name: inputs}
        if self.name == "input_ids":
            named["use_cache"] = False
        output: object = run(self.model, named)
        logits = getattr(output, "logits", None)
        if not isinstance(logits, Tensor):
            raise CompressionError(
                f"repair: {type(self.model).__name__} gives a {type(output).__name__} without "
                "logits; repair it in Python with fine_tune and an objective of its own."
            )
        return logits.movedim(-1, 1)


def gives_logits(model: nn.Module, batch: Given) -> bool:
    """Whether a model says that what it gives are logits, as those of transformers do."""
    with torch.no_grad(), inference(model):
        return isinstance(getattr(run(model, batch), "logits", None), Tensor)


@dataclass(frozen=True)
class RepairRun:
    """What a repair did.

    Args:
        stages: names of the blocks that were fitted alone; none if there was no time for them.
        history: of the training end to end.
    """

    stages: tuple[str, ...]
    history: History


def repair_model(  # noqa: PLR0913 - the parts of a run, all by name
    reference: nn.Module,
    model: nn.Module,
    data: TensorData,
    *,
    minutes: float,
    learning_rate: float = 1e-3,
    batch_size: int = 128,
    objective: Objective | None = None,
    folder: Path | None = None,
    evaluate: Evaluate | None = None,
    progress: Report = ignore,
) -> RepairRun:
    """Train a compressed model in place until the time is over.

    Args:
        reference: the uncompressed model; left as it is.
        model: its compressed form; its weights must not be quantized.
        data: inputs, with targets where there are some.
        minutes: of processor time, planning not included.
        learning_rate: of Adam; it falls to 0 as the time goes by.
        batch_size: samples of a step.
        objective: of the training end to end; None for distillation of logits, with the labels if
            there are some.
        folder: where the run keeps its checkpoints; the same call again goes on from there.
        evaluate: scores after every pass over the data, recorded.
        progress: called after every step.

    Raises:
        CompressionError: if the time is not above 0, or nothing in the model can be trained.
        CheckpointError: if the folder is of another run, or in use.
    """
    if not 0 < minutes < float("inf"):
        raise CompressionError(f"repair: wanted minutes above 0, got {minutes:g}.")
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise CompressionError(
            "repair: the model has no parameter that can be trained (quantized weights cannot); "
            "compress it without bits."
        )
    recipe = Recipe(
        epochs=EPOCHS,
        batch_size=batch_size,
        learning_rate=learning_rate,
        optimizer=Adam(),
        schedule=TimedCosine(),
        clip_norm=1.0,
        max_seconds=60 * minutes,
    )
    stages = _stages(reference, model, data, recipe)
    if stages:
        stage_seconds = _stage_seconds(60 * minutes)
        each = replace(recipe, max_seconds=stage_seconds / len(stages))
        where = None if folder is None else folder / "stages"
        fit_stages(
            reference, model, data, stages=stages, recipe=each, folder=where, progress=progress
        )
        recipe = replace(recipe, max_seconds=60 * minutes - stage_seconds)
    labels, temperature = (0.0, 1.0) if data.targets is None else (LABEL_SHARE, 3.0)
    history = fine_tune(
        model,
        objective or Distillation(reference, temperature=temperature, labels=labels),
        data,
        recipe,
        folder=None if folder is None else folder / "end to end",
        evaluate=evaluate,
        progress=progress,
    )
    return RepairRun(stages, history)


def _stage_seconds(seconds: float) -> float:
    """How much of a repair's time is for the blocks."""
    return min(STAGE_SHARE * seconds, MOST_STAGE_SECONDS)


def _stages(
    reference: nn.Module, model: nn.Module, data: TensorData, recipe: Recipe
) -> tuple[str, ...]:
    """The blocks to be fitted alone; none if the time is too short for them."""
    try:
        stages = stages_of(model)
    except CompressionError:
        return ()
    assert recipe.max_seconds is not None
    # A step of a block runs the original up to it, and the block forwards and backwards.
    seconds = _forward_seconds(reference, data.batches(recipe.batch_size)[0])
    steps = _stage_seconds(recipe.max_seconds) / len(stages) / max(seconds, 1e-6)
    return stages if steps >= LEAST_STEPS else ()


def _forward_seconds(model: nn.Module, batch: Batch) -> float:
    with torch.no_grad(), inference(model):
        model(batch.inputs)
        start = time.process_time()
        model(batch.inputs)
        return time.process_time() - start
