"""`sequential-vs-end-to-end`: accuracy against samples processed, for both ways to repair.

The source compares r-TT repaired stage by stage with TT trained end to end from scratch, so that
two things change at once. Here all four cells start from the decomposition of the same trained
network, with the same optimizer; a sample counts once for each stage that is fitted to it.

Reference:
    Su, Li, Bhattacharjee & Huang (2018), arXiv:1805.10352.
"""

from dataclasses import dataclass, replace

from rankscope.experiments.experiment import Entry, Experiment, Row, Workplace
from rankscope.experiments.figures import LineFigure
from rankscope.experiments.image_compression import (
    DIGITS,
    RESNET32,
    SOURCE_RECIPE,
    Protocol,
    Subject,
    compare,
    compress_uniformly,
    repair,
    score,
)
from rankscope.layers.formats.catalogue import FORMATS
from rankscope.separation.measuring.progress import Progress
from rankscope.training.recipe import Recipe

FORMATS_COMPARED = ("tensor-train", "r-tensor-train")
KEEP = 0.1


@dataclass(frozen=True)
class SamplesEntry(Entry):
    """One cell: a format, a protocol, and how many samples are processed.

    Args:
        subject: what is compressed, to a tenth of its convolutions' parameters.
        format: name of the format.
        protocol: how it is repaired.
        samples: to be processed, in all stages together.
        recipe: of the repair.
        seed: of the decompositions.
    """

    subject: Subject
    format: str
    protocol: Protocol
    samples: int
    recipe: Recipe = SOURCE_RECIPE
    seed: int = 0

    @property
    def name(self) -> str:
        """Format, protocol and samples."""
        return f"{self.format}-{self.protocol}-{self.samples}"

    def run(self, place: Workplace) -> Row:
        """Accuracy before and after."""
        place.report(Progress("decomposing", 0, 1))
        reference, data = self.subject.build(place.data), self.subject.load(place.data)
        compressed = compress_uniformly(
            self.subject, reference, FORMATS[self.format], KEEP, seed=self.seed
        )
        before = score(compressed, data.test)
        # As many epochs as the samples need: what ends the run is their number.
        epochs = -(-self.samples // len(data.train))
        recipe = replace(
            self.recipe, epochs=epochs, max_samples=self.samples, max_seconds=place.seconds
        )
        networks = (reference, compressed)
        done = repair(self.protocol, self.subject, networks, data.train, recipe, place)
        return {
            "format": self.format,
            "protocol": str(self.protocol),
            "samples": done.samples,
            "share": compare(self.subject, reference, compressed).share,
            "accuracy before": before,
            "accuracy": score(compressed, data.test),
            "seconds": done.seconds,
        }


def _cells(subject: Subject, samples: tuple[int, ...]) -> tuple[SamplesEntry, ...]:
    return tuple(
        SamplesEntry(subject, format, protocol, count)
        for format in FORMATS_COMPARED
        for protocol in Protocol
        for count in samples
    )


SEQUENTIAL_VS_END_TO_END = Experiment(
    name="sequential-vs-end-to-end",
    title="ResNet-32 on CIFAR-10 at 10 %: accuracy in percent against samples processed",
    entries=_cells(RESNET32, (10_000, 25_000, 100_000)),
    needs="CIFAR-10 (binary) and the published ResNet-32",
    quick=_cells(DIGITS, (1_000,)),
    figure=LineFigure("samples", "accuracy", ("format", "protocol")),
)

SEQUENTIAL_VS_END_TO_END_DIGITS = Experiment(
    name="sequential-vs-end-to-end-digits",
    title="The embedded digits network at 10 %: accuracy in percent against samples processed",
    entries=_cells(DIGITS, (1_000, 3_000, 10_000, 30_000)),
    seconds=60.0,
    quick=_cells(DIGITS, (1_000,)),
    figure=LineFigure("samples", "accuracy", ("format", "protocol")),
)
