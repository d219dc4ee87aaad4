"""Train a `CPSubject`, on its own labels or on others, and score it."""

from dataclasses import dataclass, replace

from torch import nn

from rankscope.experiments.classifier_entry import percent_right
from rankscope.experiments.cp_subject import CPSubject
from rankscope.experiments.experiment import Workplace
from rankscope.training.batches import TensorData
from rankscope.training.datasets import DataSet
from rankscope.training.history import History
from rankscope.training.label_noise import with_random_labels
from rankscope.training.loop import cross_entropy, fit
from rankscope.training.preparation import Evaluate
from rankscope.training.recipe import Recipe

WEIGHT_DECAY = 0.1  # decoupled, of regularized subjects


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
        """In percent, in inference mode."""
        return percent_right(self.model.eval(), data)


@dataclass(frozen=True)
class SubjectTraining:
    """How a subject is trained.

    Args:
        subject: the network and its samples.
        recipe: its seed is replaced; regularized subjects get a weight decay.
        noise: share of labels that are replaced by draws from all classes.
        seed: of the weights, the order of the samples, and the noise.
    """

    subject: CPSubject
    recipe: Recipe
    noise: float = 0.0
    seed: int = 0

    def samples(self, data: DataSet) -> TensorData:
        """What is trained on, labels replaced."""
        return with_random_labels(data.train, self.noise, data.num_classes, seed=self.seed)

    def run(
        self,
        place: Workplace,
        data: DataSet,
        *,
        samples: TensorData | None = None,
        evaluate: Evaluate | None = None,
        folder: str = "training",
    ) -> Trained:
        """Train, or go on with what the folder holds.

        Args:
            place: where.
            data: of the subject.
            samples: to train on instead of `self.samples(data)`.
            evaluate: called after every epoch, or less often.
            folder: of this run, below that of the entry.
        """
        train = self.samples(data) if samples is None else samples
        model = self.subject.network(data, self.seed)
        decay = WEIGHT_DECAY if self.subject.is_regularized else self.recipe.weight_decay
        history = fit(
            model,
            cross_entropy,
            train,
            replace(self.recipe, seed=self.seed, weight_decay=decay),
            folder=place.folder / folder,
            evaluate=evaluate,
            progress=place.report,
        )
        return Trained(model, replace(train, augment=None), history)
