"""Networks whose output is a polynomial: `nn.Module`s that also evaluate exactly modulo a prime.

`PolynomialNetwork` is written once in `compute`, for real numbers and for residues. `split` fixes
random weights and sample points from a seed and gives the `SplitFunction` that is measured and
certified; a subclass names its `split_class` where the two sides meet in less than all inputs.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy
import torch
from torch import Tensor, nn

from rankscope.architectures.arithmetic import Arithmetic, Modulo, Reals
from rankscope.architectures.pairs import (
    drawn_points,
    interpolation_modulo,
    unit_vector_points,
)
from rankscope.diagrams.network import Drawable
from rankscope.errors import PartitionError, SizeError
from rankscope.separation.measuring.draws import draw_residues
from rankscope.separation.measuring.split_function import Numbers, Residues, SplitFunction
from rankscope.separation.partition import Partition
from rankscope.theorem import LowerBound, UpperBound

Setting = (
    int
    | bool
    | tuple[int, ...]
    | tuple[tuple[int, ...], ...]
    | tuple[tuple[tuple[int, ...], ...], ...]
    | None
)
_PAIRS_AT_ONCE = 1 << 16


@dataclass(frozen=True)
class KnownBounds:
    """What theorems say of a network's separation rank; None where no theorem applies.

    Args:
        lower: for almost all weights.
        published: an upper bound, as published.
        count: our own upper bound, for all weights.
    """

    lower: LowerBound | None
    published: UpperBound | None
    count: UpperBound | None


class PolynomialNetwork(nn.Module, ABC):
    """A network with one scalar output, polynomial in its weights and its inputs.

    Attributes:
        family: its name on the command line and in certificates.
        num_positions: how many inputs there are to be split.
        input_size: every input is a vector of this size.
        num_templates: None if inputs are arbitrary vectors; otherwise the inputs of interest are
            the unit vectors, this many, and ranks are ranks of the grid tensor.
        default_partition: the split that theorems about this network speak of.
    """

    family: ClassVar[str]
    default_partition: ClassVar[str] = "interleaved"
    num_positions: int
    input_size: int
    num_templates: int | None = None

    @property
    @abstractmethod
    def settings(self) -> dict[str, Setting]:
        """The arguments that build this network again: plain data for certificates."""

    @property
    @abstractmethod
    def weight_degree(self) -> int:
        """A bound on the degree of the output in all the weights together."""

    @property
    @abstractmethod
    def input_degree(self) -> int:
        """A bound on the degree of the output in all the inputs together."""

    @abstractmethod
    def compute(self, numbers: Arithmetic, weights: Mapping[str, Tensor], inputs: Tensor) -> Tensor:
        """The outputs (batch,) for inputs (batch, num_positions, input_size)."""

    @abstractmethod
    def diagram(self) -> Drawable:
        """The network as a tensor diagram."""

    def upper_bound(self, partition: Partition) -> UpperBound | None:
        """The best proved bound for all weights, or None where there is no theorem."""
        del partition
        return None

    def lower_bound(self, partition: Partition) -> LowerBound | None:
        """The best bound for almost all weights, or None where there is no theorem."""
        del partition
        return None

    def known_bounds(self, partition: Partition) -> KnownBounds:
        """All that theory says without measuring; sizes are enough, so weights may be on `meta`."""
        self.require_covered(partition)
        return KnownBounds(self.lower_bound(partition), None, self.upper_bound(partition))

    def grade_degrees(self, partition: Partition) -> tuple[int, ...]:
        """The degrees in the inputs of the right side that occur, ascending.

        Ranks of the parts add up only if the output is homogeneous in all inputs together (a part
        of one degree on the right then has one degree on the left): x + xy has rank 1, not 2.
        Attention without positions has (0, 2, 4, …, 2C) if the output stands on the left. One
        degree means that there is nothing to separate; networks that are not homogeneous also
        give one, as `(0,)`.
        """
        del partition
        return (0,)

    def grade_upper_bounds(self, partition: Partition) -> tuple[int, ...] | None:
        """Proved upper bounds of the ranks of the graded parts, or None."""
        del partition
        return None

    def forward(self, inputs: Tensor) -> Tensor:
        """The outputs (batch,) in floating point.

        Raises:
            SizeError: if the inputs are not (batch, num_positions, input_size).
        """
        self.require_inputs(tuple(inputs.shape))
        return self.compute(Reals(), dict(self.named_parameters()), inputs)

    def draw_weights(self, seed: int, prime: int) -> dict[str, Residues]:
        """Random weights modulo a prime, the same for everyone with the same seed."""
        return {
            name: draw_residues(seed, f"weights/{name}", tuple(parameter.shape), prime)
            for name, parameter in self.named_parameters()
        }

    def evaluate_modulo(
        self, weights: Mapping[str, Residues], inputs: Residues, prime: int
    ) -> Residues:
        """The outputs (batch,) modulo a prime, by the equations of `compute`.

        Raises:
            SizeError: if the inputs are not (batch, num_positions, input_size).
        """
        self.require_inputs(inputs.shape)
        tensors = {name: torch.from_numpy(array) for name, array in weights.items()}
        outputs = self.compute(Modulo(prime), tensors, torch.from_numpy(inputs))
        return numpy.asarray(outputs.numpy())

    def split_class(self) -> Callable[..., SplitFunction]:
        """What evaluates this network on pairs of points, by the fastest exact way there is."""
        return PairwiseFunction

    def split(
        self,
        partition: Partition,
        *,
        seed: int,
        prime: int,
        weights: Mapping[str, Residues] | None = None,
    ) -> SplitFunction:
        """The output as a function of the two sides, evaluated by the network's `split_class`.

        Args:
            partition: must cover all positions.
            seed: draws the sample points, and the weights unless they are given.
            prime: below 2^31.
            weights: residues to use instead of random ones.
        """
        return self._split(self.split_class(), partition, (seed, prime), weights)

    def reference_split(
        self,
        partition: Partition,
        *,
        seed: int,
        prime: int,
        weights: Mapping[str, Residues] | None = None,
    ) -> SplitFunction:
        """The same function by the defining equations, pair by pair: slow, for checking."""
        return self._split(PairwiseFunction, partition, (seed, prime), weights)

    def _split(
        self,
        split_class: Callable[..., SplitFunction],
        partition: Partition,
        seed_and_prime: tuple[int, int],
        weights: Mapping[str, Residues] | None,
    ) -> SplitFunction:
        self.require_covered(partition)
        seed, prime = seed_and_prime
        chosen = self.draw_weights(seed, prime) if weights is None else dict(weights)
        return split_class(self, partition, seed=seed, prime=prime, weights=chosen)

    def require_inputs(self, shape: tuple[int, ...]) -> None:
        """Refuse inputs of another shape, parts of which would be silently left out.

        Raises:
            SizeError: if they have one.
        """
        if len(shape) != 3 or shape[1:] != (self.num_positions, self.input_size):
            raise SizeError(
                f"{type(self).__name__}: inputs must have shape "
                f"(batch, {self.num_positions}, {self.input_size}), got {shape}."
            )

    def require_covered(self, partition: Partition) -> None:
        """Refuse a partition that leaves a position out or names one too many.

        Raises:
            PartitionError: if it does.
        """
        if partition.positions != tuple(range(self.num_positions)):
            raise PartitionError(
                f"{type(self).__name__} has the positions 0..{self.num_positions - 1}, the "
                f"partition covers {partition.positions}. Put every position on a side."
            )


class PairwiseFunction(SplitFunction):
    """Evaluates the network once for each pair and each grade.

    Points of a side are drawn from the seed by their number. With templates they are the
    combinations of unit vectors; number n has the digits of (n · step) modulo their count, so
    that any run of numbers is spread over all combinations.
    """

    def __init__(
        self,
        network: PolynomialNetwork,
        partition: Partition,
        *,
        seed: int,
        prime: int,
        weights: Mapping[str, Residues],
    ) -> None:
        self.network = network
        self.partition = partition
        self.seed = seed
        self.prime = prime
        self.weights = dict(weights)
        self.degrees = network.grade_degrees(partition)
        self.num_grades = len(self.degrees)
        if network.num_templates is not None:
            self.num_points = (
                network.num_templates ** len(partition.left),
                network.num_templates ** len(partition.right),
            )
        if self.num_grades > 1:
            self.scales, self.interpolation = interpolation_modulo(self.degrees, prime)

    def values(self, rows: Numbers, columns: Numbers) -> Residues:
        return self._scaled_values(rows, columns, 1)

    def graded_values(self, rows: Numbers, columns: Numbers) -> Residues:
        if self.num_grades == 1:
            return self.values(rows, columns)[None]
        parts = numpy.zeros((self.num_grades, len(rows), len(columns)), dtype=numpy.int64)
        for scale, weights in zip(self.scales, self.interpolation.T, strict=True):
            values = self._scaled_values(rows, columns, scale)
            for grade, weight in enumerate(weights):
                parts[grade] = (parts[grade] + int(weight) * values) % self.prime
        return parts

    def points(self, side: str, numbers: Numbers) -> Residues:
        """The sample points (len(numbers), positions of the side, input_size)."""
        count = len(self.partition.left if side == "left" else self.partition.right)
        network = self.network
        if network.num_templates is not None:
            return unit_vector_points(numbers, count, network.num_templates)
        return drawn_points(self.seed, side, numbers, (count, network.input_size), self.prime)

    def _scaled_values(self, rows: Numbers, columns: Numbers, scale: int) -> Residues:
        left = self.points("left", rows)
        right = self.points("right", columns) * scale % self.prime
        found = numpy.empty((len(rows), len(columns)), dtype=numpy.int64)
        step = max(1, _PAIRS_AT_ONCE // max(1, len(columns)))
        for start in range(0, len(rows), step):
            part = left[start : start + step]
            found[start : start + step] = self.paired(part, right)
        return found

    def paired(self, left: Residues, right: Residues) -> Residues:
        """The matrix of outputs for points of both sides; a faster function overrides only this."""
        shape = (len(left), len(right), self.network.num_positions, self.network.input_size)
        inputs = numpy.empty(shape, dtype=numpy.int64)
        inputs[:, :, self.partition.left] = left[:, None]
        inputs[:, :, self.partition.right] = right[None, :]
        flat = inputs.reshape(-1, *shape[2:])
        outputs = self.network.evaluate_modulo(self.weights, flat, self.prime)
        return outputs.reshape(shape[:2])
