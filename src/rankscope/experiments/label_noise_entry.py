"""Rows of `label-noise`: networks that learn wrong labels by heart."""

from dataclasses import dataclass, replace

from torch import Tensor, nn

from rankscope.experiments.classifier_entry import percent_right
from rankscope.experiments.cp_subject import CPSubject
from rankscope.experiments.experiment import Entry, Row, Workplace
from rankscope.experiments.subject_training import SubjectTraining, Trained
from rankscope.generalization.bounds import measure_rademacher, rademacher_bound
from rankscope.generalization.compressed_network import outputs_of
from rankscope.training.batches import TensorData
from rankscope.training.datasets import DataSet
from rankscope.training.early_stop import StopAt
from rankscope.training.preparation import EveryFewEpochs
from rankscope.training.recipe import Recipe

MEMORIZED = 99.9  # percent of the training labels, right and wrong
_SCORE = "train accuracy"


@dataclass(frozen=True)
class LabelNoiseEntry(Entry):
    """Train on partly random labels until they are known by heart, then score on true ones.

    Args:
        subject: the network and its samples.
        noise: share of labels replaced by uniform draws from all classes.
        recipe: its epochs are the most that are run.
        seed: of everything, the noise included.
    """

    subject: CPSubject
    noise: float
    recipe: Recipe
    seed: int = 0

    @property
    def name(self) -> str:
        """Subject, regularizers and noise."""
        return f"{self.subject.name}{_suffix(self.subject)}-noise-{self.noise:g}"

    def run(self, place: Workplace) -> Row:
        """Accuracies in percent of the last epoch: there is no choice of a better one."""
        data = self.subject.data(place.data)
        training = SubjectTraining(self.subject, _until(self.recipe), self.noise, self.seed)
        trained = _memorized(training, place, data, training.samples(data))
        train = trained.accuracy(trained.train)
        return {
            "network": f"{self.subject.name}{_suffix(self.subject)}",
            "samples": len(trained.train),
            "parameters": sum(weight.numel() for weight in trained.model.parameters()),
            "noise": self.noise,
            "epochs": len(trained.history.records),
            "ended by": "memorization" if train >= MEMORIZED else "epoch limit",
            "train accuracy": train,
            "test accuracy": trained.accuracy(data.test),
        }


@dataclass(frozen=True)
class RademacherEntry(Entry):
    """Measure the empirical Rademacher complexity: how well random signs are fitted.

    Args:
        subject: the network and its samples.
        recipe: its epochs are the most that are run.
        seed: of the signs and of everything else.
    """

    subject: CPSubject
    recipe: Recipe
    seed: int = 0

    @property
    def name(self) -> str:
        """Subject, regularizers, and what is measured."""
        return f"{self.subject.name}{_suffix(self.subject)}-rademacher"

    def run(self, place: Workplace) -> Row:
        """The complexity found, its maximum, and the bound for a network that fits its sample."""
        data = self.subject.data(place.data)
        training = SubjectTraining(self.subject, _until(self.recipe), seed=self.seed)
        labels = data.train.targets
        assert labels is not None, "every data set of an experiment has labels"

        def predictions(targets: Tensor) -> Tensor:
            trained = _memorized(training, place, data, replace(data.train, targets=targets))
            (batch,) = trained.train.batches(len(trained.train))
            return outputs_of(trained.model, batch.inputs).argmax(dim=1)

        found = measure_rademacher(predictions, labels, data.num_classes, seed=self.seed)
        return {
            "network": f"{self.subject.name}{_suffix(self.subject)}",
            "samples": len(labels),
            "Rademacher complexity": found.value,
            "its maximum": found.maximum,
            "Rademacher bound": rademacher_bound(found, 0.0, len(labels)).value,
        }


def _memorized(
    training: SubjectTraining, place: Workplace, data: DataSet, samples: TensorData
) -> Trained:
    plain = replace(samples, augment=None)

    def score(model: nn.Module) -> dict[str, float]:
        return {_SCORE: percent_right(model, plain)}

    return training.run(place, data, samples=samples, evaluate=EveryFewEpochs(score, 2))


def _until(recipe: Recipe) -> Recipe:
    return replace(recipe, early_stop=StopAt(_SCORE, MEMORIZED))


def _suffix(subject: CPSubject) -> str:
    return "-regularized" if subject.is_regularized else ""
