"""`cifar10-compression` and `digits-compression`: an image network in every format, at equal size.

Every row compresses the same trained network to the same counted parameters, repairs it within its
time, and scores it; the last rows let the planner choose formats and ranks together.
"""

from abc import abstractmethod
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import ClassVar

from torch import nn

from rankscope.compression.compressing import compress
from rankscope.compression.training.recipe import MixedPrecision, Recipe, working_seconds
from rankscope.errors import ExperimentError
from rankscope.factorize.convolution import FactorizedConv2d
from rankscope.factorize.formats.catalogue import FORMATS
from rankscope.lab.experiments.baselines import class_baselines
from rankscope.lab.experiments.claims import Claims, Score, Statement, Verdict
from rankscope.lab.experiments.experiment import Entry, Experiment, Row, RunContext
from rankscope.lab.experiments.figure_dots import DotFigure
from rankscope.lab.experiments.figure_lines import LineFigure
from rankscope.lab.experiments.figure_parts import Panel
from rankscope.lab.experiments.image_workloads import (
    DIGITS,
    END_TO_END_RECIPE,
    RESNET32,
    SOURCE_RECIPE,
    CompressionWorkload,
    Protocol,
    Repair,
    compare,
    compress_uniformly,
    repair,
    repair_twice,
    score,
)
from rankscope.lab.experiments.wording import worded
from rankscope.networks.batches import TensorData
from rankscope.progress import Progress

COPIES = 6  # of every image: a third of a step would go into the uncompressed network's outputs


# One row of a compression table: a network compressed, repaired and scored within its time.


@dataclass(frozen=True)
class DenseEntry(Entry):
    """The uncompressed network, for comparison."""

    workload: CompressionWorkload
    published: float | None = None

    @property
    def name(self) -> str:
        """It is the only one of its kind."""
        return "dense"

    def run(self, context: RunContext) -> Row:
        """Its accuracy."""
        began = working_seconds()
        model, data = self.workload.build(context.data), self.workload.load(context.data)
        return {
            "format": "dense",
            "published": self.published,
            "kept": compare(self.workload, model, model).kept,
            "share": 1.0,
            "weight error": None,
            "accuracy before": None,
            "accuracy": score(model, data.test),
            "samples": None,
            "seconds": working_seconds() - began,
        }


@dataclass(frozen=True)
class CompressionEntry(Entry):
    """What the rows of compressed networks share; subclasses say how it is done.

    Args:
        workload: what is compressed.
        keep: share of its convolutions' parameters, counted.
    """

    has_checkpoints: ClassVar[bool] = True

    workload: CompressionWorkload
    keep: float

    @abstractmethod
    def compress(self, reference: nn.Module, data: TensorData) -> nn.Module:
        """A compressed copy."""

    @abstractmethod
    def repair(
        self,
        networks: tuple[nn.Module, nn.Module],
        data: TensorData,
        seconds: float,
        context: RunContext,
    ) -> Repair:
        """Train the compressed one (the second) in place, for so many seconds at most."""

    @abstractmethod
    def describe(self, compressed: nn.Module) -> Row:
        """Cells of the row beside the measured ones."""

    def run(self, context: RunContext) -> Row:
        """Counted parameters, error of the weights, accuracy before and after the repair."""
        began = working_seconds()
        context.report(Progress("decomposing", 0, 1))
        reference, data = self.workload.build(context.data), self.workload.load(context.data)
        compressed = self.compress(reference, data.train)
        result = compare(self.workload, reference, compressed)
        scoring_began = working_seconds()
        before = score(compressed, data.test)
        seconds = seconds_left(self.name, context, began, scoring_began)
        preparing = working_seconds() - began
        done = self.repair((reference, compressed), data.train, seconds, context)
        scoring_began = working_seconds()
        after = score(compressed, data.test)
        return {
            **self.describe(compressed),
            "kept": result.kept,
            "share": result.share,
            "weight error": result.error,
            "accuracy before": before,
            "accuracy": after,
            "samples": done.samples,
            "seconds": preparing + done.seconds + working_seconds() - scoring_began,
        }


