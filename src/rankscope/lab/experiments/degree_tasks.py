"""Tasks for networks of different degrees: polynomials, functions of few numbers, and images."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from rankscope.compression.training.loop import Loss, cross_entropy
from rankscope.errors import ExperimentError
from rankscope.lab.experiments.experiment import Row
from rankscope.networks.batches import Batch, TensorData
from rankscope.networks.datasets import load_data_set
from rankscope.progress import Progress, Report, ignore
from rankscope.rank.bounds.counting import total_degree_upper_bound
from rankscope.rank.measuring import measure_rank
from rankscope.rank.networks.degree import DegreePolynomial
from rankscope.rank.partition import Partition
from rankscope.rank.quadrature import Uniform
from rankscope.rank.verification import certify_rank, verify
from rankscope.seeds import seed_of

# Polynomials that one degree can represent and the next lower one cannot even come near.
#
# A target is a network of its degree, so that a network of that degree and width represents it. Its
# separation rank, certified at its own weights, exceeds what any network of the lower degree can
# have; and by Eckart and Young the singular values beyond that rank are an error which no such
# network can avoid.


_RATE = 0.03


@dataclass(frozen=True, eq=False)
class CertifiedTarget:
    """A polynomial with what is proved of it.

    Args:
        network: of mean square 1 on inputs uniform in [-1, 1].
        rank: its separation rank between the first and the second half of its inputs, at least.
        lower_rank: the largest one that a polynomial of the lower degree can have.
        least_error: the root mean square error of every function of that rank, at least, up to the
            rounding of float64.
    """

    network: DegreePolynomial
    rank: int
    lower_rank: int
    least_error: float

    def __call__(self, inputs: Tensor) -> Tensor:
        """Values (batch,) of inputs (batch, num_inputs)."""
        with torch.no_grad():
            values: Tensor = self.network(inputs.double()[..., None])
        return values.to(inputs)


@dataclass(frozen=True)
class TargetSearch:
    """Which target to look for: the one with the largest least error that some steps find.

    Args:
        degrees: of its layers.
        width: of its layers.
        num_inputs: half of them on each side.
        lower_degree: the total degree of the networks that shall fail.
        steps: of Adam on the share of the mean square that lies beyond their rank.
        seed: of its first weights.

    Raises:
        ExperimentError: if the inputs have no two halves.
    """

    degrees: tuple[int, ...]
    width: int
    num_inputs: int
    lower_degree: int
    steps: int = 150
    seed: int = 0

    def __post_init__(self) -> None:
        if self.num_inputs < 2 or self.num_inputs % 2:
            raise ExperimentError(
                f"TargetSearch: wanted an even number of inputs, got {self.num_inputs}."
            )

    @property
    def partition(self) -> Partition:
        """First against second half of the inputs."""
        return Partition.left_right(self.num_inputs)

    @property
    def lower_rank(self) -> int:
        """No polynomial of the lower degree has a larger separation rank."""
        left, right = len(self.partition.left), len(self.partition.right)
        bound = total_degree_upper_bound(
            num_left=left, num_right=right, degree=self.lower_degree
        ).value
        assert bound is not None, "the degrees of experiments are small"
        return bound

    def find(self, report: Report = ignore) -> CertifiedTarget:
        """Search, certify, and check the certificate.

        Raises:
            ExperimentError: if the rank that is proved does not exceed the lower one.
        """
        network = self._searched(report)
        weights = dict(network.named_parameters())
        measured = measure_rank(network, self.partition, weights=weights)
        verdict = verify(certify_rank(network, self.partition, measured, weights=weights))
        if not verdict.is_proved or verdict.lower <= self.lower_rank:
            raise ExperimentError(
                f"TargetSearch: wanted a target of rank above {self.lower_rank}, proved "
                f"{verdict.lower}. Use a higher degree or another seed than {self.seed}."
            )
        with torch.no_grad():
            values = torch.linalg.svdvals(self._kernel(network))
        least = math.sqrt(float(values[self.lower_rank :].square().sum()))
        return CertifiedTarget(network, verdict.lower, self.lower_rank, least)

    def _searched(self, report: Report) -> DegreePolynomial:
        generator = torch.Generator().manual_seed(seed_of("target", self.seed))
        network = DegreePolynomial(
            num_inputs=self.num_inputs,
            width=self.width,
            degrees=self.degrees,
            generator=generator,
        ).double()
        optimizer = torch.optim.Adam(network.parameters(), lr=_RATE)
        for step in range(self.steps):
            squares = torch.linalg.svdvals(self._kernel(network)).square()
            share = squares[self.lower_rank :].sum() / squares.sum()
            optimizer.zero_grad()
            torch.autograd.backward(-share.log())
            optimizer.step()
            report(Progress("searching a target", step + 1, self.steps))
        with torch.no_grad():
            scale = self._kernel(network).square().sum().sqrt()
            network.readout.div_(scale)
            network.constant.div_(scale)
        return network

    def _kernel(self, network: DegreePolynomial) -> Tensor:
        """Values on all pairs of Gauss points, by the roots of their weights.

        With one node more than the degree its singular values are those of the polynomial.
        """
        nodes, weights = (
            torch.from_numpy(array) for array in Uniform().rule(network.input_degree + 1)
        )
        half = self.num_inputs // 2
        points = torch.cartesian_prod(*[nodes] * half).reshape(-1, half)
        roots = torch.cartesian_prod(*[weights] * half).reshape(-1, half).prod(dim=1).sqrt()
        count = len(points)
        pairs = torch.cat([points.repeat_interleave(count, dim=0), points.repeat(count, 1)], dim=1)
        values: Tensor = network(pairs[..., None])
        return roots[:, None] * values.reshape(count, count) * roots


# What networks of different degrees are asked to learn: functions of few numbers, and images.


NUM_TEST = 4096


@dataclass(frozen=True, eq=False)
class TaskData:
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
    def task_data(self, data: Path | None, *, seed: int, report: Report = ignore) -> TaskData:
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
        """Number of inputs of the polynomial."""
        return self.search.num_inputs

    @property
    def num_outputs(self) -> int:
        """One."""
        return 1

    def task_data(self, data: Path | None, *, seed: int, report: Report = ignore) -> TaskData:
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
        """The given number of inputs."""
        return self.inputs

    @property
    def num_outputs(self) -> int:
        """One."""
        return 1

    def task_data(self, data: Path | None, *, seed: int, report: Report = ignore) -> TaskData:
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

    def task_data(self, data: Path | None, *, seed: int, report: Report = ignore) -> TaskData:
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
            result = model(test.inputs).argmax(dim=1)
            return 100 * float((result != test.targets).double().mean())

        return TaskData(train, test, self.num_outputs, cross_entropy, error, "percent wrong", {})

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
) -> TaskData:
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

    return TaskData(train, test, 1, squared_error, error, "relative error", facts)
