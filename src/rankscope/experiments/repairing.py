"""Two ways to repair a compressed network, as experiments compare them."""

from dataclasses import dataclass, replace
from enum import StrEnum

from torch import nn

from rankscope.compression.fine_tuning import Labels, fine_tune
from rankscope.compression.sequential import fit_stages
from rankscope.experiments.experiment import Workplace
from rankscope.experiments.subject import Subject
from rankscope.training.batches import TensorData
from rankscope.training.recipe import Adam, Recipe, TimedCosine

# Of the source: Adam at 1e-3, batches of 128, no weight decay, 50 epochs for each stage. It trains
# at one rate; in minutes instead of days a rate that falls to 0 ends nearer to its goal. The limit
# of samples is that of all stages together, and the same for every format.
SOURCE_RECIPE = Recipe(
    epochs=50,
    batch_size=128,
    learning_rate=1e-3,
    optimizer=Adam(),
    schedule=TimedCosine(),
    max_samples=150_000,
)
# Augmented samples whose outputs are kept while a stage is fitted: 1.6 GB of a ResNet-32's.
KEPT_SAMPLES = 25_000


class Protocol(StrEnum):
    """Stage by stage against the uncompressed network, or end to end on labels."""

    SEQUENTIAL = "sequential"
    END_TO_END = "end-to-end"


@dataclass(frozen=True)
class Repair:
    """What a repair took: samples processed (in all stages together) and seconds."""

    samples: int
    seconds: float


def repair(
    protocol: Protocol,
    subject: Subject,
    networks: tuple[nn.Module, nn.Module],
    data: TensorData,
    recipe: Recipe,
    place: Workplace,
) -> Repair:
    """Train a compressed network in place.

    Args:
        protocol: which way.
        subject: names the stages.
        networks: the reference, which is left alone, and its compressed copy.
        data: what is trained on.
        recipe: of the whole repair: the limits of samples and seconds are shared by the stages.
        place: where the checkpoints go.
    """
    reference, compressed = networks
    if protocol is Protocol.END_TO_END:
        folder = place.folder / "end-to-end"
        history = fine_tune(
            compressed, Labels(), data, recipe, folder=folder, progress=place.report
        )
        return Repair(history.samples, history.seconds)
    stages = len(subject.stages)
    shared = replace(
        recipe,
        max_seconds=None if recipe.max_seconds is None else recipe.max_seconds / stages,
        max_samples=None if recipe.max_samples is None else max(recipe.max_samples // stages, 1),
    )
    fits = fit_stages(
        reference,
        compressed,
        data,
        stages=subject.stages,
        recipe=shared,
        folder=place.folder,
        progress=place.report,
        keep=min(KEPT_SAMPLES, shared.max_samples or KEPT_SAMPLES),
    )
    samples = sum(fit.history.samples for fit in fits)
    seconds = sum(fit.history.seconds + fit.keeping_seconds for fit in fits)
    return Repair(samples, seconds)
