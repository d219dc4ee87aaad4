"""One row of `cp-layers-accuracy`: train a subject, score it on what it has and has not seen."""

from dataclasses import dataclass

from rankscope.experiments.cp_subject import CPSubject
from rankscope.experiments.experiment import Entry, Row, Workplace
from rankscope.experiments.subject_training import SubjectTraining
from rankscope.training.recipe import Recipe


@dataclass(frozen=True)
class AccuracyEntry(Entry):
    """Train with the true labels.

    Args:
        subject: the network and its samples.
        recipe: its seed is that of the entry.
        seed: of everything.
    """

    subject: CPSubject
    recipe: Recipe
    seed: int = 0

    @property
    def name(self) -> str:
        """That of the subject."""
        return self.subject.name

    def run(self, place: Workplace) -> Row:
        """Accuracies in percent after the last epoch."""
        data = self.subject.data(place.data)
        trained = SubjectTraining(self.subject, self.recipe, seed=self.seed).run(place, data)
        records = trained.history.records
        train, test = trained.accuracy(trained.train), trained.accuracy(data.test)
        return {
            "data": self.subject.data_set,
            "form": self.subject.form,
            "samples": len(trained.train),
            "parameters": sum(weight.numel() for weight in trained.model.parameters()),
            "train accuracy": train,
            "test accuracy": test,
            "gap": train - test,
            "losses": [record.loss for record in records],
        }
