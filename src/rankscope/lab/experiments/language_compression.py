"""`minilm-compression` and `pronunciation-compression`: real models of language, made smaller.

Shares are of all parameters, embeddings included, as `rankscope compress --keep` counts them.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss

from rankscope.compression.compressing import compress
from rankscope.compression.plan import Plan, Unit
from rankscope.compression.training.loop import Loss, fit
from rankscope.compression.training.recipe import Adam, Recipe, TimedCosine, working_seconds
from rankscope.compression.usage import measure_latency
from rankscope.lab.data.scoring import (
    pronunciation_score,
    read_pronunciations,
    similarity_correlation,
)
from rankscope.lab.data.text_data import read_scored_pairs
from rankscope.lab.experiments.claims import Claims, Pair, Score
from rankscope.lab.experiments.experiment import Entry, Experiment, Row, RunContext
from rankscope.lab.experiments.figure_lines import LineFigure
from rankscope.lab.experiments.figure_parts import Panel
from rankscope.networks.batches import Batch, TensorData
from rankscope.networks.catalogue import build_trained
from rankscope.networks.encoder import WordPieces
from rankscope.networks.language import spell
from rankscope.networks.published_weights import find_data, find_weights
from rankscope.progress import Progress

# Trained models of language that experiments compress: sentence vectors and pronunciation.


_MAX_TOKENS = 48  # of a sentence that is trained on; the scored ones are cut at 256
_EVERY = 20  # of the dictionary's words, this one is scored and the others are trained on


@dataclass(frozen=True, eq=False)
class LanguageTask:
    """What a compressed model is repaired on, and how it is scored.

    Args:
        training: inputs, and what the loss wants of them.
        loss: of a model on a batch.
        score: of a model, in percent.
    """

    training: TensorData
    loss: Loss
    score: Callable[[nn.Module], float]


class LanguageWorkload(ABC):
    """A published model of language. Subclasses are frozen dataclasses."""

    network: str

    @abstractmethod
    def task(self, model: nn.Module, data: Path | None) -> LanguageTask:
        """The task that a model is repaired on and scored by.

        Raises:
            DataError: if data are needed that are not there; the message says how to get them.
        """

    def build(self, data: Path | None) -> nn.Module:
        """The trained model, in inference mode.

        Raises:
            DataError: if its weights are not there; the message says how to get them.
        """
        return build_trained(self.network, data=data)


@dataclass(frozen=True)
class SentenceVectors(LanguageWorkload):
    """MiniLM, scored by Spearman's correlation on the test pairs of STS-B, in percent.

    It is repaired to give the states of the uncompressed model on the sentences of the training
    pairs, without their scores.
    """

    network: str = "minilm"

    def task(self, model: nn.Module, data: Path | None) -> LanguageTask:
        """Training and test pairs, tokens by the model's own tokenizer."""
        tokenizer = find_weights(self.network, data).parent / "tokenizer.json"
        tokenize = WordPieces(tokenizer)
        pairs = {part: _sentence_pairs(part, data) for part in ("train", "test")}
        sentences = [sentence for *both, _ in pairs["train"] for sentence in both]
        tokens = WordPieces(tokenizer, max_tokens=_MAX_TOKENS)(sentences)
        return LanguageTask(
            TensorData(tokens),
            _same_states(model),
            lambda other: 100 * similarity_correlation(other, tokenize, pairs["test"]),
        )


@dataclass(frozen=True)
class Pronunciation(LanguageWorkload):
    """The GRU of g2p_en, scored by the words of CMUdict that it speaks rightly, in percent.

    Every twentieth word is scored; on the others it is repaired to speak as the uncompressed
    model does, right or wrong.
    """

    network: str = "letter-to-phoneme"

    def task(self, model: nn.Module, data: Path | None) -> LanguageTask:
        """Words of CMUdict."""
        source = "take cmudict.dict of github.com/cmusphinx/cmudict (BSD-like)"
        words = read_pronunciations(find_data("g2p_en/cmudict.dict", data, source=source))
        names = sorted(words)
        scored = {name: words[name] for name in names[::_EVERY]}
        letters = spell([name for name in names if name not in scored])
        return LanguageTask(
            TensorData(letters),
            _same_words(model),
            lambda other: 100 * pronunciation_score(other, scored).word_accuracy,
        )


