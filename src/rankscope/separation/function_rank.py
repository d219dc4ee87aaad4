"""How much two groups of inputs depend on each other in any torch function, on a sample."""

import math
from dataclasses import dataclass
from typing import SupportsFloat

import torch
from torch import Tensor

from rankscope.errors import FunctionError
from rankscope.separation.nearby.epsilon import EpsilonRank, epsilon_rank, require_radius
from rankscope.separation.nearby.metrics import MeanSquare, Metric
from rankscope.separation.numeric import NumericRank, numeric_rank
from rankscope.separation.pairing import (
    DEFAULTS,
    AnyFunction,
    FunctionOptions,
    Halves,
    pair_values,
)
from rankscope.separation.partition import Partition

ROOT_MEAN_SQUARE = MeanSquare()
_CLEAR_GAP = 10.0


@dataclass(frozen=True)
class CurvePoint:
    """What the first `samples` left and right halves alone say."""

    samples: int
    matrix_rank: int
    entanglement_entropy: float


@dataclass(frozen=True, eq=False)
class FunctionRank:
    """The spectrum of a function on a sample of left and right halves of its inputs.

    A judgement in floating point, no proof: if the values were exact, the separation rank of the
    function would be at least the numeric rank. Means and entropies are those of the sample.

    Args:
        partition: the split.
        samples: left halves, right halves.
        numeric: rank, spectrum, gap and entropy of the matrix of values.
        epsilon: the least rank within the radius asked for, on the sample, or None.
        curve: rank and entropy for nested samples, the smallest first.
    """

    partition: Partition
    samples: tuple[int, int]
    numeric: NumericRank
    epsilon: EpsilonRank | None
    curve: tuple[CurvePoint, ...]

    @property
    def method(self) -> str:
        """How `lower` was obtained: by numeric or by epsilon rank."""
        return "numeric" if self.epsilon is None else "epsilon"

    @property
    def lower(self) -> int:
        """The numeric rank, or the lower bound of the epsilon rank where one was asked for."""
        return self.numeric.value if self.epsilon is None else self.epsilon.lower

    @property
    def upper(self) -> int | None:
        """The upper bound of the epsilon rank on the sample; None for the numeric rank."""
        return None if self.epsilon is None else self.epsilon.upper

    @property
    def is_saturated(self) -> bool:
        """Whether the rank stayed below the number of samples, with a clear gap of the spectrum.

        A rank without a gap says where the tolerance cut a spectrum that goes on. A spectrum that
        falls fast enough has gaps everywhere: what lies below rounding is never seen.
        """
        return self.numeric.value < min(self.samples) and self.numeric.gap >= _CLEAR_GAP

    def __str__(self) -> str:
        size = f"{self.samples[0]} x {self.samples[1]} samples"
        text = (
            f"{self.numeric} on {size} ({self._state()}), "
            f"entanglement entropy {self.numeric.entanglement_entropy:.4f} nats"
        )
        return text if self.epsilon is None else f"{text}; {self.epsilon} on the sample"

    def _state(self) -> str:
        if self.is_saturated:
            return "saturated"
        if self.numeric.value < min(self.samples):
            return "undecided: the spectrum has no gap at the tolerance"
        return "not saturated: take more samples"

    def to_dict(self) -> dict[str, object]:
        """Plain data for JSON; an infinite gap is None."""
        gap = self.numeric.gap
        return {
            "lower": self.lower,
            "upper": self.upper,
            "method": self.method,
            "samples": list(self.samples),
            "partition": {"left": list(self.partition.left), "right": list(self.partition.right)},
            "numeric_rank": self.numeric.value,
            "tolerance": self.numeric.tolerance,
            "gap": gap if math.isfinite(gap) else None,
            "is_saturated": self.is_saturated,
            "entanglement_entropy": self.numeric.entanglement_entropy,
            "singular_values": self.numeric.singular_values.tolist(),
            "epsilon": None if self.epsilon is None else self.epsilon.to_dict(),
            "curve": [
                {
                    "samples": point.samples,
                    "rank": point.matrix_rank,
                    "entanglement_entropy": point.entanglement_entropy,
                }
                for point in self.curve
            ],
        }