@dataclass(frozen=True)
class UniformEntry(CompressionEntry):
    """Every convolution in one format at one rate, then repaired stage by stage.

    Args:
        workload: what is compressed.
        keep: share of its convolutions' parameters, counted.
        format: name of the format.
        published: accuracy in percent that the source reports at this nominal share.
        recipe: of the repair; its seconds are those of the whole run.
        seed: of the decompositions.
    """

    format: str
    published: float | None = None
    recipe: Recipe = SOURCE_RECIPE
    seed: int = 0

    @property
    def name(self) -> str:
        """Format and share."""
        return f"{self.format}-{100 * self.keep:g}"

    def compress(self, reference: nn.Module, data: TensorData) -> nn.Module:
        """Compress by the weights alone."""
        del data
        format = FORMATS[self.format]
        return compress_uniformly(self.workload, reference, format, self.keep, seed=self.seed)

    def repair(
        self,
        networks: tuple[nn.Module, nn.Module],
        data: TensorData,
        seconds: float,
        context: RunContext,
    ) -> Repair:
        """Repair by the source's protocol."""
        recipe = replace(self.recipe, max_seconds=seconds)
        return repair(Protocol.SEQUENTIAL, self.workload, networks, data, recipe, context)

    def describe(self, compressed: nn.Module) -> Row:
        """The format, and what the source reports."""
        del compressed
        return {"format": self.format, "published": self.published}


@dataclass(frozen=True)
class DistilledEntry(UniformEntry):
    """The same start, then the repair of the planned rows: stages, and distillation end to end.

    Args:
        workload: what is compressed.
        keep: share of its convolutions' parameters, counted.
        format: name of the format.
        published: accuracy in percent that the source reports at this nominal share.
        recipe: of the repair by stages.
        seed: of the decompositions.
        end_to_end: recipe of the fine-tuning.
        copies: of every sample, each with another augmentation.
    """

    end_to_end: Recipe = END_TO_END_RECIPE
    copies: int = COPIES

    def repair(
        self,
        networks: tuple[nn.Module, nn.Module],
        data: TensorData,
        seconds: float,
        context: RunContext,
    ) -> Repair:
        """Stage by stage, then end to end."""
        recipes = self.recipe, self.end_to_end
        return repair_twice(
            self.workload, networks, data, recipes, seconds, context, copies=self.copies
        )


def seconds_left(name: str, context: RunContext, began: float, scoring_began: float) -> float:
    """What an entry may still train for, so that it can be scored once more in time.

    Raises:
        ExperimentError: if nothing is left.
    """
    now = working_seconds()
    left = context.seconds - (now - began) - (now - scoring_began)
    if left <= 0:
        raise ExperimentError(
            f"{name}: of its {context.seconds:g} seconds, {now - began:.0f} were spent before "
            f"training could begin. Give it more."
        )
    return left


# The best row we know: formats and ranks chosen together, then two repairs.


CHOICE = ("svd", "cp", "tucker", "tensor-train")
CALIBRATION_IMAGES = 1024


@dataclass(frozen=True)
class PlannedEntry(CompressionEntry):
    """Planned for the outputs on data, repaired stage by stage, then end to end.

    Args:
        workload: what is compressed.
        keep: share of the same convolutions' parameters as in the other rows, counted.
        sequential: recipe of the repair by stages.
        end_to_end: recipe of the fine-tuning, on the labels and the reference's predictions.
    """

    copies: ClassVar[int] = 0

    sequential: Recipe = SOURCE_RECIPE
    end_to_end: Recipe = END_TO_END_RECIPE

    @property
    def name(self) -> str:
        """Name the row by its share."""
        return f"best-{100 * self.keep:g}"

    def compress(self, reference: nn.Module, data: TensorData) -> nn.Module:
        """One choice for all convolutions; what the other rows leave alone is left alone."""
        convolutions = self.workload.convolutions(reference)
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
        context: RunContext,
    ) -> Repair:
        """Stage by stage, then end to end."""
        recipes = self.sequential, self.end_to_end
        return repair_twice(
            self.workload, networks, data, recipes, seconds, context, copies=self.copies
        )

    def describe(self, compressed: nn.Module) -> Row:
        """How many convolutions are in which format."""
        counts = Counter(
            module.format.name
            for module in compressed.modules()
            if isinstance(module, FactorizedConv2d)
        )
        chosen = ", ".join(f"{count} {name}" for name, count in counts.most_common())
        return {"format": f"planned: {chosen}", "published": None}


@dataclass(frozen=True)
class KeptPlannedEntry(PlannedEntry):
    """The same with predictions of the uncompressed network that are computed once."""

    copies: ClassVar[int] = COPIES


# `cifar10-compression`: a published ResNet-32 in every format, at equal counted parameters.
#
# The 30 convolutions between the first one and the classifier, 460,800 weights, are decomposed and
# then repaired by the source's protocol, with the same time for every entry. The source names its
# columns by nominal rates; its code kept up to 3.4 times as much (for r-CP), and everything here is
# counted.
#
# Reference:
#     Su, Li, Bhattacharjee & Huang (2018), arXiv:1805.10352; accuracies as in the talk's table.