def _sentence_pairs(part: str, data: Path | None) -> list[tuple[str, str, float]]:
    source = "take the STS benchmark (CC BY-SA 4.0) as comma-separated sentences and scores"
    return read_scored_pairs(find_data(f"stsb_en/stsb-en-{part}.csv", data, source=source))


def _same_states(reference: nn.Module) -> Loss:
    def loss(model: nn.Module, batch: Batch) -> Tensor:
        is_token = batch.inputs != 0
        with torch.no_grad():
            wanted = reference(batch.inputs)[is_token]
        return mse_loss(model(batch.inputs)[is_token], wanted)

    return loss


def _same_words(reference: nn.Module) -> Loss:
    def loss(model: nn.Module, batch: Batch) -> Tensor:
        with torch.no_grad():
            predicted = reference(batch.inputs).argmax(dim=2)
        logits = model(batch.inputs, predicted)
        return cross_entropy(logits.flatten(0, 1), predicted.flatten())

    return loss


CALIBRATION_SAMPLES, CALIBRATION_BATCH = 512, 64
_TIMED_BATCH = 32
RECIPE = Recipe(
    epochs=1000, batch_size=64, learning_rate=5e-4, optimizer=Adam(), schedule=TimedCosine()
)


@dataclass(frozen=True)
class LanguageEntry(Entry):
    """One model at one share.

    Args:
        workload: what is compressed.
        keep: share of all its parameters; 1 for the model itself.
        on_outputs: whether errors are those of outputs on training inputs, or of weights.
        is_repaired: whether the rest of the time goes into imitating the uncompressed model.
    """

    has_checkpoints: ClassVar[bool] = True

    workload: LanguageWorkload
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

    def run(self, context: RunContext) -> Row:
        """Parameters, score and latency, beside the uncompressed model's."""
        began = working_seconds()
        model = self.workload.build(context.data)
        task = self.workload.task(model, context.data)
        row: Row = {"kept": _count(model), "share": 1.0, "formats": "dense"}
        smaller = model
        if self.keep < 1:
            context.report(Progress("planning", 0, 1))
            inputs = task.training.head(CALIBRATION_SAMPLES).batches(CALIBRATION_BATCH)
            batches = [batch.inputs for batch in inputs] if self.on_outputs else None
            compressed = compress(model, self.keep, batches)
            smaller = compressed.model
            row |= {"kept": _count(smaller), "formats": _formats(compressed.plan)}
            row["share"] = _count(smaller) / _count(model)
        if self.is_repaired:
            row["score before"] = round(task.score(smaller), 2)
            self._repair(smaller, task, context, context.seconds - (working_seconds() - began))
        row["score"] = round(task.score(smaller), 2)
        row["latency over dense"] = _latency(model, smaller, task)
        return {**row, "seconds": working_seconds() - began}

    def _repair(
        self, model: nn.Module, task: LanguageTask, context: RunContext, seconds: float
    ) -> None:
        recipe = replace(RECIPE, max_seconds=max(seconds, 1.0))
        fit(model, task.loss, task.training, recipe, folder=context.folder, progress=context.report)


@dataclass(frozen=True)
class FasterEntry(Entry):
    """One model within a share of its measured time, repaired; begins afresh, as times differ.

    The minutes of a row are those of the repair: measuring times takes three more.

    Args:
        workload: what is compressed.
        keep: share of the time of a batch of 32 samples.
    """

    workload: LanguageWorkload
    keep: float

    @property
    def name(self) -> str:
        """Share of the time."""
        return f"{100 * self.keep:g}-of-the-time-repaired"

    def run(self, context: RunContext) -> Row:
        """The same columns as those of a `LanguageEntry`."""
        began = working_seconds()
        model = self.workload.build(context.data)
        task = self.workload.task(model, context.data)
        example = task.training.head(_TIMED_BATCH).batches(_TIMED_BATCH)[0].inputs
        inputs = task.training.head(CALIBRATION_SAMPLES).batches(CALIBRATION_BATCH)
        batches = [batch.inputs for batch in inputs]
        context.report(Progress("planning", 0, 1))
        compressed = compress(model, self.keep, batches, by=Unit.LATENCY, example=example)
        smaller = compressed.model
        before = task.score(smaller)
        recipe = replace(RECIPE, max_seconds=context.seconds)
        fit(smaller, task.loss, task.training, recipe, progress=context.report)
        return {
            "kept": _count(smaller),
            "share": _count(smaller) / _count(model),
            "formats": _formats(compressed.plan),
            "score before": round(before, 2),
            "score": round(task.score(smaller), 2),
            "latency over dense": _latency(model, smaller, task),
            "seconds": working_seconds() - began,
        }


