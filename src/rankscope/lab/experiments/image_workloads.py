"""Trained image networks that experiments compress: counted, cut at one rate, and repaired."""

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

import torch
from torch import Tensor, nn

from rankscope.compression.repair import (
    Distillation,
    KeptDistillation,
    Labels,
    Objective,
    fine_tune,
    fit_stages,
    keep_predictions,
)
from rankscope.compression.training.recipe import Adam, Recipe, TimedCosine, working_seconds
from rankscope.errors import ExperimentError
from rankscope.factorize.convolution import FactorizedConv2d
from rankscope.factorize.formats.format import Format, Ranks, WeightShape
from rankscope.factorize.formats.reshaped import ReshapedFormat
from rankscope.factorize.paths import Path as ExecutionPath
from rankscope.lab.data.scoring import accuracy
from rankscope.lab.experiments.experiment import RunContext
from rankscope.networks.batches import TensorData
from rankscope.networks.catalogue import build_trained
from rankscope.networks.datasets import DataSet, load_data_set

# Trained networks that experiments compress, each with its data and its stages.


@dataclass(frozen=True)
class CompressionWorkload:
    """A trained network, the data it was trained on, and the stages it is repaired by.

    Args:
        network: name of a built-in network.
        data_set: name of its data set.
        stages: names of modules in the order in which they run; all convolutions inside of them
            are compressed, nothing else.
    """

    network: str
    data_set: str
    stages: tuple[str, ...]

    def build(self, data: Path | None) -> nn.Module:
        """The trained network, in inference mode, in the memory order that is fast on CPUs.

        Raises:
            DataError: if its weights are not there; the message says how to get them.
        """
        model = build_trained(self.network, data=data)
        return model.to(memory_format=torch.channels_last)  # type: ignore[call-overload,no-any-return]

    def load(self, data: Path | None) -> DataSet:
        """Its data.

        Raises:
            DataError: if they are not there; the message says how to get them.
        """
        return load_data_set(self.data_set, data)

    def convolutions(self, model: nn.Module) -> dict[str, nn.Conv2d]:
        """The convolutions that are compressed, by name."""
        return {
            name: module
            for name, module in model.named_modules()
            if isinstance(module, nn.Conv2d)
            and any(name == stage or name.startswith(f"{stage}.") for stage in self.stages)
        }


def score(model: nn.Module, data: TensorData) -> float:
    """The accuracy of a classifier in percent, to two digits, as tables are printed."""
    batch = data.batches(len(data))[0]
    assert batch.targets is not None, "every data set of an experiment has labels"
    return round(100 * accuracy(model, batch.inputs, batch.targets), 2)


RESNET32 = CompressionWorkload("resnet32", "cifar10", ("layer1", "layer2", "layer3"))
DIGITS = CompressionWorkload("digits", "digits", ("conv2", "conv3"))


# What was kept of a network's convolutions, counted on the networks themselves.


@dataclass(frozen=True)
class Comparison:
    """A compressed network beside its reference.

    Args:
        dense: numbers in the weights of the convolutions that may be compressed.
        kept: numbers in what stands in their place.
        error: relative Frobenius error of all those weights together.
    """

    dense: int
    kept: int
    error: float

    @property
    def share(self) -> float:
        """Kept over dense."""
        return self.kept / self.dense


def compare(
    workload: CompressionWorkload, reference: nn.Module, compressed: nn.Module
) -> Comparison:
    """Count and compare the convolutions of the stages."""
    dense, kept, lost, total = 0, 0, 0.0, 0.0
    for name, convolution in workload.convolutions(reference).items():
        weight = convolution.weight.detach().double()
        rebuilt, size = _weight(compressed.get_submodule(name))
        dense += weight.numel()
        kept += size
        lost += float((rebuilt.detach().double() - weight).square().sum())
        total += float(weight.square().sum())
    return Comparison(dense, kept, math.sqrt(lost / total))


def _weight(module: nn.Module) -> tuple[Tensor, int]:
    """The weight of a convolution, and how many numbers it is made of."""
    if isinstance(module, FactorizedConv2d):
        return module.to_dense().weight, sum(core.numel() for core in module.cores.parameters())
    assert isinstance(module, nn.Conv2d), f"{module} is no convolution"
    return module.weight, module.weight.numel()


# The same format and the same share for every convolution, by counted parameters.


