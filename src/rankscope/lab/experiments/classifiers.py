"""Tensor-network classifiers: `tt-mnist`, `tt-digits` and `shallow-vs-deep`."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import torch
from torch import nn

from rankscope.compression.training.loop import cross_entropy, fit
from rankscope.compression.training.recipe import Cosine, Recipe
from rankscope.errors import ExperimentError
from rankscope.lab.experiments.baselines import class_baselines
from rankscope.lab.experiments.claims import Claims, Pair, Score
from rankscope.lab.experiments.experiment import Entry, Experiment, Row, RunContext
from rankscope.lab.experiments.figure_curves import CurveFigure
from rankscope.lab.experiments.figure_dots import DotFigure
from rankscope.lab.experiments.figure_parts import Panel
from rankscope.networks.batches import TensorData
from rankscope.networks.classifiers import (
    HierarchicalClassifier,
    ShallowClassifier,
    TensorNetworkClassifier,
    TrainClassifier,
)
from rankscope.networks.datasets import load_data_set
from rankscope.networks.features import PatchFeatures
from rankscope.rank.partition import Partition
from rankscope.seeds import seed_of

# One row of a table of tensor-network classifiers: build one, train it, score it.


_SCORED_AT_ONCE = 500
_SCORED_TRAINING = 10_000  # training images that are scored in the end


@dataclass(frozen=True)
class ClassifierEntry(Entry):
    """Train a classifier and score it after every epoch.

    Args:
        setting: name of the row.
        features: builds the features, given a generator.
        form: builds the classifier, given the features, the number of classes and a generator.
        data_set: name of the images.
        recipe: its seed is that of the entry.
        num_samples: of the training set, the first ones; None for all.
        published: accuracies on the training and on the test set in percent, as a source reports.
        seed: of the weights, and of the order of the samples.
    """

    has_checkpoints: ClassVar[bool] = True

    setting: str
    features: Callable[..., PatchFeatures]
    form: Callable[..., TensorNetworkClassifier]
    data_set: str
    recipe: Recipe
    num_samples: int | None = None
    published: tuple[float, float] | None = None
    seed: int = 0

    @property
    def name(self) -> str:
        """The name of the setting."""
        return self.setting

    def build(self, num_classes: int) -> TensorNetworkClassifier:
        """The classifier before it is trained."""
        generator = torch.Generator().manual_seed(seed_of("weights", self.seed))
        features = self.features(generator=generator)
        return self.form(features, num_classes=num_classes, generator=generator)

    def run(self, context: RunContext) -> Row:
        """Accuracies in percent, and the rank that the form allows.

        Raises:
            ExperimentError: if the data set has fewer samples.
        """
        data = load_data_set(self.data_set, context.data)
        train = self._samples(data.train)
        model = self.build(data.num_classes)
        history = fit(
            model,
            cross_entropy,
            train,
            replace(self.recipe, seed=self.seed),
            folder=context.folder / "training",
            evaluate=lambda trained: {"accuracy": percent_right(trained, data.test)},
            progress=context.report,
        )
        accuracies = [record.metrics["accuracy"] for record in history.records]
        published = self.published or (None, None)
        return {
            "parameters": sum(parameter.numel() for parameter in model.parameters()),
            "train accuracy": percent_right(model, train.head(_SCORED_TRAINING)),
            "test accuracy": accuracies[-1],
            "published train": published[0],
            "published test": published[1],
            "log10 of rank": log_rank_bound(model),
            "seconds": history.seconds,
            "test accuracies": accuracies,
            "losses": [record.loss for record in history.records],
        }

    def _samples(self, data: TensorData) -> TensorData:
        if self.num_samples is None:
            return data
        if self.num_samples > len(data):
            raise ExperimentError(
                f"{self.setting}: {self.data_set} has {len(data):,} training samples, but "
                f"{self.num_samples:,} are wanted."
            )
        return data.head(self.num_samples)


def percent_right(model: nn.Module, data: TensorData) -> float:
    """The share of samples in percent whose largest logit is that of their label."""
    right = 0
    with torch.no_grad():
        for batch in data.batches(_SCORED_AT_ONCE):
            right += int((model(batch.inputs).argmax(dim=1) == batch.targets).sum())
    return 100 * right / len(data)


def log_rank_bound(model: TensorNetworkClassifier) -> float:
    """Decimal logarithm of the minimal cut between odd and even patches: no score's rank is larger.

    Almost all weights attain it in all cases measured, except where nodes of a tree share theirs.
    """
    bound = model.score_network(0).upper_bound(Partition.interleaved(model.features.num_patches))
    assert bound is not None, "all forms have one"
    return bound.log3 * math.log10(3)


# `tt-mnist` and `tt-digits`: tensor-train classifiers with different and with equal cores.
#
# Alkin (2024) trains both on MNIST for 20 epochs with Adam at 5e-4 and batches of 64. Sizes of
# patches, features and bonds are not reported; ours are 16 patches of 7 x 7, 32 features and bonds
# of 32.


# Of the source, except for the schedule, which it does not mention.
SOURCE_RECIPE = Recipe(epochs=20, batch_size=64, learning_rate=5e-4)
DIGITS_RECIPE = Recipe(epochs=60, batch_size=64, learning_rate=2e-3, schedule=Cosine())
DIFFERENT, EQUAL = (
    partial(TrainClassifier, bond=32, has_equal_cores=has_equal_cores)
    for has_equal_cores in (False, True)
)
MNIST_PATCHES = partial(PatchFeatures, image=(1, 28, 28), patch=7, num_features=32)
OVERLAPPING = partial(PatchFeatures, image=(1, 28, 28), patch=8, stride=4, num_features=32)
DIGITS_PATCHES = partial(PatchFeatures, image=(1, 8, 8), patch=2, num_features=16)

_DIGITS = tuple(
    ClassifierEntry(
        setting,
        DIGITS_PATCHES,
        partial(TrainClassifier, bond=16, has_equal_cores=setting == "equal-cores"),
        "digits",
        DIGITS_RECIPE,
    )
    for setting in ("different-cores", "equal-cores")
)


def shortened(entry: ClassifierEntry) -> ClassifierEntry:
    """The same for the quick version: a third of the epochs."""
    return replace(entry, recipe=replace(entry.recipe, epochs=entry.recipe.epochs // 3))


LEARNING_CURVES = CurveFigure(
    ("test accuracies",),
    ("epoch", "test accuracy (percent)"),
    labels={"equal-cores-overlapping-cosine": "equal cores, overlapping\npatches, cosine schedule"},
    panels=(Panel(baselines=".+?-(.+)"),),
    level="test accuracy",
    published="published test",
)


def accuracy_of(data_set: str) -> Score:
    """The test accuracy, which has to be above that of logistic regression."""
    return Score(
        "test accuracy",
        "points",
        is_lower_better=False,
        baseline=f"baseline-{data_set}-logistic-regression",
    )


def _core_claims(data_set: str, *further: Pair) -> Claims:
    score = accuracy_of(data_set)
    equal = Pair(
        "equal cores against different ones",
        "equal-cores",
        "different-cores",
        score,
        is_claimed_better=False,
    )
    return Claims(
        "Do trains with equal cores read digits worse?",
        (equal, *further),
        (score,),
        hypothesis="A train with equal cores reads digits worse than one with different cores "
        "(Alkin 2024).",
    )


TT_MNIST = Experiment(
    name="tt-mnist",
    title="Tensor-train classifiers on MNIST: accuracy in percent",
    entries=(
        ClassifierEntry(
            "different-cores",
            MNIST_PATCHES,
            DIFFERENT,
            "mnist",
            SOURCE_RECIPE,
            published=(96.36, 95.32),
        ),
        ClassifierEntry(
            "equal-cores", MNIST_PATCHES, EQUAL, "mnist", SOURCE_RECIPE, published=(90.78, 90.66)
        ),
        ClassifierEntry(
            "equal-cores-overlapping-cosine",
            OVERLAPPING,
            EQUAL,
            "mnist",
            replace(SOURCE_RECIPE, schedule=Cosine()),
        ),
        *class_baselines("mnist"),
    ),
    quick=tuple(shortened(entry) for entry in _DIGITS),
    protocol=(
        "Patches, an affine map with ReLU and a normalization, then a tensor train; cross-entropy "
        "of its scores; 60,000 images, Adam at 5e-4, batches of 64, 20 epochs, no augmentation. "
        "The accuracy is that after the last epoch, on the 10,000 test images (train accuracy: on "
        "the first 10,000 training images). The third setting is ours: 36 overlapping patches of "
        "8 x 8, and a rate that falls from 5e-4 to 0. The quick version trains on the digits of "
        "scikit-learn."
    ),
    needs="MNIST/raw with its four idx files",
    seconds=1800.0,
    seeds=3,
    figure=LEARNING_CURVES,
    claims=_core_claims(
        "mnist",
        Pair(
            "equal cores with overlapping patches and a falling rate against without",
            "equal-cores-overlapping-cosine",
            "equal-cores",
            accuracy_of("mnist"),
        ),
        Pair(
            "different cores against the published number",
            "different-cores",
            ":published test",
            accuracy_of("mnist"),
        ),
        Pair(
            "equal cores against the published number",
            "equal-cores",
            ":published test",
            accuracy_of("mnist"),
        ),
    ),
)

TT_DIGITS = Experiment(
    name="tt-digits",
    title="Tensor-train classifiers on 8 x 8 digits: accuracy in percent",
    entries=(*_DIGITS, *class_baselines("digits")),
    quick=tuple(shortened(entry) for entry in _DIGITS),
    protocol=(
        "The digits that come with scikit-learn, 1,437 for training and 360 for testing; 16 "
        "patches of 2 x 2, 16 features, bonds of 16; Adam from 2e-3 down to 0 along a cosine, "
        "batches of 64, 60 epochs."
    ),
    seconds=120.0,
    seeds=5,
    figure=LEARNING_CURVES,
    claims=_core_claims("digits"),
)


# `shallow-vs-deep`: three ways to write the same coefficients, at equal numbers of parameters.
#
# A sum of products (CP), a train with different or equal cores, and a tree (hierarchical Tucker)
# with maps of its own at every node or shared by a level. Cohen et al. (2016) and Khrulkov et al.
# (2018) prove that a train or a tree can need exponentially many products; here all three learn.


Form = Callable[..., TensorNetworkClassifier]
SMALL, LARGE, DIGITS = 14_600, 50_000, 6_200  # parameters, at most
MNIST_SAMPLES = 20_000
MNIST_RECIPE = Recipe(epochs=10, batch_size=64, learning_rate=2e-3, schedule=Cosine())
SMALL_DIGITS_PATCHES = partial(PatchFeatures, image=(1, 8, 8), patch=2, num_features=8)


def shallow(size: int) -> Form:
    """A sum of so many products."""
    return partial(ShallowClassifier, channels=size)


def train(size: int) -> Form:
    """A train with different cores and such bonds."""
    return partial(TrainClassifier, bond=size)


def equal_train(size: int) -> Form:
    """A train with equal cores and such bonds."""
    return partial(TrainClassifier, bond=size, has_equal_cores=True)


def tree(size: int) -> Form:
    """A tree of so many channels."""
    return partial(HierarchicalClassifier, channels=size)


def shared_tree(size: int) -> Form:
    """A tree of so many channels whose levels share their maps."""
    return partial(HierarchicalClassifier, channels=size, is_shared=True)


FORMS = (shallow, train, equal_train, tree, shared_tree)
# The largest size of each form within a number of parameters; the tests count them again.
SIZES: dict[int, tuple[int, ...]] = {
    SMALL: (25, 5, 15, 17, 59),
    LARGE: (92, 10, 33, 43, 120),
    DIGITS: (44, 7, 22, 16, 42),
}


def _digits(form: Callable[[int], Form], size: int) -> ClassifierEntry:
    name = f"digits-{form.__name__.replace('_', '-')}"
    return ClassifierEntry(name, SMALL_DIGITS_PATCHES, form(size), "digits", DIGITS_RECIPE)


def _mnist(form: Callable[[int], Form], size: int, budget: int) -> ClassifierEntry:
    name = f"mnist-{round(budget / 1000)}k-{form.__name__.replace('_', '-')}"
    return ClassifierEntry(
        name, MNIST_PATCHES, form(size), "mnist", MNIST_RECIPE, num_samples=MNIST_SAMPLES
    )


_DIGITS_FORMS = tuple(_digits(form, size) for form, size in zip(FORMS, SIZES[DIGITS], strict=True))

_FORM_PAIRS = (
    ("a tree", "tree", "a sum of products", "shallow"),
    ("a train", "train", "a sum of products", "shallow"),
    ("a train with equal cores", "equal-train", "a sum of products", "shallow"),
    ("a tree", "tree", "a train", "train"),
    ("a tree with shared maps", "shared-tree", "a tree", "tree"),
)


def _form_claims() -> Claims:
    groups = (
        ("mnist-15k", "MNIST, 14,600 parameters", "mnist"),
        ("mnist-50k", "MNIST, 50,000 parameters", "mnist"),
        ("digits", "digits, 6,200 parameters", "digits"),
    )
    return Claims(
        "Do forms of larger separation rank learn better at equal parameters?",
        tuple(
            Pair(
                f"{title}: {one} against {other}",
                f"{group}-{first}",
                f"{group}-{second}",
                accuracy_of(data_set),
                is_claimed_better=True if second == "shallow" else None,
            )
            for group, title, data_set in groups
            for one, first, other, second in _FORM_PAIRS
        ),
        hypothesis="With as many parameters, trees and trains, which need exponentially many "
        "products as a sum, learn better than a sum (suggested by Cohen et al. 2016).",
    )


SHALLOW_VS_DEEP = Experiment(
    name="shallow-vs-deep",
    title="Sum of products, train and tree at equal parameters: accuracy in percent",
    entries=(
        *class_baselines("digits"),
        *class_baselines("mnist", MNIST_SAMPLES),
        *_DIGITS_FORMS,
        *(
            _mnist(form, size, budget)
            for budget in (SMALL, LARGE)
            for form, size in zip(FORMS, SIZES[budget], strict=True)
        ),
    ),
    quick=tuple(shortened(entry) for entry in _DIGITS_FORMS),
    protocol=(
        "Five classifiers on the same kind of features (16 patches, an affine map with ReLU, "
        "normalized), each of the largest size within a number of parameters: 6,200 on the digits "
        "of scikit-learn, 14,600 and 50,000 on the first 20,000 images of MNIST. Adam from 2e-3 "
        "down to 0 along a cosine, batches of 64, 60 epochs (digits) or 10 (MNIST), nothing tuned "
        "for one of them. The logarithm of the rank is that of the minimal cut between odd and "
        "even patches. Accuracies are those after the last epoch, on all test images."
    ),
    needs="MNIST/raw with its four idx files",
    seconds=600.0,
    seeds=3,
    figure=DotFigure(
        ("test accuracy",),
        panels=(
            Panel(f"Digits, at most {DIGITS:,} parameters", "digits-(.+)", baselines="digits-(.+)"),
            Panel(f"MNIST, at most {SMALL:,} parameters", "mnist-15k-(.+)", baselines="mnist-(.+)"),
            Panel(f"MNIST, at most {LARGE:,} parameters", "mnist-50k-(.+)", baselines="mnist-(.+)"),
        ),
        labels={
            "shallow": "sum of products",
            "train": "tensor train",
            "equal-train": "tensor train, equal cores",
            "shared-tree": "tree, shared cores",
        },
    ),
    claims=_form_claims(),
)
