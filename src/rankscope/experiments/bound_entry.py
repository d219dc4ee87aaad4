"""One row of `bound-vs-test-error`: bounds and the test error of a network while it is trained."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rankscope.experiments.cp_subject import CPSubject, inputs_and_labels
from rankscope.experiments.experiment import Entry, Row, Workplace
from rankscope.experiments.partial_correlation import partial_correlation
from rankscope.experiments.subject_training import SubjectTraining
from rankscope.generalization.analysis import Options, TrackBounds, usual_searches
from rankscope.generalization.sample import Sample
from rankscope.training.history import Record
from rankscope.training.preparation import EveryFewEpochs
from rankscope.training.recipe import Recipe

BOUNDS = ("triangle", "exact", "measured", "arora-order")
TEST_ERROR, MARGIN_LOSS = "test error", "margin loss"


@dataclass(frozen=True)
class BoundEntry(Entry):
    """Train a subject, and measure its bounds every few epochs.

    Args:
        setting: name of the row.
        subject: the network and its samples.
        recipe: its seed is that of the entry.
        margin: γ of all bounds.
        every: epochs from one measurement to the next.
        noise: share of the training labels replaced by uniform draws.
        searches: of ranks, whose bounds are compared.
        seed: of everything.
    """

    setting: str
    subject: CPSubject
    recipe: Recipe
    margin: float = 1.0
    every: int = 4
    noise: float = 0.0
    searches: Mapping[str, Options] = field(default_factory=usual_searches)
    seed: int = 0

    @property
    def name(self) -> str:
        """That of the setting."""
        return self.setting

    def run(self, place: Workplace) -> Row:
        """The last measurement, correlations over all of them, and their curves."""
        data = self.subject.data(place.data)
        training = SubjectTraining(self.subject, self.recipe, self.noise, self.seed)
        samples = training.samples(data)
        sample, test = (Sample(*inputs_and_labels(part)) for part in (samples, data.test))
        track = TrackBounds(sample, test, self.margin, self.searches)
        trained = training.run(
            place, data, samples=samples, evaluate=EveryFewEpochs(track, self.every)
        )
        measured = [record for record in trained.history.records if record.metrics]
        last = measured[-1].metrics
        row: Row = {
            "samples": len(sample),
            "parameters": sum(weight.numel() for weight in trained.model.parameters()),
            "margin": self.margin,
            "train error": last["train error"],
            MARGIN_LOSS: last[MARGIN_LOSS],
            TEST_ERROR: last[TEST_ERROR],
            "spectral-order": _finite(last.get("spectral-order")),
        }
        for name in (name for name in BOUNDS if name in last):
            row[name] = _finite(last[name])
            row[f"{name} kept"] = last.get(f"{name} parameters")
        row["arora over triangle"] = _finite(last["arora-order"] / last["triangle"])
        return {**row, **_correlations(measured), **_curves(measured)}


def _curves(records: Sequence[Record]) -> Row:
    """Every quantity over the measurements; None where one of them was infinite."""
    found: Row = {"epochs": [float(record.epoch) for record in records]}
    for name in records[0].metrics:
        values = [record.metrics[name] for record in records]
        is_finite = all(math.isfinite(value) for value in values)
        found[f"{name} curve"] = values if is_finite else None
    return found


def _correlations(records: Sequence[Record]) -> Row:
    """Rank correlation of each bound with the test error over the measurements of this run."""
    errors = [record.metrics[TEST_ERROR] for record in records]
    found: Row = {}
    for name in (name for name in BOUNDS if name in records[0].metrics):
        values = [record.metrics[name] for record in records]
        if all(math.isfinite(value) for value in values):
            found[f"{name} correlation"] = partial_correlation(values, errors, []).value
    return found


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
