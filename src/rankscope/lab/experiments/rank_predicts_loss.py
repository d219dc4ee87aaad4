"""`rank-predicts-loss`: does a higher separation rank predict a lower loss of trained models?

The models are those of all experiments with characters, split at the halves of their context and,
where theory has the largest ranks, at even and odd characters. Beside them are pretrained models,
whose losses are on other texts and enter no correlation.
"""

import json
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch
from safetensors import safe_open
from torch import Tensor, nn

from rankscope.auditing.embedded import embedded_model
from rankscope.errors import ExperimentError
from rankscope.lab.data.text_data import mean_loss, read_scored_pairs, windows
from rankscope.lab.experiments.attention_forms import ATTENTION_FORMS
from rankscope.lab.experiments.baselines import language_baselines
from rankscope.lab.experiments.bottlenecks import EMBEDDING_BOTTLENECK, HEAD_BOTTLENECK
from rankscope.lab.experiments.claims import Claims, Statement, Verdict
from rankscope.lab.experiments.depth_width import DEPTH_WIDTH
from rankscope.lab.experiments.experiment import KEPT, Entry, Experiment, Row, Run, RunContext
from rankscope.lab.experiments.figure_lines import LineFigure
from rankscope.lab.experiments.figure_parts import Panel
from rankscope.lab.experiments.sequence_models import (
    DEFAULT_SPECTRUM,
    IDENTITY,
    WEIGHTS,
    CharacterTask,
    Outputs,
    SequenceEntry,
    SpectrumSettings,
    evenly,
    last_logits,
    spectrum_row,
)
from rankscope.lab.experiments.table import partial_correlation
from rankscope.networks.catalogue import build_trained
from rankscope.networks.encoder import WordPieces, mean_of_tokens
from rankscope.networks.llama import read_llama2c
from rankscope.networks.published_weights import find_data, find_weights
from rankscope.networks.weight_files import load_weights, read_weights
from rankscope.rank.partition import Partition

# Spectra of pretrained models on texts of their own.


_LENGTH = 32  # of contexts
_PIECES = 16  # of MiniLM's
_BEGIN = 1  # what every story of stories260k begins with


@dataclass(frozen=True, eq=False)
class Pretrained:
    """A model with contexts.

    Args:
        model: in inference mode.
        outputs: of contexts.
        contexts: (count, tokens).
        loss: in nats for each token, on a text of its own; None if it is no language model.
    """

    model: nn.Module
    outputs: Outputs
    contexts: Tensor
    loss: float | None


@dataclass(frozen=True)
class PretrainedEntry(Entry):
    """Measure a pretrained model.

    Args:
        model: "transformer" (which comes with the package), "stories260k" or "minilm".
        settings: of the measurement.

    Raises:
        ExperimentError: if there is no such model.
    """

    model: str
    settings: SpectrumSettings = DEFAULT_SPECTRUM

    def __post_init__(self) -> None:
        if self.model not in _LOADERS:
            raise ExperimentError(
                f"PretrainedEntry: there is no model {self.model!r}; choose one of "
                f"{', '.join(_LOADERS)}."
            )

    @property
    def name(self) -> str:
        """The name of the model."""
        return f"pretrained-{self.model}"

    def run(self, context: RunContext) -> Row:
        """Loss, and entropy, epsilon rank and spectrum at both splits."""
        result = _LOADERS[self.model](context.data, self.settings.num_inputs)
        return {
            "parameters": sum(parameter.numel() for parameter in result.model.parameters()),
            "loss on its own text": result.loss,
            **both_splits(result.outputs, result.contexts, self.settings),
        }


def both_splits(outputs: Outputs, contexts: Tensor, settings: SpectrumSettings) -> Row:
    """Between the halves of a context, and between its even and odd tokens (columns named so).

    Between the halves little has to be joined: the next character depends on the last few.
    """
    interleaved = Partition.interleaved(contexts.shape[1])
    other = spectrum_row(outputs, contexts, settings, interleaved)
    return {
        **spectrum_row(outputs, contexts, settings),
        **{f"{name}, interleaved": value for name, value in other.items()},
    }


def _transformer(data: Path | None, count: int) -> Pretrained:
    del data  # it comes with the package
    model = build_trained("transformer")
    folder = embedded_model("transformer")
    numbers = json.loads((folder / "vocab.json").read_text(encoding="utf-8"))
    text = (folder / "held_out.txt").read_text(encoding="utf-8")
    tokens = torch.tensor([numbers[character] for character in text])
    contexts = evenly(tokens, count, _LENGTH)
    return Pretrained(model, last_logits(model), contexts, mean_loss(model, windows(tokens, 64)))


def _stories(data: Path | None, count: int) -> Pretrained:
    source = "take stories260K.bin of huggingface.co/karpathy/tinyllamas, folder stories260K (MIT)"
    model = read_llama2c(find_data("stories260k/stories260K.bin", data, source=source))
    written = model.write(count, _LENGTH + 1, begin=_BEGIN, seed=0)
    with torch.no_grad():
        logits = model(written[:, :-1])
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), written[:, 1:].flatten())
    return Pretrained(model, last_logits(model), written[:, :-1], float(loss))


