"""`attention-forms`: multi-head, tunable core and CP attention at one protocol, on three tasks.

Huang (2021) compares "lossless multi-head" (CP form) with multi-head attention on PTB, WMT16 and
CIFAR-10; the percentages of parameters there count the weights of attention only.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from rankscope.lab.experiments.baselines import language_baselines, pixel_baselines
from rankscope.lab.experiments.claims import Claims, Pair, Score
from rankscope.lab.experiments.experiment import Experiment, Row, RunContext
from rankscope.lab.experiments.figure_dots import DotFigure
from rankscope.lab.experiments.figure_parts import Panel
from rankscope.lab.experiments.sequence_models import (
    CharacterTask,
    PixelTask,
    SearchedSteps,
    SequenceEntry,
    SequenceTask,
    Steps,
    TranslationTask,
)
from rankscope.networks.sequence import (
    AttentionForm,
    CPForm,
    MultiHead,
    PixelInput,
    SoftmaxFree,
    TransformerShape,
    TunableCore,
)

HEADS, HEAD_SIZE = 4, 8
WIDTH, DEPTH = 32, 2
FORMS: Mapping[str, AttentionForm] = {
    "multi-head": MultiHead(HEADS, HEAD_SIZE),
    # All maps at once, 17 MB: a step takes three quarters of the time of blocks of 2 MB.
    "tunable": TunableCore(HEADS, HEAD_SIZE, max_entries=2**23),
    "cp-r-dh": CPForm(HEADS * HEAD_SIZE),
    "cp-r-h": CPForm(HEADS),
    "softmax-free": SoftmaxFree(HEADS, HEAD_SIZE),
}
# Published by Huang (2021): perplexity on PTB, BLEU on WMT16, bits per dimension on CIFAR-10. It
# has no row for the tunable core, which came with Liu, Su & Huang (2022).
PUBLISHED: Mapping[str, Mapping[str, float]] = {
    "language": {"multi-head": 52.7, "cp-r-dh": 51.9, "cp-r-h": 55.4},
    "translation": {"multi-head": 27.1, "cp-r-dh": 28.4, "cp-r-h": 26.3},
    "pixels": {"multi-head": 3.47, "cp-r-dh": 3.09, "cp-r-h": 3.71},
}


@dataclass(frozen=True)
class FormEntry(SequenceEntry):
    """A sequence model whose row has the source's number beside it.

    Args:
        published: of the source, on its own data and at its own size.
    """

    published: float | None = None

    def run(self, context: RunContext) -> Row:
        """Run as any sequence model; add the size of an attention and the published score."""
        row = super().run(context)
        return {"weights of an attention": self._weights(), **row, "source": self.published}

    def _weights(self) -> int:
        """Parameters of the matrices of one attention, its core among them."""
        layer = self.shape.attention.build(self.shape.width)
        return sum(weight.numel() for weight in layer.parameters() if weight.dim() == 2)


def _entries(
    kind: str, task: SequenceTask, num_positions: int, steps: Steps, names: tuple[str, ...]
) -> tuple[FormEntry, ...]:
    """The forms of attention on one task."""
    return tuple(
        FormEntry(
            f"{kind}-{name}",
            task,
            TransformerShape(DEPTH, WIDTH, FORMS[name], num_positions),
            steps,
            published=PUBLISHED[kind].get(name),
        )
        for name in names
    )


_ALL, _PUBLISHED = tuple(FORMS), tuple(PUBLISHED["language"])
_PIXELS = PixelTask(pixels=PixelInput.TABLES)
_QUICK_PIXELS = PixelTask("digits", PixelInput.TABLES, num_tested=100)

SCORES = {
    "language": Score("test loss", "nats", baseline="baseline-3-gram", prefix="language-"),
    "translation": Score(
        "BLEU",
        "BLEU",
        is_lower_better=False,
        baseline=20.0,
        why="comparisons below a BLEU of",
    ),
    "pixels": Score("bits", "bits", baseline="baseline-linear-4-neighbours"),
}
_TITLES = {
    "tunable": "tunable core",
    "cp-r-dh": "CP with as many weights (R = DH)",
    "cp-r-h": "CP with 1 / D of the weights (R = H)",
    "softmax-free": "heads without softmax",
}


def _claims() -> Claims:
    """Every form against multi-head attention: the source has R = DH better, R = H near."""
    return Claims(
        "Is CP attention better than multi-head attention of the same size?",
        tuple(
            Pair(
                f"{kind}: {title} against multi-head",
                f"{kind}-{name}",
                f"{kind}-multi-head",
                score,
                is_claimed_better=True if name == "cp-r-dh" else None,
            )
            for name, title in sorted(_TITLES.items(), key=lambda item: item[0] != "cp-r-dh")
            for kind, score in SCORES.items()
            if kind == "language" or name in _PUBLISHED
        ),
        tuple(SCORES.values()),
        hypothesis="CP attention with as many weights is better than multi-head attention, and "
        "with 1 / D of them nearly as good (Huang 2021).",
    )


ATTENTION_FORMS = Experiment(
    name="attention-forms",
    title="Forms of attention: test loss (nats), BLEU (percent), bits per intensity",
    entries=(
        *language_baselines(CharacterTask()),
        *pixel_baselines(_PIXELS),
        *_entries("language", CharacterTask(), 64, SearchedSteps(3000), _ALL),
        *_entries("translation", TranslationTask(), 64, SearchedSteps(5000, 64), _PUBLISHED),
        *_entries("pixels", _PIXELS, 64, SearchedSteps(6000), _PUBLISHED),
    ),
    needs="tinyshakespeare, multi30k, cifar-10-batches-bin",
    quick=(
        *_entries("language", CharacterTask("embedded", 16), 16, Steps(30), _ALL),
        *_entries("translation", TranslationTask("reversed", 8, 50), 16, Steps(40), _PUBLISHED),
        *_entries("pixels", _QUICK_PIXELS, 64, Steps(8, 8), _PUBLISHED),
    ),
    protocol=(
        "Transformers of two blocks (translation: two in the encoder, two in the decoder) of width "
        "32, which differ in the attention only: 4 heads of size 8; a free 32 x 32 core that "
        "starts as those heads (language only); 32 heads of size 1 (CP, R = DH); 4 heads of size 1 "
        "(CP, R = H, an eighth of the weights of attention); on language also heads without "
        "softmax. Trained as in depth-width, but at the best of three learning rates (1e-3, 3e-3, "
        "1e-2), each tried for a tenth of the batches and judged on validation samples, for every "
        "form alike: characters of Shakespeare (3,000 batches of 32 windows of 64), Multi30k "
        "German to English in small letters with words that occur at least 5 times (5,000 batches "
        "of 64 pairs of at most 16 words, BLEU of the most likely words of 1,000 test sentences), "
        "CIFAR-10 averaged to 8 x 8 (6,000 batches of 32, bits for each of 256 intensities). "
        "Memory is what a training step keeps for its backward pass; time is of one core."
    ),
    seeds=3,
    columns=(
        "test loss",
        "BLEU",
        "bits",
        "source",
        "weights of an attention",
        "parameters",
        "kept MB",
        "seconds",
    ),
    figure=DotFigure(
        ("test loss",),
        panels=(
            Panel("Characters of Shakespeare", "language-(.+)", baselines="(.+-gram)"),
            Panel("Translation, BLEU", "translation-(.+)", across="BLEU"),
            Panel("Translation, loss", "translation-(.+)", baselines=""),
            Panel("Pixels of CIFAR-10", "pixels-(.+)", across="bits"),
        ),
        labels={"multi-head": "multi-head", **_TITLES},
    ),
    claims=_claims(),
)
