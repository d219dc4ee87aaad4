"""The best row we know: formats and ranks chosen together, then two repairs."""

from collections import Counter
from dataclasses import dataclass, replace

from torch import nn

from rankscope.compression.compressing import compress
from rankscope.compression.fine_tuning import Distillation, fine_tune
from rankscope.experiments.compression_entry import CompressionEntry
from rankscope.experiments.experiment import Row, Workplace
from rankscope.experiments.repairing import SOURCE_RECIPE, Protocol, Repair, repair
from rankscope.layers.convolution import FactorizedConv2d
from rankscope.layers.formats.catalogue import FORMATS
from rankscope.training.batches import TensorData
from rankscope.training.recipe import Adam, Recipe, TimedCosine

CHOICE = ("svd", "cp", "tucker", "tensor-train")
CALIBRATION_IMAGES = 1024
SEQUENTIAL_SHARE = 0.25  # of the seconds; the rest is end to end

END_TO_END_RECIPE = Recipe(
    epochs=200, batch_size=128, learning_rate=2e-3, optimizer=Adam(), schedule=TimedCosine()
)


@dataclass(frozen=True)
class PlannedEntry(CompressionEntry):
    """Planned for the outputs on data, repaired stage by stage, then end to end.

    Args:
        subject: what is compressed.
        keep: share of the same convolutions' parameters as in the other rows, counted.
        sequential: recipe of the repair by stages.
        end_to_end: recipe of the fine-tuning, on the labels and the reference's predictions.
    """

    sequential: Recipe = SOURCE_RECIPE
    end_to_end: Recipe = END_TO_END_RECIPE

    @property
    def name(self) -> str:
        """By its share."""
        return f"best-{100 * self.keep:g}"

    def compress(self, reference: nn.Module, data: TensorData) -> nn.Module:
        """One choice for all convolutions; what the other rows leave alone is left alone."""
        convolutions = self.subject.convolutions(reference)
        total = sum(parameter.numel() for parameter in reference.parameters())
        dense = sum(module.weight.numel() for module in convolutions.values())
        others = [
            name
            for name, module in reference.named_modules()
            if isinstance(module, nn.Conv2d | nn.Linear) and name not in convolutions
        ]
        batches = [batch.inputs for batch in data.head(CALIBRATION_IMAGES).batches(128)]
        # A budget is a share of the whole model; here what is left alone comes on top.
        keep = (int(self.keep * dense) + total - dense) / total
        formats = [FORMATS[name] for name in CHOICE]
        return compress(reference, keep, batches, formats=formats, leave=others).model

    def repair(
        self,
        networks: tuple[nn.Module, nn.Module],
        data: TensorData,
        seconds: float,
        place: Workplace,
    ) -> Repair:
        """Stage by stage, then end to end."""
        reference, compressed = networks
        first = replace(self.sequential, max_seconds=SEQUENTIAL_SHARE * seconds)
        done = repair(Protocol.SEQUENTIAL, self.subject, networks, data, first, place)
        history = fine_tune(
            compressed,
            Distillation(reference, labels=0.5),
            data,
            replace(self.end_to_end, max_seconds=(1 - SEQUENTIAL_SHARE) * seconds),
            folder=place.folder / "end-to-end",
            progress=place.report,
        )
        return Repair(done.samples + history.samples, done.seconds + history.seconds)

    def describe(self, compressed: nn.Module) -> Row:
        """How many convolutions are in which format."""
        counts = Counter(
            module.format.name
            for module in compressed.modules()
            if isinstance(module, FactorizedConv2d)
        )
        chosen = ", ".join(f"{count} {name}" for name, count in counts.most_common())
        return {"format": f"planned: {chosen}", "published": None}