def _minilm(data: Path | None, count: int) -> Pretrained:
    model = build_trained("minilm", data=data)
    tokenize = WordPieces(find_weights("minilm", data).parent / "tokenizer.json")
    source = "take the STS benchmark (CC BY-SA 4.0) as comma-separated sentences and scores"
    pairs = read_scored_pairs(find_data("stsb_en/stsb-en-test.csv", data, source=source))
    tokens = tokenize([sentence for sentence, _, _ in pairs])
    long_enough = tokens[(tokens != 0).sum(1) >= _PIECES][:, :_PIECES]

    def outputs(numbers: Tensor) -> Tensor:
        return mean_of_tokens(model(numbers), numbers)

    return Pretrained(model, outputs, long_enough[:count], None)


_LOADERS: dict[str, Callable[[Path | None, int], Pretrained]] = {
    "transformer": _transformer,
    "stories260k": _stories,
    "minilm": _minilm,
}


MAX_TOKENS = 32  # of the contexts that are split
_MEASURES = (
    "entanglement entropy",
    "epsilon rank",
    "epsilon rank, interleaved",
    "entanglement entropy, interleaved",
)
_LOSS = "test loss"


@dataclass(frozen=True)
class RankEntry(Entry):
    """Measure a model of another experiment.

    Its weights are read from that run's folder if it lies beside this one and they are those of the
    same entry; otherwise it is trained here, by the same steps to the same weights.

    Args:
        source: name of the experiment.
        entry: its entry; the task is `CharacterTask`.
        settings: of the measurement.
        seed: of the model.
    """

    source: str
    entry: SequenceEntry
    settings: SpectrumSettings = DEFAULT_SPECTRUM
    seed: int = 0

    @property
    def name(self) -> str:
        """The names of the experiment and the entry."""
        return f"{self.source}-{self.entry.name}"

    def run(self, context: RunContext) -> Row:
        """Sizes, loss, and entropy, epsilon rank and spectrum at both splits."""
        entry = replace(self.entry, seed=self.seed)
        assert isinstance(entry.task, CharacterTask), "the experiments named above have no other"
        task = entry.task.load(context.data)
        model = entry.fresh(task)
        weights = self._kept(entry, context)
        if weights is None:
            entry.train(model, task, context)
        else:
            load_weights(model, read_weights(weights), who=str(weights))
        model.eval()
        contexts = entry.task.contexts(
            context.data, count=self.settings.num_inputs, length=min(MAX_TOKENS, entry.task.length)
        )
        return {
            **entry.sizes(model),
            **task.score(model),
            **both_splits(last_logits(model), contexts, self.settings),
        }

    def _kept(self, entry: SequenceEntry, context: RunContext) -> Path | None:
        """The weights that the other experiment kept, if they are of this entry."""
        run = Run(entry, entry.seed).name
        path = context.folder.parents[2] / self.source / KEPT / run / WEIGHTS
        if not path.is_file():
            return None
        with safe_open(path, framework="pt") as file:
            is_same = (file.metadata() or {}).get(IDENTITY) == repr(entry)
        return path if is_same else None


_SIZE_AND_DEPTH = "parameters in blocks, depth"
_TRIGRAM = "baseline-3-gram"  # what knows the last two characters only


def correlation_rows(rows: Sequence[Row]) -> list[Row]:
    """Correlations of the loss with each measure over settings, alone and beside sizes.

    Seeds of a setting are averaged first: they are no independent points. Nor are two settings that
    are one network under two names, whose numbers all agree: it counts once.
    """
    all_settings = [row for row in _means(rows) if _LOSS in row and "depth" in row]
    settings = [*{_numbers(row): row for row in all_settings}.values()]
    if len(settings) < 6:
        return []
    column = {name: [row[name] for row in settings] for name in settings[0]}
    sizes = [[math.log(value) for value in column[name]] for name in ("in blocks", "depth")]
    results: list[Row] = []
    for measure in (name for name in _MEASURES if name in column):
        for name, controls in (
            ("nothing", []),
            ("parameters in blocks", sizes[:1]),
            (_SIZE_AND_DEPTH, sizes),
        ):
            answer = partial_correlation(column[measure], column[_LOSS], controls)
            results.append(
                {
                    "measure": measure,
                    "controlled for": name,
                    "correlation with loss": answer.value,
                    "low": answer.low,
                    "high": answer.high,
                    "settings": answer.count,
                }
            )
    return results


def _numbers(row: Mapping[str, float]) -> tuple[float | None, ...]:
    """What there is of a network, its time aside."""
    return tuple(row.get(name) for name in (_LOSS, "in blocks", "depth", *_MEASURES))


