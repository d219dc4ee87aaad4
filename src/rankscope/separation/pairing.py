"""The values of any torch function on all pairs of left and right halves of its inputs."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy
import torch
from torch import Tensor

from rankscope.errors import FunctionError, TooLargeError
from rankscope.progress import Progress, Report, ignore
from rankscope.separation.nearby.metrics import Matrix
from rankscope.separation.partition import Partition

# Takes a batch of inputs (batch, positions, …); models may give more than one value for each.
AnyFunction = Callable[[Tensor], object]
Output = int | Callable[..., Tensor]

_BYTES_EACH = 8
_ROUNDINGS = 1e4  # that two evaluations of one input in different batches may differ by


@dataclass(frozen=True, eq=False)
class FunctionOptions:
    """How a function is evaluated.

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
        precision = options.precision or _precision(batch)
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
        values = _evaluated(function, inputs, options.output)
        _require_finite(values, start, halves.shape)
        if start == 0:  # joined anew: the function may have changed its inputs
            _require_reproducible(function, halves.joined(start, stop), values, options.output)
        yield start, stop, values


def _evaluated(function: AnyFunction, inputs: Tensor, output: Output | None) -> Tensor:
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
    differences = (_evaluated(function, again, output).double() - expected).abs()
    allowed = min(_ROUNDINGS * _precision(values), 0.05) * float(values.double().abs().max())
    num_different = int((~(differences <= allowed)).sum())
    if num_different:
        raise FunctionError(
            f"The function that is split gave other values for {num_different} of {len(again)} "
            f"inputs evaluated again in another batch (by up to {float(differences.max()):.1e}). "
            f"Call .eval() on the model (dropout, batch normalization), and fix any randomness."
        )


def _precision(values: Tensor) -> float:
    kind = values.dtype if values.is_floating_point() else torch.float64
    return float(torch.finfo(kind).eps)