# Accuracy in percent by format and nominal percentage kept; 93.2 uncompressed.
PUBLISHED: dict[str, dict[int, float]] = {
    "svd": {5: 83.09, 10: 87.27, 20: 89.58, 40: 90.85},
    "cp": {5: 84.02, 10: 86.93, 20: 88.75, 40: 88.75},
    "tucker": {5: 83.57, 10: 86.00, 20: 88.03, 40: 89.35},
    "tensor-train": {5: 77.44, 10: 82.92, 20: 84.13, 40: 86.64},
    "r-cp": {2: 85.7, 5: 89.86, 10: 91.28},
    "r-tucker": {2: 61.06, 5: 71.34, 10: 81.59, 20: 87.11},
    "r-tensor-train": {2: 78.95, 5: 84.26, 10: 87.89},
    "r-tensor-ring": {5: 80.80, 20: 90.60},
}

BASELINES = class_baselines("cifar10", column="accuracy")
ACCURACY = Score("accuracy", "points", is_lower_better=False, baseline=BASELINES[-1].name)


_MOST_NAMED = 6  # rows below the published number
_ANSWER = "Not decided (one run each); at or above the published accuracy"


def beside_published(rows: Sequence[Row]) -> list[Statement]:
    """Which rows reach the published number, and how far the others are below it.

    One run of each decides nothing about a mean over seeds, so this is said and no more.
    """
    ahead = {
        _name(row): float(str(row["accuracy"])) - float(str(row["published"]))
        for row in rows
        if row.get("published") is not None and row["format"] in PUBLISHED
    }
    if not ahead:
        return []
    reached, below = (
        [f"{name} ({by:+.2f})" for name, by in ahead.items() if (by >= 0) is is_reached]
        for is_reached in (True, False)
    )
    detail = f"{len(reached)} of {len(ahead)}"
    if reached:
        detail += f": {', '.join(reached)}"
    if len(below) > _MOST_NAMED:
        least, most = -max(by for by in ahead.values() if by < 0), -min(ahead.values())
        detail += f"; the others are {least:.2f} to {most:.2f} points below"
    elif below:
        detail += f"; below it: {', '.join(below)}"
    return [Statement(_ANSWER, Verdict.FACT, detail)]


_BEST_PLAIN = "Beside the best plain format of the source (not decided: one run each)"


def beside_best_plain(rows: Sequence[Row]) -> list[Statement]:
    """Planned rows beside the most accurate format, not reshaped, that the source has there."""
    parts = [
        f"{row['accuracy']} percent against {accuracy} ({worded(format)}) at "
        f"{_percentage(row)} % of the weights"
        for row in rows
        for format, accuracy in _best_plain(row)
    ]
    return [Statement(_BEST_PLAIN, Verdict.FACT, ", ".join(parts))] if parts else []


def _best_plain(row: Row) -> list[tuple[str, float]]:
    """The most accurate format, not reshaped, that the source has at the share of a planned row."""
    published = [
        (format, accuracies[percentage])
        for format, accuracies in PUBLISHED.items()
        if (percentage := _percentage(row)) in accuracies and not format.startswith("r-")
    ]
    return sorted(published, key=itemgetter(1))[-1:]


def _percentage(row: Row) -> int | None:
    """The share of a planned row, which its name ends in."""
    _, name, percentage = str(row["setting"]).rpartition("best-")
    return int(percentage) if name and percentage.isdigit() else None


def draw_beside_best_plain(rows: Sequence[Row]) -> object:
    """Planned rows, each with the source's best plain format as the published point."""
    return _PLANNED_FIGURE(
        [{**row, "published": plain[0][1] if (plain := _best_plain(row)) else None} for row in rows]
    )


def _name(row: Row) -> str:
    """A row as readers say it: "reshaped CP at 10 %"."""
    format, _, percentage = str(row["setting"]).rpartition("-")
    return f"{worded(format)} at {percentage} %"


_QUICK = (
    DenseEntry(DIGITS),
    *(UniformEntry(DIGITS, 0.1, format) for format in ("svd", "tucker", "r-cp")),
)
_PROTOCOL = (
    "Every 3 x 3 convolution of a trained network is written in one format with the same share of "
    "its weights, then repaired stage by stage with at most 150,000 samples. The row named best "
    "chooses formats and ranks together and is trained end to end for the rest of the row's "
    "seconds. Accuracy in percent on the whole test set. --quick: the embedded digits network."
)

_FORMATS = {
    "svd": "SVD",
    "cp": "CP",
    "tucker": "Tucker",
    "tensor-train": "Tensor train",
    "tensor-ring": "Tensor ring",
}
_LINES = "(?:cifar10|digits)-(.+)"  # baselines
_FIGURE = LineFigure(
    "share",
    "accuracy",
    panels=(
        *(
            Panel(title, rf"(r-)?{name}-\d+", baselines=_LINES, levels="(dense)")
            for name, title in _FORMATS.items()
        ),
        Panel("Formats chosen together", r"(best)-\d+", baselines=_LINES, levels="(dense)"),
    ),
    labels={"": "plain", "r-": "reshaped", "best": "formats and ranks planned"},
    shares_axis=True,
)

