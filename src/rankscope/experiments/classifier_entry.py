"""One row of a table of tensor-network classifiers: build one, train it, score it."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import nn

from rankscope.architectures.classifiers.classifier import TensorNetworkClassifier
from rankscope.architectures.classifiers.features import PatchFeatures
from rankscope.errors import ExperimentError
from rankscope.experiments.experiment import Entry, Row, Workplace
from rankscope.seeds import seed_of
from rankscope.separation.partition import Partition
from rankscope.training.batches import TensorData
from rankscope.training.datasets import load_data_set
from rankscope.training.loop import cross_entropy, fit
from rankscope.training.recipe import Recipe

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
        """That of the setting."""
        return self.setting

    def build(self, num_classes: int) -> TensorNetworkClassifier:
        """The classifier before it is trained."""
        generator = torch.Generator().manual_seed(seed_of("weights", self.seed))
        features = self.features(generator=generator)
        return self.form(features, num_classes=num_classes, generator=generator)

    def run(self, place: Workplace) -> Row:
        """Accuracies in percent, and the rank that the form allows.

        Raises:
            ExperimentError: if the data set has fewer samples.
        """
        data = load_data_set(self.data_set, place.data)
        train = self._samples(data.train)
        model = self.build(data.num_classes)
        history = fit(
            model,
            cross_entropy,
            train,
            replace(self.recipe, seed=self.seed),
            folder=place.folder / "training",
            evaluate=lambda trained: {"accuracy": percent_right(trained, data.test)},
            progress=place.report,
        )
        accuracies = [record.metrics["accuracy"] for record in history.records]
        published = self.published or (None, None)
        return {
            "parameters": sum(parameter.numel() for parameter in model.parameters()),
            "train accuracy": percent_right(model, train.head(_SCORED_TRAINING)),
            "test accuracy": accuracies[-1],
            "published train": published[0],
            "published test": published[1],
            "log10 of rank": odd_even_rank(model),
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


def odd_even_rank(model: TensorNetworkClassifier) -> float:
    """Decimal logarithm of the minimal cut between odd and even patches: no score's rank is larger.

    Almost all weights attain it in all cases measured, except where nodes of a tree share theirs.
    """
    bound = model.score_network(0).upper_bound(Partition.interleaved(model.features.num_patches))
    assert bound is not None, "all forms have one"
    return bound.log3 * math.log10(3)
