"""Networks, plain or with CP layers: `cp-layers-accuracy` and `cp-properties`."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import torch
from torch import nn

from rankscope.compression.training.loop import Evaluate, cross_entropy, fit
from rankscope.compression.training.recipe import Cosine, History, Recipe
from rankscope.errors import ExperimentError
from rankscope.generalize.analysis import Options, analyse
from rankscope.generalize.sample import Sample
from rankscope.lab.experiments.baselines import class_baselines
from rankscope.lab.experiments.claims import Claims, Pair, Statement, Verdict
from rankscope.lab.experiments.classifiers import accuracy_of, percent_right
from rankscope.lab.experiments.experiment import Entry, Experiment, Row, RunContext
from rankscope.lab.experiments.figure_curves import CurveFigure
from rankscope.lab.experiments.figure_dots import DotFigure
from rankscope.lab.experiments.figure_parts import Panel
from rankscope.lab.experiments.wording import worded
from rankscope.networks.batches import Augmentation, PadCropFlip, TensorData
from rankscope.networks.catalogue import BUILT_IN, build
from rankscope.networks.cp_networks import with_cp_layers
from rankscope.networks.datasets import DataSet, load_data_set, with_random_labels
from rankscope.seeds import seed_of

# What is trained in experiments on generalization: a small network, plain or with CP layers.


_SMALLEST_SIDE = 3  # images are not pooled to less
_DROPOUT = 0.5
# Digits change their meaning when they are flipped.
_AUGMENTATIONS: dict[str, Augmentation] = {"fashion-mnist": PadCropFlip(), "cifar10": PadCropFlip()}


@dataclass(frozen=True)
class TrainingWorkload:
    """A network and the samples that it is trained on.

    Args:
        data_set: its name.
        num_samples: of the training set, the first ones; None for all.
        is_cp: whether all layers but the first and the last are CP layers, drawn in that form at
            the rank that has as many parameters.
        width: channels of the first layer.
        is_regularized: dropout before the last layer, and shifted and flipped images where that
            keeps their meaning.
    """

    data_set: str
    num_samples: int | None = None
    is_cp: bool = True
    width: int = 16
    is_regularized: bool = False

    @property
    def name(self) -> str:
        """The names of the data set and the form."""
        return f"{self.data_set}-{self.form}"

    @property
    def form(self) -> str:
        """The form of the layers."""
        return "cp" if self.is_cp else "plain"

    def data(self, folder: Path | None) -> DataSet:
        """The samples; augmented only if the workload is regularized.

        Raises:
            ExperimentError: if the data set has fewer samples.
            DataError: if it is not there.
        """
        result = load_data_set(self.data_set, folder)
        wanted = len(result.train) if self.num_samples is None else self.num_samples
        if wanted > len(result.train):
            raise ExperimentError(
                f"{self.name}: {self.data_set} has {len(result.train):,} training samples, but "
                f"{wanted:,} are wanted."
            )
        augment = _AUGMENTATIONS.get(self.data_set) if self.is_regularized else None
        return replace(result, train=replace(result.train.head(wanted), augment=augment))

    def network(self, data: DataSet, seed: int) -> nn.Module:
        """A fresh network for these samples."""
        image = tuple(data.train.inputs.shape[1:])
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed_of("weights", seed))
            dropout = _DROPOUT if self.is_regularized else 0.0
            model = small_network(image, data.num_classes, width=self.width, dropout=dropout)
        return with_cp_layers(model, seed=seed) if self.is_cp else model


@dataclass(frozen=True)
class ResNetWorkload(TrainingWorkload):
    """A ResNet-20, plain or with CP layers, in the place of the small network.

    Args:
        data_set: its name.
        num_samples: of the training set, the first ones; None for all.
        is_cp: whether all layers but the first and the last are CP layers.
        width: of the small network, not used.
        is_regularized: shifted and flipped images where that keeps their meaning.
    """

    @property
    def name(self) -> str:
        """The names of the data set, the network and the form."""
        return f"{self.data_set}-resnet20-{self.form}"

    def network(self, data: DataSet, seed: int) -> nn.Module:
        """A fresh network for these samples."""
        del data  # ResNet-20 is for images of CIFAR-10
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed_of("weights", seed))
            model = BUILT_IN["resnet20"].make()
        model = with_cp_layers(model, seed=seed) if self.is_cp else model
        return model.to(memory_format=torch.channels_last)  # type: ignore[call-overload,no-any-return]


def small_network(
    image: tuple[int, ...],
    num_classes: int,
    *,
    width: int,
    dropout: float = 0.0,
    has_bias: bool = True,
) -> nn.Sequential:
    """Three convolutions of 3 x 3 and a linear map, with ReLU; a chain without normalizations.

    Images are halved after each convolution as long as 3 x 3 places are left.

    Args:
        image: channels, rows and columns.
        num_classes: length of the output.
        width: channels of the first convolution; the others have twice as many.
        dropout: before the linear map.
        has_bias: whether layers add one.

    Example:
        >>> network = small_network((3, 32, 32), 10, width=16)
        >>> sum(weight.numel() for weight in network.parameters())
        19466
    """
    channels, *sides = image
    layers: list[nn.Module] = []
    for outputs in (width, 2 * width, 2 * width):
        convolution = nn.Conv2d(channels, outputs, 3, padding=1, bias=has_bias)
        # The variance that CP layers start with too; otherwise these would learn faster.
        nn.init.kaiming_normal_(convolution.weight, nonlinearity="relu")
        if convolution.bias is not None:
            nn.init.zeros_(convolution.bias)
        layers += [convolution, nn.ReLU()]
        channels = outputs
        if min(sides) // 2 >= _SMALLEST_SIDE:
            layers.append(nn.MaxPool2d(2))
            sides = [side // 2 for side in sides]
    layers.append(nn.Flatten())
    if dropout:
        layers.append(nn.Dropout(dropout))
    features = channels * sides[0] * sides[1]
    return nn.Sequential(*layers, nn.Linear(features, num_classes, bias=has_bias))


def inputs_and_labels(data: TensorData) -> tuple[torch.Tensor, torch.Tensor]:
    """All samples as a network takes them, without augmentation."""
    (batch,) = data.batches(len(data))
    assert batch.targets is not None, "every data set of an experiment has labels"
    return batch.inputs.contiguous(), batch.targets


# Train a `TrainingWorkload`, on its own labels or on others, and score it.


WEIGHT_DECAY = 0.1  # decoupled, of regularized workloads


@dataclass(frozen=True, eq=False)
class Trained:
    """A network after training.

    Args:
        model: in the mode in which it was built.
        train: what it was trained on, without augmentation.
        history: of the run.
    """

    model: nn.Module
    train: TensorData
    history: History

    def accuracy(self, data: TensorData) -> float:
        """Accuracy in percent, in inference mode."""
        return percent_right(self.model.eval(), data)


@dataclass(frozen=True)
class WorkloadTraining:
    """Training settings of a workload.

    Args:
        workload: the network and its samples.
        recipe: its seed is replaced; regularized workloads get a weight decay.
        noise: share of labels that are replaced by draws from all classes.
        seed: of the weights, the order of the samples, and the noise.
    """

    workload: TrainingWorkload
    recipe: Recipe
    noise: float = 0.0
    seed: int = 0

    def samples(self, data: DataSet) -> TensorData:
        """The training samples, labels replaced."""
        return with_random_labels(data.train, self.noise, data.num_classes, seed=self.seed)

    def run(
        self,
        context: RunContext,
        data: DataSet,
        *,
        samples: TensorData | None = None,
        evaluate: Evaluate | None = None,
        folder: str = "training",
    ) -> Trained:
        """Train, or go on with what the folder holds.

        Args:
            context: where.
            data: of the workload.
            samples: to train on instead of `self.samples(data)`.
            evaluate: called after every epoch, or less often.
            folder: of this run, below that of the entry.
        """
        train = self.samples(data) if samples is None else samples
        model = self.workload.network(data, self.seed)
        decay = WEIGHT_DECAY if self.workload.is_regularized else self.recipe.weight_decay
        history = fit(
            model,
            cross_entropy,
            train,
            replace(self.recipe, seed=self.seed, weight_decay=decay),
            folder=context.folder / folder,
            evaluate=evaluate,
            progress=context.report,
        )
        return Trained(model, replace(train, augment=None), history)


# One row of `cp-layers-accuracy`: train a workload, score it on what it has and has not seen.


@dataclass(frozen=True)
class AccuracyEntry(Entry):
    """Train with the true labels.

    Args:
        workload: the network and its samples.
        recipe: its seed is that of the entry.
        seed: of everything.
    """

    has_checkpoints: ClassVar[bool] = True

    workload: TrainingWorkload
    recipe: Recipe
    seed: int = 0

    @property
    def name(self) -> str:
        """The name of the workload."""
        return self.workload.name

    def run(self, context: RunContext) -> Row:
        """Accuracies in percent after the last epoch."""
        data = self.workload.data(context.data)
        trained = WorkloadTraining(self.workload, self.recipe, seed=self.seed).run(context, data)
        records = trained.history.records
        train, test = trained.accuracy(trained.train), trained.accuracy(data.test)
        return {
            "data": self.workload.data_set,
            "form": self.workload.form,
            "samples": len(trained.train),
            "parameters": sum(weight.numel() for weight in trained.model.parameters()),
            "train accuracy": train,
            "test accuracy": test,
            "gap": train - test,
            "losses": [record.loss for record in records],
        }


# `cp-layers-accuracy`: do CP layers cost accuracy at an equal number of parameters?
#
# The source trains VGG-16 and WideResNet-28-10 on CIFAR-10, which takes days without a GPU; here
# small networks are trained on subsets.


_DIGITS = Recipe(epochs=60, batch_size=64, learning_rate=2e-3, schedule=Cosine())
_LARGER = replace(_DIGITS, epochs=25)
_NUM_SAMPLES = 5_000


def _pair(data_set: str, recipe: Recipe, *, is_regularized: bool) -> tuple[AccuracyEntry, ...]:
    samples = None if data_set == "digits" else _NUM_SAMPLES
    return tuple(
        AccuracyEntry(
            TrainingWorkload(data_set, samples, is_cp=is_cp, is_regularized=is_regularized), recipe
        )
        for is_cp in (False, True)
    )


CP_LAYERS_ACCURACY = Experiment(
    name="cp-layers-accuracy",
    title="CP layers against plain ones at equal parameters: accuracy in percent",
    entries=(
        *_pair("digits", _DIGITS, is_regularized=False),
        *_pair("fashion-mnist", _LARGER, is_regularized=False),
        *_pair("cifar10", _LARGER, is_regularized=True),
        *class_baselines("digits"),
        *class_baselines("fashion-mnist", _NUM_SAMPLES),
        *class_baselines("cifar10", _NUM_SAMPLES),
    ),
    quick=_pair("digits", replace(_DIGITS, epochs=12), is_regularized=False),
    protocol=(
        "Three convolutions of 16, 32 and 32 channels and a linear map, ReLU, no normalization. "
        "With CP layers, the second and the third convolution are drawn and trained in CP form, "
        "at the rank with as many parameters. Adam from 2e-3 to 0 along a cosine, batches of 64: "
        "60 epochs on 1,437 digits, 25 on the first 5,000 images of Fashion-MNIST and CIFAR-10. "
        "CIFAR-10 with shifted and flipped images, dropout of one half before the last layer and "
        "a weight decay of 0.1; the others without. Accuracies are those after the last epoch, "
        "on the whole test set."
    ),
    needs="FashionMNIST/raw and cifar-10-batches-bin",
    seconds=1800.0,
    seeds=5,
    figure=DotFigure(
        ("test accuracy", "train accuracy"),
        panels=tuple(
            Panel(worded(data_set), f"{data_set}-(.+)", baselines=f"{data_set}-(.+)")
            for data_set in ("digits", "fashion-mnist", "cifar10")
        ),
        labels={"plain": "plain layers", "cp": "CP layers"},
    ),
    claims=Claims(
        "Do CP layers cost accuracy at an equal number of parameters?",
        tuple(
            Pair(
                f"{worded(data_set)}: CP layers against plain ones",
                f"{data_set}-cp",
                f"{data_set}-plain",
                accuracy_of(data_set),
            )
            for data_set in ("digits", "fashion-mnist", "cifar10")
        ),
        hypothesis="CP layers cost no accuracy at an equal number of parameters (Li et al. 2020).",
    ),
)


# `cp-properties`: what the search for ranks says of the source's networks, before training.
#
# VGG-16 and WideResNet-28-10 are built with CP layers and measured; to train them takes days here.


@dataclass(frozen=True)
class PropertiesEntry(Entry):
    """Measure an untrained network with CP layers.

    Args:
        network: a built-in one; the same without `cp-` is its plain twin.
        data_set: whose training images it is run on.
        num_samples: how many of them.
        margin: γ.
    """

    network: str
    data_set: str
    num_samples: int
    margin: float = 1.0

    @property
    def name(self) -> str:
        """The name of the network."""
        return self.network

    def run(self, context: RunContext) -> Row:
        """Parameters, ranks and the properties of layers, put together."""
        data = load_data_set(self.data_set, context.data).train.head(self.num_samples)
        sample = Sample(*inputs_and_labels(data))
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            model, plain = build(self.network), build(self.network.removeprefix("cp-"))
        options = Options(num_jacobians=0)
        result = analyse(model, sample, self.margin, options=options, report=context.report)
        layers = result.choice.layers
        factors = [layer.factor for layer in layers]
        return {
            "parameters": sum(weight.numel() for weight in model.parameters()),
            "plain parameters": sum(weight.numel() for weight in plain.parameters()),
            "samples": len(sample),
            "layers": len(layers),
            "components": sum(layer.rank for layer in layers),
            "components kept": sum(layer.kept_rank for layer in layers),
            "log10 of the product of t": math.fsum(map(math.log10, factors)),
            "smallest cushion": min(result.cushions),
            "parameters kept": dict(result.bound("compression-order").constants)["parameters"],
            "t": factors,
            "cushions": list(result.cushions),
        }


def _kept(rows: Sequence[Row]) -> list[Statement]:
    return [
        Statement(
            worded(str(row["entry"])),
            Verdict.FACT,
            f"{int(str(row['components kept'])):,} of {int(str(row['components'])):,} components "
            f"are kept for a margin of 1; the tensorization factors multiply to 10^"
            f"{float(str(row['log10 of the product of t'])):.0f}",
        )
        for row in rows
    ]


CP_PROPERTIES = Experiment(
    name="cp-properties",
    title="Untrained networks with CP layers: ranks that keep a margin of 1",
    entries=(
        PropertiesEntry("cp-resnet20", "cifar10", 100),
        PropertiesEntry("cp-vgg16-bn", "cifar10", 100),
        PropertiesEntry("cp-wide-resnet-28-10", "cifar10", 10),
    ),
    quick=(PropertiesEntry("cp-digits", "digits", 100),),
    seconds=900.0,
    needs="cifar-10-batches-bin",
    protocol=(
        "Networks as they start, convolutions but the first in CP form at the rank with as many "
        "parameters; properties in the triangle form on the first training images, ranks by the "
        "direct search at margin 1. Nothing is trained."
    ),
    figure=CurveFigure(
        ("t",),
        ("layer", "its tensorization factor t"),
        is_logarithmic=True,
        labels={
            "cp-resnet20": "ResNet-20",
            "cp-vgg16-bn": "VGG-16",
            "cp-wide-resnet-28-10": "Wide ResNet-28-10",
        },
    ),
    claims=Claims("What can be dropped of a CP network before it is trained?", facts=_kept),
)