CIFAR10_COMPRESSION = Experiment(
    name="cifar10-compression",
    title="ResNet-32 on CIFAR-10: accuracy in percent at counted shares of 460,800 weights",
    entries=(
        *BASELINES,
        DenseEntry(RESNET32, published=93.2),
        *(
            UniformEntry(RESNET32, percentage / 100, format, published)
            for format, row in PUBLISHED.items()
            for percentage, published in row.items()
        ),
        PlannedEntry(RESNET32, 0.1),
    ),
    claims=Claims(
        "Does every format reach its published accuracy with a fiftieth of the source's samples?",
        scores=(ACCURACY,),
        facts=beside_published,
        answer=_ANSWER,
    ),
    needs="CIFAR-10 (binary) and the published ResNet-32",
    quick=_QUICK,
    protocol=_PROTOCOL,
    figure=_FIGURE,
)

_MIXED = replace(SOURCE_RECIPE, precision=MixedPrecision())
_MIXED_END_TO_END = replace(END_TO_END_RECIPE, precision=MixedPrecision())
_TWICE = (
    "Then at most a quarter of the row's time stage by stage against the uncompressed network, "
    "with at most 150,000 samples, and the rest end to end on the labels and the uncompressed "
    f"network's predictions, half and half, on {COPIES} fixed augmentations of every image. The "
    "same recipe and the same time for every row; products in bfloat16 where the processor has "
    "units for it, weights and scores in float32. --quick: the embedded digits network."
)
# The formats that a row of an hour is spent on.
LONGER_FORMATS = ("svd", "cp", "tucker", "tensor-train", "r-cp", "r-tensor-train")

CIFAR10_COMPRESSION_LONGER = Experiment(
    name="cifar10-compression-longer",
    title="The same at 10 %, an hour of one core for each format: accuracy in percent",
    entries=(
        *BASELINES,
        *(
            DistilledEntry(
                RESNET32, 0.1, format, PUBLISHED[format][10], _MIXED, end_to_end=_MIXED_END_TO_END
            )
            for format in LONGER_FORMATS
        ),
    ),
    claims=Claims(
        "Does every format reach its published accuracy at a tenth of the weights, counted?",
        scores=(ACCURACY,),
        facts=beside_published,
        answer=_ANSWER,
        stopping="One run of every row, ended by its time: the same for all formats.",
    ),
    needs="CIFAR-10 (binary) and the published ResNet-32",
    seconds=3600.0,
    quick=(DistilledEntry(DIGITS, 0.1, "svd", recipe=_MIXED, end_to_end=_MIXED_END_TO_END),),
    protocol=f"The start of cifar10-compression. {_TWICE}",
    figure=DotFigure(
        ("accuracy", "published"),
        panels=(Panel("A tenth of the weights", r"(.+)-10", baselines=_LINES),),
    ),
)

_PLANNED_FIGURE = DotFigure(
    ("accuracy", "published"),
    panels=(
        Panel(
            "Share of the weights kept; published: the best plain format",
            r"best-(\d+)",
            baselines=_LINES,
        ),
    ),
    labels={"10": "10 percent", "5": "5 percent"},
)

CIFAR10_COMPRESSION_PLANNED = Experiment(
    name="cifar10-compression-planned",
    title="Formats and ranks chosen together, two hours of one core: accuracy in percent",
    entries=(
        *BASELINES,
        *(KeptPlannedEntry(RESNET32, keep, _MIXED, _MIXED_END_TO_END) for keep in (0.1, 0.05)),
    ),
    claims=Claims(
        "How accurate is a network whose formats and ranks are chosen together?",
        scores=(ACCURACY,),
        facts=beside_best_plain,
        answer=_BEST_PLAIN,
        stopping="One run of every row, ended by its time.",
    ),
    needs="CIFAR-10 (binary) and the published ResNet-32",
    seconds=7200.0,
    quick=(KeptPlannedEntry(DIGITS, 0.1),),
    protocol=f"A plan of formats and ranks for the outputs on 1,024 images. {_TWICE}",
    figure=draw_beside_best_plain,
)

DIGITS_COMPRESSION = Experiment(
    name="digits-compression",
    title="The embedded digits network: accuracy in percent at counted shares of 13,824 weights",
    entries=(
        DenseEntry(DIGITS),
        *(
            UniformEntry(DIGITS, percentage / 100, format)
            for format in PUBLISHED
            for percentage in (5, 10, 20)
        ),
        PlannedEntry(DIGITS, 0.1),
    ),
    seconds=30.0,
    quick=_QUICK,
    protocol=_PROTOCOL,
    figure=_FIGURE,
)
