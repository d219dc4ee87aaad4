"""Orthogonal kernels from paraunitary factors: parametrizations, strides, and factoring."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from rankscope.errors import LayerError

# --- Paraunitary filters from their factors -------------------------------------------------------


def cascade(rotation: Tensor, frames: Sequence[Tensor]) -> Tensor:
    """The taps (taps, groups, size, size) of Q with factors right, left, right, ….

    Args:
        rotation: Q, (groups, size, size).
        frames: orthonormal columns U, each (groups, size, columns): one less than there are taps.
    """
    taps = rotation[None]
    for number, frame in enumerate(frames):
        if number % 2 == 0:
            seen = (taps @ frame) @ frame.mT
            taps = _after(seen) + _before(taps - seen)
        else:
            seen = frame @ (frame.mT @ taps)
            taps = _after(taps - seen) + _before(seen)
    return taps


def separable(axes: Sequence[Tensor]) -> Tensor:
    """The kernel (groups, out, in, *taps) of one filter after the other, each along its own axis.

    One or two filters, each (taps, groups, out, in).
    """
    if len(axes) == 1:
        return axes[0].movedim(0, -1)
    first, second = axes
    return torch.einsum("hgrs,wgtr->gtshw", first, second)


def _before(taps: Tensor) -> Tensor:
    return torch.cat([torch.zeros_like(taps[:1]), taps])


def _after(taps: Tensor) -> Tensor:
    return torch.cat([taps, torch.zeros_like(taps[:1])])


# --- The completeness theorem at work: the factors of a given paraunitary filter ------------------


@dataclass(frozen=True, eq=False)
class ParaunitaryFactors:
    r"""A filter as :math:`V(z^{-1}; U_1) \cdots V(z^{-1}; U_m)\, Q`.

    Args:
        frames: the U, each (out, columns) with orthonormal columns; any number of them, also none.
        last: Q, (out, in) with orthonormal columns.
    """

    frames: tuple[Tensor, ...]
    last: Tensor

    def to_taps(self) -> Float[Tensor, "taps out in"]:
        """The filter again: one tap more than there are frames."""
        taps = self.last[None]
        for frame in reversed(self.frames):
            seen = frame @ (frame.mT @ taps)
            nothing = torch.zeros_like(taps[:1])
            taps = torch.cat([taps - seen, nothing]) + torch.cat([nothing, seen])
        return taps


def factor_paraunitary(
    taps: Float[Tensor, "taps out in"], *, tolerance: float = 1e-8
) -> ParaunitaryFactors:
    r"""Find the factors of a one-dimensional filter that preserves norms.

    The first and the last tap have orthogonal columns, :math:`h_0^T h_L = 0`. With U a basis of the
    columns of :math:`h_L`, the filter :math:`V(z; U) H(z)` has one tap less: its tap at -1 is
    :math:`U U^T h_0 = 0`, and the one at L is :math:`(I - U U^T) h_L = 0`.

    Args:
        taps: :math:`h_0, \dots, h_L`, with at least as many rows as columns.
        tolerance: largest deviation from norm preservation that counts as rounding; singular
            values of the last tap below it count as zero.

    Example:
        >>> haar = torch.tensor([[[1.0, 1.0], [1.0, 1.0]], [[-1.0, 1.0], [1.0, -1.0]]]) / 2
        >>> [frame.shape[1] for frame in factor_paraunitary(haar.double()).frames]
        [1]

    Raises:
        LayerError: if the filter does not preserve norms; the message says by how much.

    Reference:
        Vaidyanathan (1993), Multirate Systems and Filter Banks, chapter 14 (as recalled).
    """
    rest = taps.double()
    if len(rest) == 0 or rest.shape[1] < rest.shape[2]:
        raise LayerError(
            f"factor_paraunitary: at least one tap and as many rows as columns are needed, got "
            f"{tuple(taps.shape)}. A wide filter is factored by its taps transposed and reversed."
        )
    deviation = paraunitary_deviation(rest)
    if not deviation <= tolerance:
        raise LayerError(
            f"factor_paraunitary: the filter does not preserve norms: it is off by "
            f"{deviation:.3g}, over the tolerance of {tolerance:.3g}."
        )
    frames = []
    while len(rest) > 1:
        left, values, _ = torch.linalg.svd(rest[-1], full_matrices=False)
        frame = left[:, values > tolerance]
        seen = frame @ (frame.mT @ rest)
        rest = (rest - seen)[:-1] + seen[1:]
        frames.append(frame)
    return ParaunitaryFactors(tuple(frames), rest[0])


def paraunitary_deviation(taps: Float[Tensor, "taps out in"]) -> float:
    r"""The largest entry of :math:`\sum_n h_n^T h_{n+m} - \delta_{m0} I` over all shifts m."""
    count, _, size = taps.shape
    shifted = [
        torch.einsum("nok,noj->kj", taps[: count - shift], taps[shift:]) for shift in range(count)
    ]
    shifted[0] = shifted[0] - torch.eye(size, dtype=taps.dtype, device=taps.device)
    return float(torch.stack(shifted).abs().max())


# --- Where an orthogonal convolution starts -------------------------------------------------------


class Initialization(ABC):
    """A choice of the rotation, and whether factors come in pairs that cancel.

    If :math:`U_l = Q U_r`, the left factor undoes the right one and the cascade is Q alone: the
    convolution starts as a 1x1 one. An even number of taps leaves one factor without a partner.
    """

    is_paired: bool = True

    @abstractmethod
    def rotation(self, size: int, generator: torch.Generator | None) -> Tensor:
        """An orthogonal (size, size), in float64."""


@dataclass(frozen=True)
class Permutation(Initialization):
    """Start by exchanging channels at random."""

    def rotation(self, size: int, generator: torch.Generator | None) -> Tensor:
        identity = torch.eye(size, dtype=torch.float64)
        return identity[torch.randperm(size, generator=generator)]


@dataclass(frozen=True)
class Identity(Initialization):
    """Start by handing on every channel."""

    def rotation(self, size: int, generator: torch.Generator | None) -> Tensor:
        del generator
        return torch.eye(size, dtype=torch.float64)


@dataclass(frozen=True)
class Uniform(Initialization):
    """Start anywhere: every matrix uniform on its own, no factor undoes another."""

    is_paired = False

    def rotation(self, size: int, generator: torch.Generator | None) -> Tensor:
        return random_rotation(size, generator)


def random_rotation(size: int, generator: torch.Generator | None) -> Tensor:
    """A uniformly distributed orthogonal matrix in float64."""
    matrix = torch.empty(size, size, dtype=torch.float64)
    return nn.init.orthogonal_(matrix, generator=generator)


# --- Differentiable maps from free numbers to orthogonal matrices; zero goes to the identity ------


class Parametrization(ABC):
    """A smooth map from free numbers to orthogonal matrices."""

    @abstractmethod
    def rotation(self, free: Tensor) -> Tensor:
        """Rotations from (*batch, size, size); only entries below the diagonal count."""

    @abstractmethod
    def frame(self, free: Tensor) -> Tensor:
        """Orthonormal columns (*batch, rest + columns, columns) from (*batch, rest, columns)."""


@dataclass(frozen=True)
class Cayley(Parametrization):
    r"""The Cayley transform :math:`(I - S/2)^{-1} (I + S/2)`.

    A frame needs no more than an inverse as large as its number of columns: with
    :math:`M = I + X^T X / 4` it is :math:`(2 M^{-1} - I;\; X M^{-1})`.
    """

    def rotation(self, free: Tensor) -> Tensor:
        skew = _skew(free) / 2
        identity = torch.eye(skew.shape[-1], dtype=skew.dtype, device=skew.device)
        rotation: Tensor = torch.linalg.solve(identity - skew, identity + skew)
        return rotation

    def frame(self, free: Tensor) -> Tensor:
        identity = torch.eye(free.shape[-1], dtype=free.dtype, device=free.device)
        inverse = torch.linalg.inv(identity + free.mT @ free / 4)
        return torch.cat([2 * inverse - identity, free @ inverse], dim=-2)


@dataclass(frozen=True)
class BlockReflector(Cayley):
    r"""One reflection about half of the coordinates, :math:`I - 2 V (V^T V)^{-1} V^T`.

    With :math:`V = (I; X/2)`, and the signs of the first columns turned, this is the Cayley
    transform of those matrices that only join the two halves: :math:`n^2/4` free numbers instead of
    :math:`n(n-1)/2`, and an inverse half as large. Frames are those of `Cayley`, which are
    reflections already.

    Reference:
        Lai, Huang, Kung & Chen (2025), arXiv:2505.15174 (there with a matrix for each frequency).
    """

    def rotation(self, free: Tensor) -> Tensor:
        size = free.shape[-1]
        half = size // 2
        identity = torch.eye(size, dtype=free.dtype, device=free.device)
        start = identity[:half, :half].expand(*free.shape[:-2], half, half)
        basis = torch.cat([start, free[..., half:, :half] / 2], dim=-2)
        projection = basis @ torch.linalg.inv(basis.mT @ basis) @ basis.mT
        turned = torch.where(torch.arange(size, device=free.device) < half, -1.0, 1.0)
        rotation: Tensor = (identity - 2 * projection) * turned.to(free.dtype)
        return rotation


@dataclass(frozen=True)
class MatrixExponential(Parametrization):
    """The exponential of a skew-symmetric matrix: reaches every rotation."""

    def rotation(self, free: Tensor) -> Tensor:
        return torch.matrix_exp(_skew(free))

    def frame(self, free: Tensor) -> Tensor:
        rest, columns = free.shape[-2:]
        skew = torch.nn.functional.pad(free, (0, rest, columns, 0))
        exponential: Tensor = torch.matrix_exp(skew - skew.mT)
        return exponential[..., :columns]


@dataclass(frozen=True)
class Householder(Parametrization):
    """A product of reflections, one for each column."""

    def rotation(self, free: Tensor) -> Tensor:
        return _reflections(torch.tril(free, diagonal=-1))

    def frame(self, free: Tensor) -> Tensor:
        return _reflections(torch.nn.functional.pad(free, (0, 0, free.shape[-1], 0)))


def _skew(free: Tensor) -> Tensor:
    lower = torch.tril(free, diagonal=-1)
    return lower - lower.mT


def _reflections(below: Tensor) -> Tensor:
    """The product of the reflections along the columns with ones on the diagonal, times -1."""
    columns = below.shape[-1]
    identity = torch.eye(below.shape[-2], columns, dtype=below.dtype, device=below.device)
    scales = 2 / (1 + below.square().sum(dim=-2))
    # Each reflection turns its own basis vector round, so the product at 0 is minus the identity.
    product: Tensor = -torch.linalg.householder_product(below + identity, scales)
    return product


# --- The kernel of an orthogonal convolution as a module: free parameters in, kernel out ----------


@dataclass(frozen=True)
class SystemSize:
    """Size of a square paraunitary system.

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