def separation_rank(
    function: AnyFunction,
    partition: Partition,
    *,
    inputs: object,
    epsilon: SupportsFloat | None = None,
    metric: Metric = ROOT_MEAN_SQUARE,
    options: FunctionOptions = DEFAULTS,
) -> FunctionRank:
    """Measure how a function or a trained model joins two groups of its inputs.

    The left halves of all inputs are paired with the right halves of all, and the spectrum of
    the matrix of values is taken. Any torch function will do, a softmax transformer or an image
    classifier; for other layouts wrap it in a function that takes (batch, positions, …), such as
    one that puts patches together to an image.

    Args:
        function: takes (batch, positions, …) and gives (batch,) real values; see `output` of the
            options for models that give more. Models must be in evaluation mode.
        partition: positions on neither side are held at the background of the options.
        inputs: a tensor (count, positions, …) of real data or token numbers, or `normal_inputs`.
        epsilon: also bound the least rank within this distance.
        metric: the distance, over the sample. About all inputs it says nothing, except that a
            lower bound in `Supremum` holds for them too.
        options: how the function is evaluated.

    Example:
        >>> found = separation_rank(
        ...     lambda inputs: inputs.sum(dim=(1, 2)) ** 2,
        ...     Partition.left_right(4),
        ...     inputs=normal_inputs(20, 4, 3, seed=0),
        ... )
        >>> found.numeric.value, found.is_saturated, [point.matrix_rank for point in found.curve]
        (3, True, [1, 2, 3, 3, 3, 3])

    Raises:
        FunctionError: if the inputs are no sample, or the function gives no usable values.
        PartitionError: if the partition names a position that the inputs do not have.
        MetricError: if epsilon is negative or not finite.
        TooLargeError: if the matrix of values exceeds the memory limit.
    """
    sample = _checked_sample(inputs)
    partition.fixed(sample.shape[1])
    if epsilon is not None:
        require_radius(epsilon, who="separation_rank")
    halves = Halves(
        partition,
        sample[:, list(partition.left)],
        sample[:, list(partition.right)],
        _background(sample, options.background),
    )
    values = pair_values(function, halves, options)
    sizes = [*(2**k for k in range(len(sample).bit_length()) if 2**k < len(sample)), len(sample)]
    ranks = [
        numeric_rank(values.matrix[:size, :size], relative_tolerance=size * values.precision)
        for size in sizes
    ]
    return FunctionRank(
        partition=partition,
        samples=halves.shape,
        numeric=ranks[-1],
        epsilon=None if epsilon is None else epsilon_rank(values.matrix, epsilon, metric=metric),
        curve=tuple(
            CurvePoint(size, rank.value, rank.entanglement_entropy)
            for size, rank in zip(sizes, ranks, strict=True)
        ),
    )


def normal_inputs(count: int, positions: int, size: int, *, seed: int) -> Tensor:
    """Draw inputs (count, positions, size) of standard normal float64 numbers.

    Example:
        >>> normal_inputs(5, 4, 3, seed=0).shape
        torch.Size([5, 4, 3])
    """
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, positions, size, generator=generator, dtype=torch.float64)


def _checked_sample(inputs: object) -> Tensor:
    if not isinstance(inputs, Tensor):
        raise FunctionError(
            f"separation_rank needs inputs as a tensor (count, positions, …), got "
            f"{type(inputs).__name__}. Convert data with torch.as_tensor, or draw some with "
            f"normal_inputs."
        )
    if inputs.ndim < 2 or len(inputs) < 1:
        raise FunctionError(
            f"separation_rank needs inputs of shape (count, positions, …) with at least 1 sample, "
            f"got shape {tuple(inputs.shape)}. Draw some with normal_inputs if there is no data."
        )
    return inputs.detach()


def _background(sample: Tensor, given: Tensor | None) -> Tensor:
    if given is None:
        return sample[0]
    if given.shape != sample.shape[1:] or not torch.can_cast(given.dtype, sample.dtype):
        raise FunctionError(
            f"separation_rank: the background must be like one input, {sample.dtype} of shape "
            f"{tuple(sample.shape[1:])}, got {given.dtype} of shape {tuple(given.shape)}."
        )
    return given.to(sample)