def _count(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def _formats(plan: Plan) -> str:
    counts = Counter(row.format or "dense" for row in plan.rows if len(row.shape) > 1)
    return ", ".join(f"{count} {name}" for name, count in counts.most_common())


def _latency(dense: nn.Module, smaller: nn.Module, task: LanguageTask) -> float | None:
    if smaller is dense:
        return None
    example = task.training.head(_TIMED_BATCH).batches(_TIMED_BATCH)[0].inputs
    (result,) = measure_latency(dense, smaller, example, batch_sizes=(_TIMED_BATCH,))
    return result.ratio


def _entries(workload: LanguageWorkload, shares: tuple[float, ...]) -> tuple[LanguageEntry, ...]:
    return (
        LanguageEntry(workload, 1.0),
        *(LanguageEntry(workload, share, on_outputs=False) for share in shares),
        *(LanguageEntry(workload, share) for share in shares),
        *(LanguageEntry(workload, share, is_repaired=True) for share in shares),
    )


def _claims(what: str, unit: str, shares: tuple[float, ...]) -> Claims:
    """Against the model itself, and each step against the one without it; single runs."""
    score = Score("score", unit, is_lower_better=False)
    pairs = []
    for share in shares:
        percent = f"{100 * share:g}"
        first, middle, last = (
            f"{percent}-{name}" for name in ("outputs-repaired", "outputs", "weights")
        )
        pairs += [
            Pair(f"{percent} % repaired against dense", first, "dense", score),
            Pair(f"{percent} % repaired against not", first, middle, score),
            Pair(f"{percent} % planned on outputs against on weights", middle, last, score),
        ]
    return Claims(f"How much of {what} is left at a share of the parameters?", tuple(pairs))


_FIGURE = LineFigure(
    "share",
    "score",
    is_logarithmic=False,
    panels=(Panel("", r"\d+-(.+)", levels="(dense)"),),
    labels={
        "share": "share of the parameters kept",
        "outputs-repaired": "planned on outputs, repaired",
        "outputs": "planned on outputs",
        "weights": "planned on weights",
        "of-the-time-repaired": "planned for 70 % of the time, repaired",
    },
)

MINILM_COMPRESSION = Experiment(
    name="minilm-compression",
    title="MiniLM: Spearman correlation x 100 on STS-B at shares of 22,713,216 parameters",
    entries=(*_entries(SentenceVectors(), (0.9, 0.75, 0.5)), FasterEntry(SentenceVectors(), 0.7)),
    needs="all-MiniLM-L6-v2, STS-B, and the extra [text]",
    claims=_claims("MiniLM's correlation", "points", (0.9, 0.75, 0.5)),
    figure=replace(
        _FIGURE, labels={**_FIGURE.labels, "score": "Spearman correlation on STS-B (percent)"}
    ),
)

PRONUNCIATION_COMPRESSION = Experiment(
    name="pronunciation-compression",
    title="g2p_en: words of CMUdict spoken rightly, in percent, at shares of 834,890 parameters",
    entries=_entries(Pronunciation(), (0.75, 0.5, 0.25)),
    needs="g2p_en and CMUdict",
    claims=_claims("a recurrent network's words", "points", (0.75, 0.5, 0.25)),
    figure=replace(_FIGURE, labels={**_FIGURE.labels, "score": "words spoken rightly (percent)"}),
)