# --- Kernels of any stride: by polyphase components, or one convolution and then a block transform


_CONVOLUTIONS = {1: functional.conv1d, 2: functional.conv2d}


class OrthogonalKernel(nn.Module):
    """The kernel (out_channels, in_channels / groups, *kernel) of an orthogonal convolution.

    With stride s, a convolution sees s inputs along an axis as channels of one: a system of taps
    kernel / s. If that is no whole number, a convolution of kernel - s + 1 taps and stride 1 is
    followed by an orthogonal map of blocks of s. In and out channels that differ are cut out of a
    square system: more out than in keeps norms, fewer keep those of the adjoint.

    Args:
        channels: in, out.
        kernel: taps along each axis.
        stride: along each axis.
        groups: independent systems.
        parametrization: from free numbers to orthogonal matrices.
        initialization: where it starts.
    """

    def __init__(
        self,
        channels: tuple[int, int],
        kernel: tuple[int, ...],
        stride: tuple[int, ...],
        groups: int,
        parametrization: Parametrization,
        initialization: Initialization,
    ) -> None:
        super().__init__()
        self.in_size, self.out_size = _group_sizes(channels, groups)
        self.kernel, self.stride, self.groups = kernel, stride, groups
        self.is_polyphase = all(k % s == 0 for k, s in zip(kernel, stride, strict=True))
        if self.is_polyphase:
            size = max(self.out_size, self.in_size * math.prod(stride))
            taps = tuple(k // s for k, s in zip(kernel, stride, strict=True))
            sizes = [SystemSize(size, taps, groups)]
        else:
            sizes = self._composed_sizes()
        self.systems = nn.ModuleList(
            ParaunitarySystem(size, parametrization, initialization) for size in sizes
        )

    def forward(self) -> Tensor:
        """The kernel, differentiable in the free parameters."""
        kernels = [system() for system in self.systems]
        return self._interleaved(kernels[0]) if self.is_polyphase else self._composed(*kernels)

    def _interleaved(self, kernel: Tensor) -> Tensor:
        phases, axes = math.prod(self.stride), len(self.stride)
        kernel = kernel[:, : self.out_size, : self.in_size * phases]
        taps = kernel.shape[3:]
        kernel = kernel.reshape(self.groups * self.out_size, self.in_size, *self.stride, *taps)
        order = [place for axis in range(axes) for place in (2 + axes + axis, 2 + axis)]
        return kernel.permute(0, 1, *order).reshape(len(kernel), self.in_size, *self.kernel)

    def _composed_sizes(self) -> list[SystemSize]:
        if any(k < s for k, s in zip(self.kernel, self.stride, strict=True)):
            raise LayerError(
                f"An orthogonal convolution of kernel {self.kernel} and stride {self.stride} skips "
                f"inputs, so that it cannot keep norms. Take a kernel of at least the stride."
            )
        phases = math.prod(self.stride)
        # Rounded down, so that the block transform never has fewer outputs than it must keep.
        self.middle_size = max(self.in_size, self.out_size // phases)
        taps = tuple(k - s + 1 for k, s in zip(self.kernel, self.stride, strict=True))
        block = max(self.out_size, self.middle_size * phases)
        ones = tuple(1 for _ in taps)
        return [
            SystemSize(self.middle_size, taps, self.groups),
            SystemSize(block, ones, self.groups),
        ]

    def _composed(self, first: Tensor, block: Tensor) -> Tensor:
        axes = len(self.stride)
        phases = math.prod(self.stride)
        second = block[:, : self.out_size, : self.middle_size * phases].reshape(
            self.groups * self.out_size, self.middle_size, *self.stride
        )
        # (in, groups * middle, *taps) as a batch of images, so that one convolution joins the two.
        images = first[:, :, : self.in_size].movedim(2, 0).flatten(1, 2)
        padding = tuple(s - 1 for s in self.stride)
        joined = _CONVOLUTIONS[axes](
            images, second.flip([*range(2, 2 + axes)]), padding=padding, groups=self.groups
        )
        return joined.transpose(0, 1)


def _group_sizes(channels: tuple[int, int], groups: int) -> tuple[int, int]:
    for name, size in zip(("in", "out"), channels, strict=True):
        if groups < 1 or size < 1 or size % groups != 0:
            raise LayerError(
                f"An orthogonal convolution needs {name}_channels that groups divide, "
                f"got {size} channels and {groups} groups."
            )
    return channels[0] // groups, channels[1] // groups


def unique_kernel(kernel: Tensor) -> Tensor:
    """Detached, contiguous and of its own memory."""
    return torch.clone(kernel.detach(), memory_format=torch.contiguous_format)