def compress_uniformly(
    workload: CompressionWorkload, model: nn.Module, format: Format, keep: float, *, seed: int = 0
) -> nn.Module:
    """A copy of a model with every convolution of its stages in one format, at one rate.

    Raises:
        ExperimentError: if not even ranks of one are that small.
    """
    convolutions = workload.convolutions(model)
    shapes = {name: WeightShape.of(dense.weight) for name, dense in convolutions.items()}
    ranks = ranks_at_one_rate(format, shapes, keep)
    compressed = copy.deepcopy(model)
    for name, dense in convolutions.items():
        layer = FactorizedConv2d.from_dense(dense, format, ranks[name], seed=seed)
        if isinstance(format, ReshapedFormat):
            # Their chains pass maps as many times as large as the ranks, which training also keeps:
            # measured on ResNet-32 at 2 %, a step with the rebuilt kernel is 5 times as fast.
            layer.path = ExecutionPath.REBUILT
        parent, _, child = name.rpartition(".")
        setattr(compressed.get_submodule(parent), child, layer)
    return compressed


def ranks_at_one_rate(
    format: Format, shapes: Mapping[str, WeightShape], keep: float
) -> dict[str, Ranks]:
    """Ranks with which each weight keeps about `keep` of its numbers, and all together not more.

    Ranks are rounded down; what that leaves over is carried to the next weight.

    Raises:
        ExperimentError: if not even ranks of one are that small.
    """
    results: dict[str, Ranks] = {}
    dense = kept = 0
    for name, shape in shapes.items():
        dense += shape.num_parameters
        limit = int(keep * dense) - kept
        ranks = format.largest_ranks(shape, limit)
        if ranks is None:
            raise ExperimentError(
                f"{format.name} cannot write {name}, of shape {shape.sizes}, with {limit:,} of its "
                f"{shape.num_parameters:,} numbers, not even with ranks of one."
            )
        kept += format.num_parameters(shape, ranks)
        results[name] = ranks
    return results


# Two ways to repair a compressed network, as experiments compare them.


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
    workload: CompressionWorkload,
    networks: tuple[nn.Module, nn.Module],
    data: TensorData,
    recipe: Recipe,
    context: RunContext,
) -> Repair:
    """Train a compressed network in place.

    Args:
        protocol: which way.
        workload: names the stages.
        networks: the reference, which is left alone, and its compressed copy.
        data: what is trained on.
        recipe: of the whole repair: the limits of samples and seconds are shared by the stages.
        context: where the checkpoints go.
    """
    reference, compressed = networks
    if protocol is Protocol.END_TO_END:
        folder = context.folder / "end-to-end"
        history = fine_tune(
            compressed, Labels(), data, recipe, folder=folder, progress=context.report
        )
        return Repair(history.samples, history.seconds)
    stages = len(workload.stages)
    shared = replace(
        recipe,
        max_seconds=None if recipe.max_seconds is None else recipe.max_seconds / stages,
        max_samples=None if recipe.max_samples is None else max(recipe.max_samples // stages, 1),
    )
    fits = fit_stages(
        reference,
        compressed,
        data,
        stages=workload.stages,
        recipe=shared,
        folder=context.folder,
        progress=context.report,
        keep=min(KEPT_SAMPLES, shared.max_samples or KEPT_SAMPLES),
    )
    samples = sum(fit.history.samples for fit in fits)
    seconds = sum(fit.history.seconds + fit.keeping_seconds for fit in fits)
    return Repair(samples, seconds)


SEQUENTIAL_SHARE = 0.25  # of the seconds; the rest is end to end
END_TO_END_RECIPE = Recipe(
    epochs=200, batch_size=128, learning_rate=2e-3, optimizer=Adam(), schedule=TimedCosine()
)


def repair_twice(  # noqa: PLR0913 - the parts of a run
    workload: CompressionWorkload,
    networks: tuple[nn.Module, nn.Module],
    data: TensorData,
    recipes: tuple[Recipe, Recipe],
    seconds: float,
    context: RunContext,
    copies: int = 0,
) -> Repair:
    """Repair stage by stage, then end to end on labels and the reference's predictions.

    Args:
        workload: names the stages.
        networks: the reference, which is left alone, and its compressed copy.
        data: what is trained on.
        recipes: of the stages, and of the end-to-end part.
        seconds: of both together; what the stages leave over is spent end to end.
        context: where the checkpoints go.
        copies: of every sample, whose predictions are computed once; 0 for new augmentations in
            every epoch, on which the reference is run again.
    """
    reference, compressed = networks
    first, second = recipes
    stages = replace(first, max_seconds=SEQUENTIAL_SHARE * seconds)
    done = repair(Protocol.SEQUENTIAL, workload, networks, data, stages, context)
    began = working_seconds()
    objective: Objective = Distillation(reference, labels=0.5)
    if copies:
        objective = KeptDistillation(Distillation(reference, labels=0.5))
        data = keep_predictions(
            reference, data, copies, seed=second.seed, precision=second.precision
        )
    keeping = working_seconds() - began
    history = fine_tune(
        compressed,
        objective,
        data,
        replace(second, max_seconds=seconds - done.seconds - keeping),
        folder=context.folder / "end-to-end",
        progress=context.report,
    )
    total = done.seconds + keeping + history.seconds
    return Repair(done.samples + history.samples, total)
