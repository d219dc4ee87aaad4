"""One row of a compression table: a network compressed, repaired and scored within its time."""

from abc import abstractmethod
from dataclasses import dataclass, replace

from torch import nn

from rankscope.errors import ExperimentError
from rankscope.experiments.comparison import compare
from rankscope.experiments.experiment import Entry, Row, Workplace
from rankscope.experiments.repairing import SOURCE_RECIPE, Protocol, Repair, repair
from rankscope.experiments.subject import Subject, score
from rankscope.experiments.uniform_compression import compress_uniformly
from rankscope.layers.formats.catalogue import FORMATS
from rankscope.progress import Progress
from rankscope.training.batches import TensorData
from rankscope.training.clock import working_seconds
from rankscope.training.recipe import Recipe


@dataclass(frozen=True)
class DenseEntry(Entry):
    """The uncompressed network, for comparison."""

    subject: Subject
    published: float | None = None

    @property
    def name(self) -> str:
        """It is the only one of its kind."""
        return "dense"

    def run(self, place: Workplace) -> Row:
        """Its accuracy."""
        began = working_seconds()
        model, data = self.subject.build(place.data), self.subject.load(place.data)
        return {
            "format": "dense",
            "published": self.published,
            "kept": compare(self.subject, model, model).kept,
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
        subject: what is compressed.
        keep: share of its convolutions' parameters, counted.
    """

    subject: Subject
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
        place: Workplace,
    ) -> Repair:
        """Train the compressed one (the second) in place, for so many seconds at most."""

    @abstractmethod
    def describe(self, compressed: nn.Module) -> Row:
        """Cells of the row beside the measured ones."""

    def run(self, place: Workplace) -> Row:
        """Counted parameters, error of the weights, accuracy before and after the repair."""
        began = working_seconds()
        place.report(Progress("decomposing", 0, 1))
        reference, data = self.subject.build(place.data), self.subject.load(place.data)
        compressed = self.compress(reference, data.train)
        found = compare(self.subject, reference, compressed)
        scoring_began = working_seconds()
        before = score(compressed, data.test)
        seconds = seconds_left(self.name, place, began, scoring_began)
        preparing = working_seconds() - began
        done = self.repair((reference, compressed), data.train, seconds, place)
        scoring_began = working_seconds()
        after = score(compressed, data.test)
        return {
            **self.describe(compressed),
            "kept": found.kept,
            "share": found.share,
            "weight error": found.error,
            "accuracy before": before,
            "accuracy": after,
            "samples": done.samples,
            "seconds": preparing + done.seconds + working_seconds() - scoring_began,
        }


@dataclass(frozen=True)
class UniformEntry(CompressionEntry):
    """Every convolution in one format at one rate, then repaired stage by stage.

    Args:
        subject: what is compressed.
        keep: share of its convolutions' parameters, counted.
        format: name of the format.
        published: accuracy in percent that the source reports at this nominal share.
        recipe: of the repair; its seconds are those of the workplace.
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
        """By the weights alone."""
        del data
        format = FORMATS[self.format]
        return compress_uniformly(self.subject, reference, format, self.keep, seed=self.seed)

    def repair(
        self,
        networks: tuple[nn.Module, nn.Module],
        data: TensorData,
        seconds: float,
        place: Workplace,
    ) -> Repair:
        """By the source's protocol."""
        recipe = replace(self.recipe, max_seconds=seconds)
        return repair(Protocol.SEQUENTIAL, self.subject, networks, data, recipe, place)

    def describe(self, compressed: nn.Module) -> Row:
        """The format, and what the source reports."""
        del compressed
        return {"format": self.format, "published": self.published}


def seconds_left(name: str, place: Workplace, began: float, scoring_began: float) -> float:
    """What an entry may still train for, so that it can be scored once more in time.

    Raises:
        ExperimentError: if nothing is left.
    """
    now = working_seconds()
    left = place.seconds - (now - began) - (now - scoring_began)
    if left <= 0:
        raise ExperimentError(
            f"{name}: of its {place.seconds:g} seconds, {now - began:.0f} were spent before "
            f"training could begin. Give it more."
        )
    return left