def predicted(rows: Sequence[Row], *, planned: int) -> list[Statement]:
    """The correlations with parameters and depth taken out, first; models have to know enough.

    Nothing is decided before as many settings are there as were planned, nor without the baseline.
    """
    results = []
    losses = [row[_LOSS] for row in _means(rows) if _LOSS in row and "depth" in row]
    trigram = next((float(str(row[_LOSS])) for row in rows if row["setting"] == _TRIGRAM), None)
    for row in reversed(correlation_rows(rows)):
        low, high = float(str(row["low"])), float(str(row["high"]))
        detail = f"{float(str(row['correlation with loss'])):+.2f} ({low:+.2f} to {high:+.2f})"
        verdict = Verdict.UNDECIDED if low <= 0 <= high else Verdict.DECIDED
        if trigram is None or len(losses) < planned:
            verdict = Verdict.UNFINISHED
            detail += f"; {len(losses)} of {planned} models"
        elif (below := sum(loss >= trigram for loss in losses)) > len(losses) / 2:
            verdict = Verdict.BELOW
            detail += f"; {below} of {len(losses)} models are above {_TRIGRAM} ({trigram:.4g})"
        subject = f"{row['measure']} and loss, {row['controlled for']} taken out"
        # The hypothesis is about models of equal size and depth.
        is_spoken_of = verdict is Verdict.DECIDED and row["controlled for"] == _SIZE_AND_DEPTH
        claimed = high < 0 if is_spoken_of else None
        results.append(Statement(subject, verdict, detail, is_as_claimed=claimed))
    return results


def _means(rows: Sequence[Row]) -> Sequence[Mapping[str, float]]:
    results = []
    for setting in dict.fromkeys(str(row["setting"]) for row in rows):
        own = [row for row in rows if row["setting"] == setting]
        names = [name for name, value in own[0].items() if isinstance(value, int | float)]
        results.append(
            {name: statistics.fmean(float(str(row[name])) for row in own) for name in names}
        )
    return results


def _entries(experiment: Experiment, *, quick: bool = False) -> tuple[RankEntry, ...]:
    chosen = experiment.quick if quick else experiment.entries
    settings = _QUICK_SPECTRUM if quick else DEFAULT_SPECTRUM
    return tuple(
        RankEntry(experiment.name, entry, settings)
        for entry in chosen
        if isinstance(entry, SequenceEntry) and isinstance(entry.task, CharacterTask)
    )


_QUICK_SPECTRUM = SpectrumSettings(num_inputs=12, num_outputs=1)
_SOURCES = (EMBEDDING_BOTTLENECK, ATTENTION_FORMS, HEAD_BOTTLENECK, DEPTH_WIDTH)
_TRAINED = tuple(entry for experiment in _SOURCES for entry in _entries(experiment))

RANK_PREDICTS_LOSS = Experiment(
    name="rank-predicts-loss",
    title="Trained language models: entanglement, epsilon rank and test loss",
    entries=(
        *language_baselines(CharacterTask()),
        *_TRAINED,
        *(PretrainedEntry(name) for name in _LOADERS),
    ),
    needs="tinyshakespeare, stories260k, minilm, stsb_en",
    quick=(
        *_entries(DEPTH_WIDTH, quick=True),
        *_entries(HEAD_BOTTLENECK, quick=True),
        PretrainedEntry("transformer", _QUICK_SPECTRUM),
    ),
    protocol=(
        "The models of embedding-bottleneck, attention-forms (language), head-bottleneck and "
        "depth-width, one seed of each. 40 windows of 32 characters of the test text; the first "
        "halves of all are joined with the second halves of all, and the matrix of a logit of the "
        "next character, scaled to mean 0 and standard deviation 1 on the 40 windows, is "
        "decomposed: its entanglement entropy, the least rank within a root mean square of 0.1, "
        "its singular values; means over the logits of the three most frequent characters. The "
        "same with the even characters of all windows joined with the odd ones. (This split was "
        "added after 17 models had been measured by the first, before any number of its own.) "
        "Correlations are Spearman's over settings (two of them are one network, which counts "
        "once), with what ranks of log parameters in blocks and of depth explain taken out, and "
        "95 % intervals by Fisher. Pretrained models are "
        "measured alike on texts of their own (characters of our pages; what stories260k writes "
        "itself; STS-B sentences of 16 or more word pieces for MiniLM, whose outputs are "
        "coordinates of the mean state), and enter no correlation."
    ),
    # Correlations are over settings; two more seeds of each would take hours.
    seeds=1,
    columns=(
        "test loss",
        "entanglement entropy",
        "entanglement entropy, interleaved",
        "epsilon rank",
        "epsilon rank, interleaved",
        "loss on its own text",
        "shape",
        "parameters",
    ),
    figure=LineFigure(
        "entanglement entropy",
        "test loss",
        "depth",
        is_logarithmic=False,
        is_joined=False,
        panels=(
            Panel("Even against odd characters", across="entanglement entropy, interleaved"),
            Panel("First half against second"),
        ),
        labels={"entanglement entropy, interleaved": "entanglement entropy (nats)"},
    ),
    claims=Claims(
        "Does a higher separation rank predict a lower loss?",
        facts=partial(predicted, planned=len(_TRAINED)),
        hypothesis="Of models of equal size and depth, those that join two groups of characters "
        "more have a lower loss: a correlation below 0 (ours; the sources only suggest it).",
    ),
)
