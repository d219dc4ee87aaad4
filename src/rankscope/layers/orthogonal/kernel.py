"""The kernel of an orthogonal convolution as a module: free parameters in, kernel out."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from rankscope.layers.orthogonal.initialization import Initialization, random_rotation
from rankscope.layers.orthogonal.parametrizations import Parametrization
from rankscope.layers.orthogonal.paraunitary import cascade, separable


@dataclass(frozen=True)
class SystemSize:
    """How large a square paraunitary system is.

    Args:
        channels: in and out alike.
        taps: along each axis.
        groups: independent systems.
    """

    channels: int
    taps: tuple[int, ...]
    groups: int = 1

    @property
    def frame_columns(self) -> int:
        """Half of the channels: the largest family of factors."""
        return self.channels // 2


class ParaunitarySystem(nn.Module):
    """Q and one frame for each further tap, as offsets from where they started.

    One rotation is enough for all axes: that of another axis can be moved through its factors.

    Args:
        size: of the system.
        parametrization: from free numbers to orthogonal matrices.
        initialization: where it starts; the free numbers all start at 0.
        generator: of the random matrices.
    """

    def __init__(
        self,
        size: SystemSize,
        parametrization: Parametrization,
        initialization: Initialization,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.size = size
        self.parametrization = parametrization
        channels, columns = size.channels, size.frame_columns
        dtype = torch.get_default_dtype()
        starts = [_start(size, initialization, generator) for _ in range(size.groups)]
        rotations, frames = zip(*starts, strict=True)
        self.register_buffer("rotation_start", torch.stack(rotations).to(dtype))
        self.register_buffer("frame_starts", torch.stack(frames, dim=1).to(dtype))
        self.rotation = nn.Parameter(torch.zeros(size.groups, channels, channels))
        num_frames = sum(size.taps) - len(size.taps)
        self.frames = nn.Parameter(
            torch.zeros(num_frames, size.groups, channels - columns, columns)
        )

    def forward(self) -> Tensor:
        """The kernel (groups, channels, channels, *taps)."""
        rotation_start, frame_starts = self._starts()
        rotation = rotation_start @ self.parametrization.rotation(wide(self.rotation))
        frames = frame_starts @ self.parametrization.frame(wide(self.frames))
        identity = torch.eye(self.size.channels, dtype=rotation.dtype, device=rotation.device)
        axes = []
        for axis, of_axis in enumerate(torch.split(frames, [taps - 1 for taps in self.size.taps])):
            first = rotation if axis == 0 else identity.expand_as(rotation)
            axes.append(cascade(first, tuple(of_axis)))
        return separable(axes)

    def _starts(self) -> tuple[Tensor, Tensor]:
        rotation, frames = self.get_buffer("rotation_start"), self.get_buffer("frame_starts")
        return orthogonal_start(rotation), orthogonal_start(frames)


def orthogonal_start(start: Tensor) -> Tensor:
    """A matrix that may have been rounded to float32 on its way to float64 (Newton-Schulz)."""
    if start.dtype != torch.float64:
        return start.float()
    identity = torch.eye(start.shape[-1], dtype=start.dtype, device=start.device)
    for _ in range(2):  # an error of 1e-7 becomes 1e-14, which is not yet rounding
        start = start @ (1.5 * identity - 0.5 * start.mT @ start)
    return start


def wide(tensor: Tensor) -> Tensor:
    """Short floats cannot hold an orthogonal matrix."""
    return tensor if tensor.dtype == torch.float64 else tensor.float()


def _start(
    size: SystemSize, initialization: Initialization, generator: torch.Generator | None
) -> tuple[Tensor, Tensor]:
    """The rotation, and for each frame an orthogonal matrix whose first columns it is."""
    rotation = initialization.rotation(size.channels, generator)
    frames: list[Tensor] = []
    for axis, taps in enumerate(size.taps):
        through = rotation if axis == 0 else torch.eye(size.channels, dtype=torch.float64)
        frames += _frames_of_axis(taps - 1, through, initialization, generator)
    if not frames:
        return rotation, torch.zeros(0, size.channels, size.channels, dtype=torch.float64)
    return rotation, torch.stack(frames)


def _frames_of_axis(
    count: int, through: Tensor, initialization: Initialization, generator: torch.Generator | None
) -> Sequence[Tensor]:
    frames: list[Tensor] = []
    for number in range(count):
        if initialization.is_paired and number % 2 == 1:
            frames.append(through @ frames[-1])  # a left factor that undoes the one before it
        else:
            frames.append(random_rotation(len(through), generator))
    return frames
