"""`mixer-budget`: mixers against attention and layers of degree d, at equal parameters.

Navon (2021), Task 4, says that the degree of its layers also explains what an MLP-Mixer can do: a
block with σ(u) = u² has degree 4, an attention layer 3. Here all of them learn the same images.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor, nn

from rankscope.compression.training.loop import cross_entropy, fit, scores
from rankscope.compression.training.recipe import Cosine, Recipe
from rankscope.lab.experiments.baselines import ClassBaseline, class_baselines
from rankscope.lab.experiments.claims import Claims, Pair, Score, Statement, Verdict
from rankscope.lab.experiments.experiment import Entry, Experiment, Row, RunContext
from rankscope.lab.experiments.figure_dots import DotFigure
from rankscope.lab.experiments.figure_parts import Panel
from rankscope.lab.experiments.statements import count_as_claimed, judge
from rankscope.lab.experiments.wording import worded
from rankscope.networks.batches import TensorData
from rankscope.networks.datasets import load_data_set
from rankscope.networks.degree import DegreeAttention, DegreeNetwork
from rankscope.networks.mixers import MlpMixer
from rankscope.rank.networks.mixer import Gelu, MixerSizes, Power
from rankscope.seeds import seed_of

SIDE, PATCH, NUM_CLASSES = 8, 2, 10  # digits of 8 x 8 pixels, in 16 tokens of 4
NUM_TOKENS, TOKEN_SIZE = (SIDE // PATCH) ** 2, PATCH**2
NUM_VALIDATION = 300
RATES = (3e-3, 1e-2)
RECIPE = Recipe(epochs=40, batch_size=64, learning_rate=RATES[0], schedule=Cosine(), clip_norm=1.0)
BUDGETS = (3_000, 10_000)
SEEDS = 5
NUM_MNIST = 20_000  # training images, the last of them held out
MNIST_RECIPE = replace(RECIPE, epochs=24)

Make = Callable[[int, torch.Generator | None], nn.Module]  # of a width


def _mixer(activation: Gelu | Power) -> Make:
    def make(width: int, generator: torch.Generator | None) -> nn.Module:
        sizes = MixerSizes(
            NUM_TOKENS, TOKEN_SIZE, width, token_hidden=width, channel_hidden=2 * width, depth=2
        )
        return MlpMixer(sizes, num_outputs=NUM_CLASSES, activation=activation, generator=generator)

    return make


def _attention(degree: int) -> Make:
    def make(width: int, generator: torch.Generator | None) -> nn.Module:
        return DegreeAttention(
            num_outputs=NUM_CLASSES,
            generator=generator,
            depth=2,
            width=width,
            num_tokens=NUM_TOKENS,
            embedding_rank=TOKEN_SIZE,
            has_positions=True,
            degree=degree,
        )

    return make


def _products(degree: int) -> Make:
    def make(width: int, generator: torch.Generator | None) -> nn.Module:
        return nn.Sequential(
            nn.Flatten(),
            DegreeNetwork(
                num_inputs=NUM_TOKENS * TOKEN_SIZE,
                width=width,
                degrees=(float(degree),) * 2,
                num_outputs=NUM_CLASSES,
                generator=generator,
            ),
        )

    return make


@dataclass(frozen=True)
class Kind:
    """A kind of network: how it is made, its least width, and the degree of its output."""

    make: Make
    least_width: int
    total_degree: int | None


KINDS = {
    "mixer-square": Kind(_mixer(Power(2)), 1, 16),
    "mixer-gelu": Kind(_mixer(Gelu()), 1, None),
    "attention": Kind(_attention(3), NUM_CLASSES, 9),
    "attention-degree-5": Kind(_attention(5), NUM_CLASSES, 25),
    "degree-2": Kind(_products(2), 1, 4),
    "degree-3": Kind(_products(3), 1, 9),
}


# As readers say them, in figures and sentences.
LABELS = {
    "mixer-square": "mixer with squares",
    "mixer-gelu": "mixer with GELU",
    "attention-degree-5": "attention of degree 5",
    "degree-2": "layers of degree 2",
    "degree-3": "layers of degree 3",
}


def widest(kind: str, num_parameters: int) -> int:
    """The largest width with at most so many parameters; at least the least one."""
    width = KINDS[kind].least_width
    while True:
        with torch.device("meta"):
            network = KINDS[kind].make(width + 1, None)
        if sum(parameter.numel() for parameter in network.parameters()) > num_parameters:
            return width
        width += 1


@dataclass(frozen=True)
class MixerEntry(Entry):
    """Train one kind of network, with the learning rate that is best on held-out samples.

    Args:
        kind: one of `KINDS`.
        num_parameters: at most.
        recipe: of every training; its seed is that of the entry.
        seed: of the first weights and of the order of the samples.
    """

    has_checkpoints: ClassVar[bool] = True
    num_validation: ClassVar[int] = NUM_VALIDATION

    kind: str
    num_parameters: int
    recipe: Recipe = RECIPE
    seed: int = 0

    @property
    def name(self) -> str:
        """Kind and budget."""
        return f"{self.kind}-{self.num_parameters}"

    def tokens(self, context: RunContext) -> tuple[TensorData, TensorData]:
        """Training samples, those held out at their end, and test samples."""
        data = load_data_set("digits", context.data)
        return _patches(data.train), _patches(data.test)

    def run(self, context: RunContext) -> Row:
        """Accuracy in percent on the test samples."""
        train, test = self.tokens(context)
        count = len(train) - self.num_validation
        assert train.targets is not None, "digits have labels"
        held_out = TensorData(train.inputs[count:], train.targets[count:])
        width = widest(self.kind, self.num_parameters)
        best: tuple[float, float, nn.Module] | None = None
        seconds = 0.0
        for rate in RATES:
            generator = torch.Generator().manual_seed(seed_of("weights", self.seed))
            network = KINDS[self.kind].make(width, generator)
            history = fit(
                network,
                cross_entropy,
                train.head(count),
                replace(self.recipe, seed=self.seed, learning_rate=rate),
                folder=context.folder / f"rate-{rate:g}",
                progress=context.report,
            )
            seconds += history.seconds
            right = _accuracy(network, held_out)
            if best is None or right > best[0]:
                best = (right, rate, network)
        assert best is not None, "there are rates"
        return {
            "network": self.kind,
            "budget": self.num_parameters,
            "width": width,
            "parameters": sum(parameter.numel() for parameter in best[2].parameters()),
            "total degree": KINDS[self.kind].total_degree,
            "learning rate": best[1],
            "validation accuracy": best[0],
            "test accuracy": _accuracy(best[2], test),
            "seconds": seconds,
        }


class MnistEntry(MixerEntry):
    """The same on MNIST, averaged to as many pixels: what a linear function can say is less."""

    num_validation: ClassVar[int] = 2_000

    def tokens(self, context: RunContext) -> tuple[TensorData, TensorData]:
        """The first training images, and all test images."""
        data = load_data_set("mnist", context.data)
        return _averaged(data.train.head(NUM_MNIST)), _averaged(data.test)


def _averaged(part: TensorData) -> TensorData:
    """Images of 28 x 28 with a rim of two pixels, averaged over squares of 4 x 4, as tokens."""
    (batch,) = part.batches(len(part))
    images = nn.functional.pad(batch.inputs.float(), (2,) * 4)
    return _patches(TensorData(nn.functional.avg_pool2d(images, 4), batch.targets))


def _patches(part: TensorData) -> TensorData:
    """Images (count, 1, 8, 8) as tokens (count, 16, 4)."""
    images = part.inputs.float()
    tokens = nn.functional.unfold(images, PATCH, stride=PATCH).mT.contiguous()
    return TensorData(tokens, part.targets)


def _accuracy(network: nn.Module, part: TensorData) -> float:
    labels = part.targets
    assert labels is not None, "digits have labels"

    def right(model: nn.Module) -> dict[str, float]:
        outputs: Tensor = model(part.inputs)
        return {"right": 100 * float((outputs.argmax(1) == labels).double().mean())}

    return scores(network, right)["right"]


BASELINES: tuple[ClassBaseline, ...] = class_baselines("digits")
ACCURACY = Score("test accuracy", "points", is_lower_better=False, baseline=BASELINES[-1].name)


RIVALS = (
    ("mixer-square", "attention"),
    ("mixer-square", "degree-3"),
    ("mixer-square", "degree-2"),
    ("mixer-square", "mixer-gelu"),
    ("mixer-gelu", "attention"),
    ("attention", "degree-3"),
    ("attention-degree-5", "attention"),
    ("attention-degree-5", "mixer-square"),
)


_HYPOTHESIS = (
    "Of two networks of equal size the one of the larger total degree learns better (Navon 2021, "
    "Task 4)."
)


def _is_larger(first: str, second: str) -> bool | None:
    """Whether the first has the larger total degree; None if one has none, or they are equal."""
    one, other = KINDS[first].total_degree, KINDS[second].total_degree
    return None if one is None or other is None or one == other else one > other


def _pairs(score: Score = ACCURACY) -> tuple[Pair, ...]:
    return tuple(
        Pair(
            f"{budget:,} parameters: {worded(first, LABELS)} against {worded(second, LABELS)}",
            f"{first}-{budget}",
            f"{second}-{budget}",
            score,
            is_claimed_better=_is_larger(first, second),
        )
        for budget in BUDGETS[::-1]
        for first, second in RIVALS
    )


_ANSWER = "Decided pairs of different total degrees"


def _facts(rows: Sequence[Row], score: Score = ACCURACY) -> list[Statement]:
    """How many decided pairs go to the larger total degree, and which kinds are always better."""
    judged = [judge(pair, rows, seeds=SEEDS) for pair in _pairs(score)]
    detail = f"{count_as_claimed(judged)} go to the larger total degree"
    return [
        Statement(_ANSWER, Verdict.FACT, detail),
        Statement("Better at every budget", Verdict.FACT, _always_better(judged)),
    ]


def _always_better(judged: Sequence[Statement]) -> str:
    """Which kind is better than which wherever they are compared."""
    better = []
    for number, (first, second) in enumerate(RIVALS):
        own = judged[number :: len(RIVALS)]
        differences = [each.difference or 0.0 for each in own if each.verdict is Verdict.DECIDED]
        if len(differences) == len(own) and len({x > 0 for x in differences}) == 1:
            names = (first, second) if differences[0] > 0 else (second, first)
            better.append(" than ".join(worded(name, LABELS) for name in names))
    return "; ".join(better) or "none"


_QUICK = replace(RECIPE, epochs=2)

MIXER_BUDGET = Experiment(
    name="mixer-budget",
    title="Mixers, attention and layers of degree d at equal parameters: accuracy in percent",
    entries=(
        *BASELINES,
        *(MixerEntry(kind, budget) for budget in BUDGETS for kind in KINDS),
    ),
    quick=(*BASELINES, *(MixerEntry(kind, BUDGETS[0], _QUICK) for kind in KINDS)),
    protocol=(
        "Digits of 8 x 8 pixels, in 16 tokens of 2 x 2; two blocks or layers of each kind: mixers "
        "with σ(u) = u² (a polynomial of degree 16) and GELU, softmax-free attention with learned "
        "positions of degree 3 (9 in all) and 5 (25 in all), and products of two or three affine "
        "maps of all pixels (degree 4 and 9); a batch normalization without shift after each. The "
        "width is the largest within the budget. Adam, half a cosine, 40 epochs; the better of two "
        "learning rates on 300 held-out samples. Baselines: the most frequent class, and logistic "
        "regression."
    ),
    seeds=SEEDS,
    columns=(
        "test accuracy",
        "validation accuracy",
        "total degree",
        "width",
        "parameters",
        "learning rate",
    ),
    figure=DotFigure(
        ("test accuracy",),
        panels=tuple(
            Panel(
                f"At most {budget:,} parameters",
                f"(.+)-{budget}",
                baselines="(?:digits|mnist)-(.+)",
            )
            for budget in BUDGETS
        ),
        labels=LABELS,
    ),
    claims=Claims(
        "Does the degree of its layers explain what a mixer can learn?",
        _pairs(),
        (ACCURACY,),
        _facts,
        answer=_ANSWER,
        hypothesis=_HYPOTHESIS,
    ),
)


# Where a linear function knows less: more images, which are harder to tell apart.


MNIST_BASELINES: tuple[ClassBaseline, ...] = class_baselines("mnist", NUM_MNIST)
MNIST_ACCURACY = replace(ACCURACY, baseline=MNIST_BASELINES[-1].name)

MIXER_BUDGET_MNIST = replace(
    MIXER_BUDGET,
    name="mixer-budget-mnist",
    title="The same on MNIST, averaged to 8 x 8 pixels: accuracy in percent",
    entries=(
        *MNIST_BASELINES,
        *(MnistEntry(kind, budget, MNIST_RECIPE) for budget in BUDGETS for kind in KINDS),
    ),
    needs="MNIST (idx)",
    protocol=(
        f"As mixer-budget, on the first {NUM_MNIST:,} images of MNIST, with a rim of two pixels "
        "and averaged over squares of 4 x 4 to 8 x 8: 24 epochs, the better of the same two "
        f"learning rates on the last {MnistEntry.num_validation:,} of them, all 10,000 tests. "
        "The baselines see all 784 pixels. (The epochs were doubled after three rows with 12, of "
        "which the test accuracies had been seen.)"
    ),
    claims=Claims(
        "Does the degree of its layers explain what a mixer can learn, beyond a linear function?",
        _pairs(MNIST_ACCURACY),
        (MNIST_ACCURACY,),
        partial(_facts, score=MNIST_ACCURACY),
        answer=_ANSWER,
        hypothesis=_HYPOTHESIS,
    ),
)
