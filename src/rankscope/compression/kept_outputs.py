"""What a stage is given, and what is wanted of it, computed once and kept in memory.

Fitting a stage runs the reference up to its end, and the compressed model up to its beginning, for
every sample that it sees. Neither changes meanwhile: where samples are seen several times, keeping
both is most of the time saved (of a ResNet-32, 2 of 3 parts).
"""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from rankscope.compression.stages import Stage, input_of_stage, output_of_stage
from rankscope.errors import CompressionError
from rankscope.modes import inference
from rankscope.training.batches import Batch, TensorData

_BATCH_SIZE = 128


def keep_outputs(
    networks: tuple[nn.Module, nn.Module],
    stage: Stage,
    data: TensorData,
    count: int,
    *,
    seed: int,
    is_first: bool,
) -> TensorData:
    """What the module of a stage is given, with what the reference's gives as targets.

    Args:
        networks: the reference and the compressed model.
        stage: of the compressed model.
        data: augmented as in its first epoch.
        count: of samples to keep.
        seed: of their order and augmentation.
        is_first: nothing comes before the stage: it is given the model's inputs.

    Raises:
        CompressionError: if `count` is below 1, or the stage cannot be run alone.
    """
    reference, compressed = networks
    if count < 1:
        raise CompressionError(f"keep_outputs: wanted at least 1 sample to keep, got {count}.")
    outside = stage.outside
    if outside and not is_first:
        raise CompressionError(
            f"The stage {stage.name!r} also trains {len(outside)} parameters that are not in its "
            f"module, such as {outside[0]!r}, so that it cannot be run alone; fit it without "
            "keeping, or name a module for them."
        )
    given, wanted = [], []
    with torch.no_grad(), inference(reference), inference(compressed):
        for batch in _first(data, count, seed):
            wanted.append(output_of_stage(reference, stage.name, batch.inputs))
            inputs = batch.inputs
            given.append(inputs if is_first else input_of_stage(compressed, stage.name, inputs))
    return TensorData(_joined(given), _joined(wanted))


def _first(data: TensorData, count: int, seed: int) -> Iterator[Batch]:
    left = min(count, len(data))
    for batch in data.epoch(0, _BATCH_SIZE, seed=seed):
        yield Batch(batch.inputs[:left], None)
        left -= batch.num_samples
        if left <= 0:
            return


def _joined(parts: list[Tensor]) -> Tensor:
    """One tensor in the memory order of the parts; they are freed as they are copied."""
    first = parts[0]
    count = sum(map(len, parts))
    channels_last = first.ndim == 4 and first.is_contiguous(memory_format=torch.channels_last)
    whole = torch.empty(
        (count, *first.shape[1:]),
        dtype=first.dtype,
        memory_format=torch.channels_last if channels_last else torch.contiguous_format,
    )
    start = 0
    while parts:
        part = parts.pop(0)
        whole[start : start + len(part)] = part
        start += len(part)
    return whole
