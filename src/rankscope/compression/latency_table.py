"""How long two models take on the same inputs, measured in pairs.

The clock of a shared machine wanders by more than the models differ, so that the two are called in
turn and the ratio is the median of those of the pairs, not the ratio of two runs.
"""

import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from rankscope.compression.scores import Batch, run
from rankscope.errors import CompressionError
from rankscope.modes import inference

BATCH_SIZES = (1, 64)
REPEATS = 9


@dataclass(frozen=True)
class Latency:
    """Seconds of one forward pass, dense and compressed.

    Args:
        batch_size: number of samples in the pass.
        dense_seconds: median over all pairs.
        compressed_seconds: median over all pairs.
        ratio: median of compressed / dense over all pairs; below 1 is faster than dense.
        repeats: number of pairs, after one that was not counted.
        threads: that PyTorch used.
    """

    batch_size: int
    dense_seconds: float
    compressed_seconds: float
    ratio: float
    repeats: int
    threads: int


def measure_latency(
    dense: nn.Module,
    compressed: nn.Module,
    example: Batch,
    *,
    batch_sizes: Sequence[int] = BATCH_SIZES,
    repeats: int = REPEATS,
) -> tuple[Latency, ...]:
    """Time two models side by side in inference mode, at several batch sizes.

    Args:
        dense: the model before.
        compressed: the model after.
        example: inputs with the batch first; its samples are repeated to fill each batch.
        batch_sizes: numbers of samples.
        repeats: pairs of calls at each size.

    Raises:
        CompressionError: if there is nothing to measure, or the example has no batch.
    """
    if repeats < 1 or any(size < 1 for size in batch_sizes):
        raise CompressionError(
            f"measure_latency: wanted at least 1 repeat of batches of at least 1 sample, got "
            f"{repeats} of {tuple(batch_sizes)}."
        )
    with torch.no_grad(), inference(dense), inference(compressed):
        return tuple(
            _latency((dense, compressed), resized(example, size), size, repeats)
            for size in batch_sizes
        )


def resized(example: Batch, batch_size: int) -> Batch:
    """The example's samples over and over, until there are so many.

    Example:
        >>> resized(torch.arange(3), 5)
        tensor([0, 1, 2, 0, 1])

    Raises:
        CompressionError: if a tensor of the example has no samples.
    """
    if isinstance(example, Mapping):
        return {name: _resized(value, batch_size) for name, value in example.items()}
    if isinstance(example, tuple):
        return tuple(_resized(value, batch_size) for value in example)
    return _resized_tensor(example, batch_size)


def _resized(value: object, batch_size: int) -> object:
    return _resized_tensor(value, batch_size) if isinstance(value, Tensor) else value


def _resized_tensor(value: Tensor, batch_size: int) -> Tensor:
    if value.ndim == 0 or len(value) == 0:
        raise CompressionError(
            f"An example must hold samples along its first position, got the shape "
            f"{tuple(value.shape)}."
        )
    return value[torch.arange(batch_size) % len(value)]


def _latency(
    models: tuple[nn.Module, nn.Module], example: Batch, batch_size: int, repeats: int
) -> Latency:
    pairs = [[_seconds(model, example) for model in models] for _ in range(1 + repeats)][1:]
    dense, compressed = zip(*pairs, strict=True)
    return Latency(
        batch_size,
        statistics.median(dense),
        statistics.median(compressed),
        statistics.median(after / before for before, after in pairs),
        repeats,
        torch.get_num_threads(),
    )


def _seconds(model: nn.Module, example: Batch) -> float:
    start = time.perf_counter()
    run(model, example)
    return time.perf_counter() - start
