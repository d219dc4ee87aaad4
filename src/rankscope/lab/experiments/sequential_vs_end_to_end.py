"""`sequential-vs-end-to-end`: accuracy against samples processed, for both ways to repair.

The source compares r-TT repaired stage by stage with TT trained end to end from scratch, so that
two things change at once. Here four cells start from the decomposition of the same trained network,
with the same optimizer, and two are trained end to end from random weights; a sample counts once
for each stage that is fitted to it. Seeds draw the samples, their changes and their order, and the
random weights.

Reference:
    Su, Li, Bhattacharjee & Huang (2018), arXiv:1805.10352.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import nn

from rankscope.compression.training.recipe import MixedPrecision, Recipe
from rankscope.errors import ExperimentError
from rankscope.factorize.formats.catalogue import FORMATS
from rankscope.lab.experiments.baselines import class_baselines
from rankscope.lab.experiments.claims import Claims, Pair, Score
from rankscope.lab.experiments.experiment import Entry, Experiment, Row, RunContext
from rankscope.lab.experiments.figure_lines import LineFigure
from rankscope.lab.experiments.figure_parts import Panel
from rankscope.lab.experiments.image_workloads import (
    DIGITS,
    RESNET32,
    SOURCE_RECIPE,
    CompressionWorkload,
    Protocol,
    compare,
    compress_uniformly,
    repair,
    score,
)
from rankscope.lab.experiments.wording import worded
from rankscope.networks.catalogue import BUILT_IN
from rankscope.progress import Progress
from rankscope.seeds import seed_of

FORMATS_COMPARED = ("tensor-train", "r-tensor-train")
KEEP = 0.1
_RECIPE = replace(SOURCE_RECIPE, precision=MixedPrecision())


@dataclass(frozen=True)
class SamplesEntry(Entry):
    """One cell: a format, a protocol, and how many samples are processed.

    Args:
        workload: what is compressed, to a tenth of its convolutions' parameters.
        format: name of the format.
        protocol: how it is repaired.
        samples: to be processed, in all stages together.
        recipe: of the repair.
        seed: of the decompositions, of the samples and of random weights.
    """

    has_checkpoints: ClassVar[bool] = True

    workload: CompressionWorkload
    format: str
    protocol: Protocol
    samples: int
    recipe: Recipe = _RECIPE
    seed: int = 0

    @property
    def name(self) -> str:
        """Format, protocol and samples."""
        return f"{self.format}-{self.title}-{self.samples}"

    @property
    def title(self) -> str:
        """What is done."""
        return str(self.protocol)

    def start(self, reference: nn.Module) -> nn.Module:
        """The network that is decomposed: the trained one."""
        return reference

    def run(self, context: RunContext) -> Row:
        """Accuracy before and after."""
        context.report(Progress("decomposing", 0, 1))
        reference, data = self.workload.build(context.data), self.workload.load(context.data)
        compressed = compress_uniformly(
            self.workload, self.start(reference), FORMATS[self.format], KEEP, seed=self.seed
        )
        before = score(compressed, data.test)
        # As many epochs as the samples need: what ends the run is their number.
        epochs = -(-self.samples // len(data.train))
        recipe = replace(
            self.recipe,
            epochs=epochs,
            max_samples=self.samples,
            max_seconds=context.seconds,
            seed=self.seed,
        )
        networks = (reference, compressed)
        done = repair(self.protocol, self.workload, networks, data.train, recipe, context)
        return {
            "format": self.format,
            "protocol": self.title,
            "samples": done.samples,
            "share": compare(self.workload, reference, compressed).share,
            "accuracy before": before,
            "accuracy": score(compressed, data.test),
            "seconds": done.seconds,
        }


@dataclass(frozen=True)
class ScratchEntry(SamplesEntry):
    """A cell that starts from random weights, so that only its ranks come from the reference."""

    protocol: Protocol = Protocol.END_TO_END
    samples: int = 0

    def __post_init__(self) -> None:
        if self.protocol is not Protocol.END_TO_END:
            raise ExperimentError(
                f"A network is trained from scratch end to end, not by the protocol "
                f"{self.protocol}: stages are fitted to those of a trained network."
            )

    @property
    def title(self) -> str:
        """What is done."""
        return "from-scratch"

    def start(self, reference: nn.Module) -> nn.Module:
        """A network of the same shape with random weights."""
        del reference
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed_of("weights", self.seed))
            model = BUILT_IN[self.workload.network].make()
        return model.to(memory_format=torch.channels_last)  # type: ignore[call-overload,no-any-return]


def _cells(workload: CompressionWorkload, samples: tuple[int, ...]) -> tuple[SamplesEntry, ...]:
    return tuple(
        SamplesEntry(workload, format, protocol, count)
        for format in FORMATS_COMPARED
        for protocol in Protocol
        for count in samples
    )


def _scratch_cells(
    workload: CompressionWorkload, samples: tuple[int, ...]
) -> tuple[ScratchEntry, ...]:
    return tuple(
        ScratchEntry(workload, format, samples=count)
        for format in FORMATS_COMPARED
        for count in samples
    )


BASELINES = class_baselines("cifar10", column="accuracy")
_ACCURACY = Score("accuracy", "points", is_lower_better=False, baseline=BASELINES[-1].name)
_SAMPLES = (10_000, 25_000, 100_000)


_FIGURE = LineFigure(
    "samples",
    "accuracy",
    ("format", "protocol"),
    panels=(Panel(baselines="cifar10-(.+)"),),
)

SEQUENTIAL_VS_END_TO_END = Experiment(
    name="sequential-vs-end-to-end",
    title="ResNet-32 on CIFAR-10 at 10 %: accuracy in percent against samples processed",
    entries=(*BASELINES, *_cells(RESNET32, _SAMPLES), *_scratch_cells(RESNET32, _SAMPLES)),
    claims=Claims(
        "Is fitting stage by stage better than training end to end?",
        tuple(
            Pair(
                f"{worded(format)}, {samples:,} samples: {what}",
                f"{format}-{first}-{samples}",
                f"{format}-{second}-{samples}",
                _ACCURACY,
                is_claimed_better=False,
            )
            for what, first, second in (
                ("end to end against stage by stage", "end-to-end", "sequential"),
                ("from scratch against stage by stage", "from-scratch", "sequential"),
            )
            for format in FORMATS_COMPARED
            for samples in _SAMPLES
        )
        + tuple(
            Pair(
                f"the source's own comparison, {samples:,} samples: tensor train from scratch "
                f"against {worded('r-tensor-train')} stage by stage",
                f"tensor-train-from-scratch-{samples}",
                f"r-tensor-train-sequential-{samples}",
                _ACCURACY,
                is_claimed_better=False,
            )
            for samples in _SAMPLES
        ),
        hypothesis="Fitted stage by stage to a trained network, a compressed one is more accurate "
        "after as many samples than one that is trained end to end (Huang 2021).",
    ),
    needs="CIFAR-10 (binary) and the published ResNet-32",
    seconds=1800.0,
    seeds=3,
    protocol=(
        "All 30 convolutions between the first one and the classifier of a ResNet-32 at a tenth of "
        "their parameters. Stage by stage: each of three stages is fitted to that of the trained "
        "network, with a third of the samples. End to end: on labels, from the decomposition of "
        "the trained network, or from scratch, from that of random weights. Adam at 1e-3, batches "
        "of 128, a cosine, products in bfloat16 where the processor has units for it."
    ),
    quick=(*_cells(DIGITS, (1_000,)), *_scratch_cells(DIGITS, (1_000,))),
    figure=_FIGURE,
)

SEQUENTIAL_VS_END_TO_END_DIGITS = Experiment(
    name="sequential-vs-end-to-end-digits",
    title="The embedded digits network at 10 %: accuracy in percent against samples processed",
    entries=_cells(DIGITS, (1_000, 3_000, 10_000, 30_000)),
    seconds=60.0,
    quick=_cells(DIGITS, (1_000,)),
    figure=_FIGURE,
)
