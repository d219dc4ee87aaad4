"""What networks of different degrees are asked to learn: functions of few numbers, and images."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from rankscope.errors import ExperimentError
from rankscope.experiments.degree_targets import TargetSearch
from rankscope.experiments.experiment import Row
from rankscope.progress import Report, ignore
from rankscope.seeds import seed_of
from rankscope.training.batches import Batch, TensorData
from rankscope.training.datasets import load_data_set
from rankscope.training.loop import Loss, cross_entropy

NUM_TEST = 4096


@dataclass(frozen=True, eq=False)
class Lesson:
    """A task with its data.

    Args:
        train: inputs (count, num_inputs) and what is wanted of each.
        test: the same, not trained on.
        num_outputs: of a network that learns it.
        loss: to train with.
        error: of a trained network, at inference, on the test set; lower is better.
        error_name: what that is.
        facts: what is proved of the task, for the row.
    """

    train: TensorData
    test: TensorData
    num_outputs: int
    loss: Loss
    error: Callable[[nn.Module], float]
    error_name: str
    facts: Row


class Task(ABC):
    """Something to learn. Subclasses are frozen dataclasses."""

    @property
    @abstractmethod
    def name(self) -> str:
        """Letters, digits and hyphens."""

    @property
    @abstractmethod
    def num_inputs(self) -> int:
        """Numbers that a network reads."""

    @property
    @abstractmethod
    def num_outputs(self) -> int:
        """Numbers that it gives."""

    @abstractmethod
    def lesson(self, data: Path | None, *, seed: int, report: Report = ignore) -> Lesson:
        """The data; the seed draws the training samples where there is something to draw."""


@dataclass(frozen=True)
class CertifiedTask(Task):
    """A polynomial out of reach of the lower degree; the same one for every seed."""

    search: TargetSearch
    num_samples: int = 16_384

    @property
    def name(self) -> str:
        """Its degree, the one that it is out of reach of, and how long it was searched for."""
        degree, lower = math.prod(self.search.degrees), self.search.lower_degree
        return f"polynomial-{degree}-above-{lower}-searched-{self.search.steps}"

    @property
    def num_inputs(self) -> int:
        """Those of the polynomial."""
        return self.search.num_inputs

    @property
    def num_outputs(self) -> int:
        """One."""
        return 1

    def lesson(self, data: Path | None, *, seed: int, report: Report = ignore) -> Lesson:
        """Search and certify the polynomial, then sample it."""
        del data
        target = self.search.find(report)
        facts: Row = {
            "rank of the target": target.rank,
            "rank of the lower degree": target.lower_rank,
            "least error of the lower degree": target.least_error,
        }
        return _regression(target, self.num_inputs, self.num_samples, seed, facts)


@dataclass(frozen=True)
class WaveTask(Task):
    """A sum of random plane waves: infinite rank, and all frequencies about as large.

    Args:
        inputs: how many numbers.
        frequency: standard deviation of each entry of a wave vector.
        num_samples: to train on.
        num_waves: in the sum; their phases and heights are drawn too, once for all seeds.
    """

    inputs: int = 4
    frequency: float = 3.0
    num_samples: int = 16_384
    num_waves: int = 64

    @property
    def name(self) -> str:
        """The frequency."""
        return f"waves-{self.frequency:g}"

    @property
    def num_inputs(self) -> int:
        """As given."""
        return self.inputs

    @property
    def num_outputs(self) -> int:
        """One."""
        return 1

    def lesson(self, data: Path | None, *, seed: int, report: Report = ignore) -> Lesson:
        """Sample the function."""
        del data, report
        generator = torch.Generator().manual_seed(seed_of("waves", self.num_waves))
        vectors = self.frequency * torch.randn(self.inputs, self.num_waves, generator=generator)
        phases = 2 * math.pi * torch.rand(self.num_waves, generator=generator)
        heights = torch.randn(self.num_waves, generator=generator) * math.sqrt(2 / self.num_waves)

        def function(inputs: Tensor) -> Tensor:
            return torch.cos(inputs @ vectors + phases) @ heights

        return _regression(function, self.inputs, self.num_samples, seed, {})


@dataclass(frozen=True)
class ImageTask(Task):
    """Images to be told apart, averaged over squares of pixels and standardized.

    Args:
        data_set: its name.
        side: of an image, in pixels.
        square: side of the squares.
        num_samples: training images, the first ones.
    """

    data_set: str
    side: int
    square: int
    num_samples: int

    @property
    def name(self) -> str:
        """The data set."""
        return self.data_set

    @property
    def num_inputs(self) -> int:
        """One for each square."""
        return (self.side // self.square) ** 2

    @property
    def num_outputs(self) -> int:
        """Ten classes."""
        return 10

    def lesson(self, data: Path | None, *, seed: int, report: Report = ignore) -> Lesson:
        """Read the images.

        Raises:
            ExperimentError: if there are fewer training images than asked for.
        """
        del seed, report
        images = load_data_set(self.data_set, data)
        if len(images.train) < self.num_samples:
            raise ExperimentError(
                f"{self.data_set} has {len(images.train):,} training images, but "
                f"{self.num_samples:,} are wanted."
            )
        (inputs, labels), (tests, answers) = (
            self._averaged(part) for part in (images.train.head(self.num_samples), images.test)
        )
        # One scale for all squares: those at the rim that are nearly always 0 stay near it.
        mean, spread = inputs.mean(dim=0), inputs.std()
        train = TensorData((inputs - mean) / spread, labels)
        test = TensorData((tests - mean) / spread, answers)

        def error(model: nn.Module) -> float:
            found = model(test.inputs).argmax(dim=1)
            return 100 * float((found != test.targets).double().mean())

        return Lesson(train, test, self.num_outputs, cross_entropy, error, "percent wrong", {})

    def _averaged(self, part: TensorData) -> tuple[Tensor, Tensor]:
        batch = part.batches(len(part))[0]
        assert batch.targets is not None, "images have labels"
        return nn.functional.avg_pool2d(batch.inputs, self.square).flatten(1), batch.targets


def squared_error(model: nn.Module, batch: Batch) -> Tensor:
    """The mean squared error of one output."""
    outputs: Tensor = model(batch.inputs)
    assert batch.targets is not None, "a function has values"
    return (outputs[:, 0] - batch.targets).square().mean()


def _regression(
    function: Callable[[Tensor], Tensor], num_inputs: int, num_samples: int, seed: int, facts: Row
) -> Lesson:
    """Values on inputs uniform in [-1, 1]; the test set is the same for every seed."""

    def sampled(count: int, *name: str | int) -> TensorData:
        generator = torch.Generator().manual_seed(seed_of(*name))
        inputs = 2 * torch.rand(count, num_inputs, generator=generator) - 1
        return TensorData(inputs, function(inputs))

    train, test = sampled(num_samples, "train", seed), sampled(NUM_TEST, "test")
    assert test.targets is not None, "sampled values"
    wanted, scale = test.targets, test.targets.std()

    def error(model: nn.Module) -> float:
        misses: Tensor = model(test.inputs)[:, 0] - wanted
        return float(misses.square().mean().sqrt() / scale)

    return Lesson(train, test, 1, squared_error, error, "relative error", facts)
