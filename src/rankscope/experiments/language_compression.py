"""`minilm-compression` and `pronunciation-compression`: real models of language, made smaller.

Shares are of all parameters, embeddings included, as `rankscope compress --keep` counts them.
"""

from collections import Counter
from dataclasses import dataclass, replace

from torch import nn

from rankscope.compression.compressing import compress
from rankscope.compression.latency_table import measure_latency
from rankscope.compression.plan import Plan
from rankscope.experiments.dot_figure import DotFigure
from rankscope.experiments.experiment import Entry, Experiment, Row, Workplace
from rankscope.experiments.language_subject import (
    LanguageSubject,
    LanguageTask,
    Pronunciation,
    SentenceVectors,
)
from rankscope.progress import Progress
from rankscope.training.clock import working_seconds
from rankscope.training.loop import fit
from rankscope.training.recipe import Adam, Recipe, TimedCosine

CALIBRATION_SAMPLES, CALIBRATION_BATCH = 512, 64
_TIMED_BATCH = 32
RECIPE = Recipe(
    epochs=1000, batch_size=64, learning_rate=5e-4, optimizer=Adam(), schedule=TimedCosine()
)


@dataclass(frozen=True)
class LanguageEntry(Entry):
    """One model at one share.

    Args:
        subject: what is compressed.
        keep: share of all its parameters; 1 for the model itself.
        on_outputs: whether errors are those of outputs on training inputs, or of weights.
        is_repaired: whether the rest of the time goes into imitating the uncompressed model.
    """

    subject: LanguageSubject
    keep: float
    on_outputs: bool = True
    is_repaired: bool = False

    @property
    def name(self) -> str:
        """Share, and what was done."""
        if self.keep == 1:
            return "dense"
        scored = "outputs" if self.on_outputs else "weights"
        return f"{100 * self.keep:g}-{scored}{'-repaired' if self.is_repaired else ''}"

    def run(self, place: Workplace) -> Row:
        """Parameters, score and latency, beside the uncompressed model's."""
        began = working_seconds()
        model = self.subject.build(place.data)
        task = self.subject.task(model, place.data)
        row: Row = {"kept": _count(model), "share": 1.0, "formats": "dense"}
        smaller = model
        if self.keep < 1:
            place.report(Progress("planning", 0, 1))
            inputs = task.training.head(CALIBRATION_SAMPLES).batches(CALIBRATION_BATCH)
            batches = [batch.inputs for batch in inputs] if self.on_outputs else None
            compressed = compress(model, self.keep, batches)
            smaller = compressed.model
            row |= {"kept": _count(smaller), "formats": _formats(compressed.plan)}
            row["share"] = _count(smaller) / _count(model)
        if self.is_repaired:
            row["score before"] = round(task.score(smaller), 2)
            self._repair(smaller, task, place, place.seconds - (working_seconds() - began))
        row["score"] = round(task.score(smaller), 2)
        row["latency over dense"] = _latency(model, smaller, task)
        return {**row, "seconds": working_seconds() - began}

    def _repair(
        self, model: nn.Module, task: LanguageTask, place: Workplace, seconds: float
    ) -> None:
        recipe = replace(RECIPE, max_seconds=max(seconds, 1.0))
        fit(model, task.loss, task.training, recipe, folder=place.folder, progress=place.report)


def _count(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def _formats(plan: Plan) -> str:
    counts = Counter(row.format or "dense" for row in plan.rows if len(row.shape) > 1)
    return ", ".join(f"{count} {name}" for name, count in counts.most_common())


def _latency(dense: nn.Module, smaller: nn.Module, task: LanguageTask) -> float | None:
    if smaller is dense:
        return None
    example = task.training.head(_TIMED_BATCH).batches(_TIMED_BATCH)[0].inputs
    (found,) = measure_latency(dense, smaller, example, batch_sizes=(_TIMED_BATCH,))
    return found.ratio


def _entries(subject: LanguageSubject, shares: tuple[float, ...]) -> tuple[LanguageEntry, ...]:
    return (
        LanguageEntry(subject, 1.0),
        *(LanguageEntry(subject, share, on_outputs=False) for share in shares),
        *(LanguageEntry(subject, share) for share in shares),
        *(LanguageEntry(subject, share, is_repaired=True) for share in shares),
    )


MINILM_COMPRESSION = Experiment(
    name="minilm-compression",
    title="MiniLM: Spearman correlation x 100 on STS-B at shares of 22,713,216 parameters",
    entries=_entries(SentenceVectors(), (0.9, 0.75, 0.5)),
    needs="all-MiniLM-L6-v2, STS-B, and the extra [text]",
    figure=DotFigure(("score",)),
)

PRONUNCIATION_COMPRESSION = Experiment(
    name="pronunciation-compression",
    title="g2p_en: words of CMUdict spoken rightly, in percent, at shares of 834,890 parameters",
    entries=_entries(Pronunciation(), (0.75, 0.5, 0.25)),
    needs="g2p_en and CMUdict",
    figure=DotFigure(("score",)),
)
