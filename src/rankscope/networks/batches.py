"""Data as tensors, cut into batches that follow from a seed, an epoch and a number alone.

Images may be changed at random when a batch is made of them, and are scaled.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from rankscope.errors import TrainingError
from rankscope.seeds import generator_of

# What is done to images when a batch is made of them: random changes, then fixed scaling.


class Augmentation(ABC):
    """A random change of a batch that keeps its labels. Subclasses are frozen."""

    @abstractmethod
    def __call__(self, inputs: Tensor, generator: torch.Generator) -> Tensor:
        """The changed batch, of the same shape and dtype."""


@dataclass(frozen=True)
class PadCropFlip(Augmentation):
    """Pad images by zeros, cut a window of the old size anywhere, flip half of them sideways.

    The usual augmentation of CIFAR-10; images are (batch, channels, rows, columns).

    Reference:
        He et al. (2015), section 4.2, arXiv:1512.03385.
    """

    padding: int = 4

    def __call__(self, inputs: Tensor, generator: torch.Generator) -> Tensor:
        count, _, rows, columns = inputs.shape
        padded = functional.pad(inputs, (self.padding,) * 4)
        shifts = torch.randint(2 * self.padding + 1, (2, count, 1), generator=generator)
        flips = torch.rand(count, 1, generator=generator) < 0.5
        down, across = shifts[0] + torch.arange(rows), torch.arange(columns)
        across = shifts[1] + torch.where(flips, across.flip(0), across)
        images = torch.arange(count)[:, None, None]
        windows = padded[images, :, down[:, :, None], across[:, None, :]]
        return windows.permute(0, 3, 1, 2)


@dataclass(frozen=True)
class Normalization:
    """Bytes 0..255 to numbers around 0: (byte / 255 - mean) / deviation, channel by channel."""

    means: tuple[float, ...]
    deviations: tuple[float, ...]

    def __call__(self, images: Tensor) -> Tensor:
        """(batch, channels, rows, columns) of bytes, to float32 with the channels last in memory.

        Convolutions on CPUs are up to twice as fast on that order.
        """
        means, deviations = (
            torch.tensor(values).reshape(-1, 1, 1) for values in (self.means, self.deviations)
        )
        scaled = images.contiguous(memory_format=torch.channels_last).float() / 255
        return (scaled - means) / deviations


# Of ImageNet: what the published CIFAR-10 ResNets were trained with.
IMAGENET_NORMALIZATION = Normalization((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


# Data as tensors, cut into batches that follow from a seed, an epoch and a number alone.
#
# No generator is carried from batch to batch, so that a run can go on anywhere, to the bit.


@dataclass(frozen=True, eq=False)
class Batch:
    """Some samples, and what is wanted of each (None where nothing is)."""

    inputs: Tensor
    targets: Tensor | None

    @property
    def num_samples(self) -> int:
        """Number of samples in the batch."""
        return len(self.inputs)

    def part(self, chosen: slice) -> "Batch":
        """Some of the samples."""
        return Batch(self.inputs[chosen], None if self.targets is None else self.targets[chosen])

    def to(self, device: torch.device) -> "Batch":
        """The same samples on a device."""
        targets = None if self.targets is None else self.targets.to(device)
        return Batch(self.inputs.to(device), targets)


@dataclass(frozen=True, eq=False)
class TensorData:
    """Samples along the first position of `inputs`, and of `targets` if there are any.

    Args:
        inputs: (count, ...), of any dtype; images as bytes take a quarter of the memory.
        targets: (count, ...).
        augment: random change of each batch, for training.
        normalize: fixed scaling of each batch, after that.

    Example:
        >>> data = TensorData(torch.arange(5.0)[:, None])
        >>> [batch.num_samples for batch in data.batches(2)]
        [2, 2, 1]

    Raises:
        TrainingError: if there is no sample, or another number of targets.
    """

    inputs: Tensor
    targets: Tensor | None = None
    augment: Augmentation | None = None
    normalize: Normalization | None = None

    def __post_init__(self) -> None:
        if self.inputs.ndim == 0 or len(self.inputs) == 0:
            raise TrainingError(
                f"TensorData: wanted at least one sample, got the shape {tuple(self.inputs.shape)}."
            )
        if self.targets is not None and self.targets.shape[:1] != self.inputs.shape[:1]:
            raise TrainingError(
                f"TensorData: there are {len(self.inputs):,} inputs, but the shape of the targets "
                f"is {tuple(self.targets.shape)}."
            )

    def __len__(self) -> int:
        return len(self.inputs)

    def num_batches(self, batch_size: int) -> int:
        """Number of batches of an epoch; the last may be smaller."""
        return -(-len(self) // batch_size)

    def epoch(self, number: int, batch_size: int, *, seed: int, start: int = 0) -> Iterator[Batch]:
        """The batches of an epoch from `start` on, each with an augmentation of its own."""
        order = torch.randperm(len(self), generator=generator_of("order", seed, number))
        for at, chosen in enumerate(torch.split(order, batch_size)[start:], start):
            random = generator_of("augmentation", seed, number, at) if self.augment else None
            yield self._make(chosen, random)

    def batches(self, batch_size: int) -> list[Batch]:
        """All samples once, in their own order, without augmentation."""
        return [self._make(chosen) for chosen in torch.split(torch.arange(len(self)), batch_size)]

    def head(self, count: int) -> "TensorData":
        """The first samples only."""
        targets = None if self.targets is None else self.targets[:count]
        return TensorData(self.inputs[:count], targets, self.augment, self.normalize)

    def some(self, chosen: Tensor) -> Batch:
        """The samples of these numbers, without augmentation."""
        return self._make(chosen)

    def _make(self, chosen: Tensor, generator: torch.Generator | None = None) -> Batch:
        inputs = self.inputs[chosen]
        if generator is not None and self.augment is not None:
            inputs = self.augment(inputs, generator)
        if self.normalize is not None:
            inputs = self.normalize(inputs)
        return Batch(inputs, None if self.targets is None else self.targets[chosen])
