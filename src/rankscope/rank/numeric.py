"""Ranks in floating point: of matrices, and of any torch function on data."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import SupportsFloat

import numpy
import torch
from numpy.typing import NDArray
from torch import Tensor

from rankscope.errors import FunctionError, MatrixError, TooLargeError
from rankscope.progress import Progress, Report, ignore
from rankscope.rank.epsilon import (
    EpsilonRank,
    Matrix,
    MeanSquare,
    Metric,
    epsilon_rank,
    require_radius,
)
from rankscope.rank.partition import Partition

# --- Rank by singular values: a judgement, with what is needed to doubt it ------------------------


@dataclass(frozen=True, eq=False)
class NumericRank:
    """The number of singular values above a tolerance.

    `singular_values` are descending; `tolerance` is absolute.
    """

    value: int
    singular_values: NDArray[numpy.float64]
    tolerance: float

    def __str__(self) -> str:
        return f"rank {self.value} (tolerance {self.tolerance:.1e}, gap {self.gap:.1e})"

    @property
    def gap(self) -> float:
        """Last singular value kept over the first one dropped; near 1 means undecided."""
        if self.value in (0, len(self.singular_values)):
            return math.inf
        kept, dropped = self.singular_values[self.value - 1], self.singular_values[self.value]
        return math.inf if dropped == 0 else float(kept / dropped)

    @property
    def entanglement_entropy(self) -> float:
        r"""How evenly the singular values share the square of the norm, in nats.

        .. math:: -\sum_i q_i \ln q_i, \qquad q_i = \sigma_i^2 / \sum_j \sigma_j^2

        It is 0 for a product and at most the logarithm of the rank; of the zero matrix it is 0.
        """
        if self.value == 0:
            return 0.0
        # Scaling by the largest keeps the squares from overflowing.
        squares = numpy.square(self.singular_values / self.singular_values[0])
        shares = squares[squares > 0] / squares.sum()
        return max(0.0, -float(numpy.sum(shares * numpy.log(shares))))


def numeric_rank(
    matrix: NDArray[numpy.generic], *, relative_tolerance: float | None = None
) -> NumericRank:
    """Count the singular values of a real matrix that stand out of rounding.

    Args:
        matrix: (rows, columns), floating point or integer; the spectrum is computed in float64.
        relative_tolerance: singular values up to this share of the largest count as zero; by
            default the precision the matrix was made in times its longer side.

    Example:
        >>> numeric_rank(numpy.outer([1.0, 2.0], [3.0, 4.0, 5.0])).value
        1

    Raises:
        MatrixError: if the array is no matrix of finite real numbers.
    """
    _require_real_matrix(matrix)
    if matrix.size == 0:
        return NumericRank(0, numpy.zeros(0), 0.0)
    if relative_tolerance is None:
        # The precision the data was made in decides, not the float64 we compute in.
        relative_tolerance = max(matrix.shape) * _precision(matrix)
    singular_values = numpy.linalg.svd(matrix.astype(numpy.float64), compute_uv=False)
    tolerance = relative_tolerance * float(singular_values[0])
    return NumericRank(int((singular_values > tolerance).sum()), singular_values, tolerance)


def _precision(matrix: NDArray[numpy.generic]) -> float:
    own = float(numpy.finfo(matrix.dtype.name).eps) if matrix.dtype.kind == "f" else 0.0
    return max(own, float(numpy.finfo(numpy.float64).eps))


def _require_real_matrix(matrix: NDArray[numpy.generic]) -> None:
    if matrix.ndim != 2:
        raise MatrixError(
            f"numeric_rank needs a matrix, got an array of order {matrix.ndim} "
            f"(shape {matrix.shape}). Matricize it first."
        )
    if matrix.dtype.kind not in "fiu":
        raise MatrixError(
            f"numeric_rank needs real numbers, floating point or integer, got {matrix.dtype}."
        )
    num_bad = int(matrix.size - numpy.isfinite(matrix).sum())
    if num_bad:
        raise MatrixError(f"numeric_rank: {num_bad} of {matrix.size} entries are not finite.")


# --- The values of any torch function on all pairs of left and right halves of its inputs ---------


# Takes a batch of inputs (batch, positions, …); models may give more than one value for each.
AnyFunction = Callable[[Tensor], object]
Output = int | Callable[..., Tensor]

_BYTES_EACH = 8
_ROUNDINGS = 1e4  # that two evaluations of one input in different batches may differ by


@dataclass(frozen=True, eq=False)
class FunctionOptions:
    """Options of the evaluation of a function.

    Args:
        output: which column of outputs (batch, columns), or a function that picks (batch,) real
            values from what the model returns; None if it gives (batch,) itself.
        background: (positions, …), the values at positions that stand on neither side; by
            default those of the first input.
        precision: the relative rounding error of the values; by default that of their type.
        batch_size: how many pairs the function is given at once.
        memory_limit: refuse a larger matrix of values, in bytes.
        report: called after each batch of pairs.
    """

    output: Output | None = None
    background: Tensor | None = None
    precision: float | None = None
    batch_size: int = 4096
    memory_limit: int = 2**31
    report: Report = ignore

    def __post_init__(self) -> None:
        if self.batch_size < 1:
            raise FunctionError(
                f"FunctionOptions: batch_size must be at least 1, got {self.batch_size}."
            )
        if self.precision is not None and not 0 < self.precision < 1:
            raise FunctionError(
                f"FunctionOptions: precision must lie between 0 and 1, got {self.precision}. "
                f"Leave it out to take that of the values' type."
            )


DEFAULTS = FunctionOptions()


@dataclass(frozen=True, eq=False)
class PairValues:
    """The matrix of values, left halves along the rows, and their relative rounding error."""

    matrix: Matrix
    precision: float


@dataclass(frozen=True, eq=False)
class Halves:
    """Left halves (rows, positions of the left side, …) and right halves to be paired.

    `background` (positions, …) holds the values everywhere else.
    """

    partition: Partition
    left: Tensor
    right: Tensor
    background: Tensor

    @property
    def shape(self) -> tuple[int, int]:
        """How many halves there are of each kind."""
        return len(self.left), len(self.right)

    def joined(self, start: int, stop: int) -> Tensor:
        """The whole inputs of a run of pairs, counted along the rows."""
        numbers = torch.arange(start, stop, device=self.left.device)
        inputs = self.background.expand(stop - start, *self.background.shape).clone()
        inputs[:, list(self.partition.left)] = self.left[numbers // len(self.right)]
        inputs[:, list(self.partition.right)] = self.right[numbers % len(self.right)]
        return inputs


def pair_values(
    function: AnyFunction, halves: Halves, options: FunctionOptions = DEFAULTS
) -> PairValues:
    """Evaluate a function on every left half joined with every right half.

    Raises:
        FunctionError: if its values have a wrong shape or type, are not finite, or are not a
            function of the input alone.
        TooLargeError: if the matrix of values exceeds the memory limit.
    """
    require_memory(halves.shape, options)
    total = math.prod(halves.shape)
    values = numpy.empty(total)
    precision = 0.0
    for start, stop, batch in _batches(function, halves, options):
        values[start:stop] = batch.to("cpu", torch.float64).numpy()
        precision = options.precision or _precision_pairing(batch)
        options.report(Progress("evaluating pairs", stop, total))
    return PairValues(values.reshape(halves.shape), precision)


def require_memory(shape: tuple[int, int], options: FunctionOptions) -> None:
    """Refuse a matrix of values that exceeds the memory limit.

    Raises:
        TooLargeError: with the largest sample that does fit.
    """
    limit = options.memory_limit // _BYTES_EACH
    if math.prod(shape) > limit:
        raise TooLargeError(
            what=f"The matrix of {shape[0]:,} x {shape[1]:,} values",
            entries=math.prod(shape),
            limit=limit,
            instead=f"At most {math.isqrt(limit):,} left halves with as many right halves fit in "
            f"memory_limit={options.memory_limit:,} bytes: take fewer, or raise it.",
        )


def _batches(
    function: AnyFunction, halves: Halves, options: FunctionOptions
) -> Iterator[tuple[int, int, Tensor]]:
    total = math.prod(halves.shape)
    for start in range(0, total, options.batch_size):
        stop = min(start + options.batch_size, total)
        inputs = halves.joined(start, stop)
        values = _evaluate(function, inputs, options.output)
        _require_finite(values, start, halves.shape)
        if start == 0:  # joined anew: the function may have changed its inputs
            _require_reproducible(function, halves.joined(start, stop), values, options.output)
        yield start, stop, values


def _evaluate(function: AnyFunction, inputs: Tensor, output: Output | None) -> Tensor:
    with torch.no_grad():
        given = function(inputs)
        values = output(given) if callable(output) else given
    if isinstance(output, int):
        values = _column(values, output)
    if not isinstance(values, Tensor):
        raise FunctionError(
            f"The function that is split must give a tensor, got {type(values).__name__}. "
            f"Pick the values with output=, such as output=lambda result: result.logits[:, 0]."
        )
    if values.shape != inputs.shape[:1]:
        raise FunctionError(
            f"The function that is split must give one value for each of {len(inputs)} inputs, "
            f"shape ({len(inputs)},), got shape {tuple(values.shape)} from inputs of shape "
            f"{tuple(inputs.shape)}. Choose one of several with output=, such as output=0."
        )
    if values.is_complex() or values.dtype == torch.bool:
        raise FunctionError(
            f"The function that is split must give real numbers, got {values.dtype}. "
            f"Take the real part or the modulus, or a logit instead of a decision."
        )
    return values.detach()


def _column(values: object, number: int) -> Tensor:
    if not isinstance(values, Tensor) or values.ndim != 2:
        got = tuple(values.shape) if isinstance(values, Tensor) else type(values).__name__
        raise FunctionError(
            f"output={number} chooses a column of values (batch, columns), got "
            f"{got}. Give output= a function of what the model returns."
        )
    if not -values.shape[1] <= number < values.shape[1]:
        raise FunctionError(
            f"output={number} is not one of the {values.shape[1]} columns "
            f"0..{values.shape[1] - 1} that the function gives."
        )
    return values[:, number]


def _require_finite(values: Tensor, start: int, shape: tuple[int, int]) -> None:
    bad = ~torch.isfinite(values)
    if bool(bad.any()):
        first = int(torch.nonzero(bad)[0])
        row, column = divmod(start + first, shape[1])
        raise FunctionError(
            f"The function that is split must be finite, got {values[first].item()} for left "
            f"half {row} with right half {column} ({int(bad.sum())} of {len(values)} values of "
            f"this batch are not). Leave such inputs out, or rescale the function."
        )


def _require_reproducible(
    function: AnyFunction, inputs: Tensor, values: Tensor, output: Output | None
) -> None:
    """Evaluate half of a batch again, in another order: chance and batch statistics show."""
    again = inputs.flip(0)[: (len(inputs) + 1) // 2]
    expected = values.flip(0)[: len(again)].double()
    differences = (_evaluate(function, again, output).double() - expected).abs()
    allowed = min(_ROUNDINGS * _precision_pairing(values), 0.05) * float(
        values.double().abs().max()
    )
    num_different = int((~(differences <= allowed)).sum())
    if num_different:
        raise FunctionError(
            f"The function that is split gave other values for {num_different} of {len(again)} "
            f"inputs evaluated again in another batch (by up to {float(differences.max()):.1e}). "
            f"Call .eval() on the model (dropout, batch normalization), and fix any randomness."
        )


def _precision_pairing(values: Tensor) -> float:
    kind = values.dtype if values.is_floating_point() else torch.float64
    return float(torch.finfo(kind).eps)


# --- How much two groups of inputs depend on each other in any torch function, on a sample --------


ROOT_MEAN_SQUARE = MeanSquare()
_CLEAR_GAP = 10.0


@dataclass(frozen=True)
class CurvePoint:
    """Ranks measured on the first `samples` left and right halves alone."""

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
        >>> measured = separation_rank(
        ...     lambda inputs: inputs.sum(dim=(1, 2)) ** 2,
        ...     Partition.left_right(4),
        ...     inputs=normal_inputs(20, 4, 3, seed=0),
        ... )
        >>> (
        ...     measured.numeric.value,
        ...     measured.is_saturated,
        ...     [point.matrix_rank for point in measured.curve],
        ... )
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
