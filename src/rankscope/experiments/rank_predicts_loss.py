"""`rank-predicts-loss`: do trained softmax models that join their inputs more have smaller losses?

The models are those of `depth-width` and `head-bottleneck`; beside them are pretrained ones, whose
losses are on other texts and enter no correlation.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from safetensors import safe_open

from rankscope.architectures.models.weight_files import load_weights, read_weights
from rankscope.experiments.depth_width import DEPTH_WIDTH
from rankscope.experiments.experiment import KEPT, Entry, Experiment, Row, Run, Workplace
from rankscope.experiments.head_bottleneck import HEAD_BOTTLENECK
from rankscope.experiments.line_figure import LineFigure
from rankscope.experiments.partial_correlation import partial_correlation
from rankscope.experiments.pretrained_spectra import PretrainedEntry
from rankscope.experiments.sequence_entry import IDENTITY, WEIGHTS, SequenceEntry
from rankscope.experiments.sequence_tasks import CharacterTask
from rankscope.experiments.trained_spectrum import (
    DEFAULT_SPECTRUM,
    SpectrumSettings,
    last_logits,
    spectrum_row,
)

MAX_TOKENS = 32  # of the contexts that are split
_MEASURES = ("entanglement entropy", "epsilon rank")
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
        """Of the experiment and the entry."""
        return f"{self.source}-{self.entry.name}"

    def run(self, place: Workplace) -> Row:
        """Sizes, loss, entropy, epsilon rank and spectrum."""
        entry = replace(self.entry, seed=self.seed)
        assert isinstance(entry.task, CharacterTask), "the experiments named above have no other"
        task = entry.task.load(place.data)
        model = entry.fresh(task)
        weights = self._kept(entry, place)
        if weights is None:
            entry.train(model, task, place)
        else:
            load_weights(model, read_weights(weights), who=str(weights))
        model.eval()
        contexts = entry.task.contexts(
            place.data, count=self.settings.num_inputs, length=min(MAX_TOKENS, entry.task.length)
        )
        return {
            **entry.sizes(model),
            **task.score(model),
            **spectrum_row(last_logits(model), contexts, self.settings),
        }

    def _kept(self, entry: SequenceEntry, place: Workplace) -> Path | None:
        """The weights that the other experiment kept, if they are of this entry."""
        run = Run(entry, entry.seed).name
        path = place.folder.parents[2] / self.source / KEPT / run / WEIGHTS
        if not path.is_file():
            return None
        with safe_open(path, framework="pt") as file:
            is_same = (file.metadata() or {}).get(IDENTITY) == repr(entry)
        return path if is_same else None


def correlation_rows(rows: Sequence[Row]) -> list[Row]:
    """Correlations of the loss with each measure over settings, alone and beside sizes.

    Seeds of a setting are averaged first: they are no independent points.
    """
    settings = [row for row in _means(rows) if _LOSS in row and "depth" in row]
    if len(settings) < 6:
        return []
    column = {name: [row[name] for row in settings] for name in settings[0]}
    sizes = [[math.log(value) for value in column[name]] for name in ("in blocks", "depth")]
    found: list[Row] = []
    for measure in _MEASURES:
        for name, controls in (
            ("nothing", []),
            ("parameters in blocks", sizes[:1]),
            ("parameters in blocks, depth", sizes),
        ):
            answer = partial_correlation(column[measure], column[_LOSS], controls)
            found.append(
                {
                    "measure": measure,
                    "controlled for": name,
                    "correlation with loss": answer.value,
                    "low": answer.low,
                    "high": answer.high,
                    "settings": answer.count,
                }
            )
    return found


def _means(rows: Sequence[Row]) -> Sequence[Mapping[str, float]]:
    found = []
    for setting in dict.fromkeys(str(row["setting"]) for row in rows):
        own = [row for row in rows if row["setting"] == setting]
        names = [name for name, value in own[0].items() if isinstance(value, int | float)]
        found.append(
            {name: statistics.fmean(float(str(row[name])) for row in own) for name in names}
        )
    return found


def _entries(experiment: Experiment, *, quick: bool = False) -> tuple[RankEntry, ...]:
    chosen = experiment.quick if quick else experiment.entries
    settings = SpectrumSettings(num_inputs=12, num_outputs=1) if quick else DEFAULT_SPECTRUM
    return tuple(
        RankEntry(experiment.name, entry, settings)
        for entry in chosen
        if isinstance(entry, SequenceEntry)
    )


RANK_PREDICTS_LOSS = Experiment(
    name="rank-predicts-loss",
    title="Trained language models: entanglement of the halves of their context, and test loss",
    entries=(
        *_entries(DEPTH_WIDTH),
        *_entries(HEAD_BOTTLENECK),
        PretrainedEntry("transformer"),
        PretrainedEntry("stories260k"),
        PretrainedEntry("minilm"),
    ),
    needs="tinyshakespeare, stories260k, minilm, stsb_en",
    quick=(
        *_entries(DEPTH_WIDTH, quick=True),
        *_entries(HEAD_BOTTLENECK, quick=True),
        PretrainedEntry("transformer", SpectrumSettings(num_inputs=12, num_outputs=1)),
    ),
    protocol=(
        "The models of depth-width and head-bottleneck, with their seeds. 40 windows of 32 "
        "characters of the test text; the first halves of all are joined with the second halves of "
        "all, and the matrix of a logit of the next character, scaled to mean 0 and standard "
        "deviation 1 on the 40 windows, is decomposed: its entanglement entropy, the least rank "
        "within a root mean square of 0.1, its singular values; means over the logits of the three "
        "most frequent characters. Correlations are Spearman's over settings (seeds averaged), "
        "with what ranks of log parameters in blocks and of depth explain taken out, and 95 % "
        "intervals by Fisher. Pretrained models are measured alike on texts of their own "
        "(characters of our pages; what stories260k writes itself; STS-B sentences of 16 or more "
        "word pieces for MiniLM, whose outputs are coordinates of the mean state), and enter no "
        "correlation."
    ),
    seeds=3,
    figure=LineFigure(
        "entanglement entropy", "test loss", "depth", is_logarithmic=False, is_joined=False
    ),
    summary=correlation_rows,
)
