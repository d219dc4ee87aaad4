"""Norm-preserving activations, pooling, linear layers and skips for 1-Lipschitz networks."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from rankscope.errors import LayerError
from rankscope.robust.orthogonal import KeptWeight, built_in_full_precision
from rankscope.robust.paraunitary import (
    Cayley,
    Parametrization,
    orthogonal_start,
    random_rotation,
    wide,
)

# --- A last layer whose classes all have a direction of length 1 ----------------------------------


class NormalizedLinear(nn.Module):
    r"""A linear map whose rows have length 1: each output alone has Lipschitz constant 1.

    The outputs together do not: their constant is the largest singular value of the weight,
    between 1 and the root of their number. A class y is safe within
    :math:`\min_i (f_y - f_i) / \lVert w_y - w_i \rVert` of the features.

    Args:
        in_features: length of an input.
        out_features: length of an output.
        bias: whether there is one; it starts at 0.

    Raises:
        LayerError: if a size is below 1.

    Reference:
        Singla, Singla & Feizi (2022), arXiv:2108.04062.
    """

    def __init__(self, in_features: int, out_features: int, bias: bool = True) -> None:
        super().__init__()
        if min(in_features, out_features) < 1:
            raise LayerError(
                f"NormalizedLinear: both sizes must be at least 1, got {in_features} inputs and "
                f"{out_features} outputs."
            )
        self.in_features, self.out_features = in_features, out_features
        self.directions = nn.Parameter(torch.randn(out_features, in_features))
        self.bias = nn.Parameter(torch.zeros(out_features)) if bias else None

    def weight(self) -> Tensor:
        """(out_features, in_features), as `nn.Linear` would hold it."""
        return functional.normalize(self.directions, dim=1, eps=0.0)

    @property
    def lipschitz_constant(self) -> float:
        """Lipschitz constant of all outputs together: the largest singular value, in float64."""
        return float(torch.linalg.matrix_norm(self.weight().detach().double(), 2))

    def forward(self, inputs: Tensor) -> Tensor:
        """(…, in_features) to (…, out_features)."""
        return functional.linear(inputs, self.weight(), self.bias)

    def extra_repr(self) -> str:
        """Settings shown in `repr`."""
        return f"{self.in_features}, {self.out_features}, bias={self.bias is not None}"


# --- Linear maps that preserve norms --------------------------------------------------------------


class OrthogonalLinear(nn.Module):
    r"""A linear map with orthonormal columns (or rows, if there are fewer outputs than inputs).

    The weight is :math:`B\, F(X)\, R(S)`: a fixed random rotation B, a frame and a rotation within
    it, both the identity at the start. Lipschitz constant 1. With at least as many outputs as
    inputs norms are kept, and otherwise those of gradients.

    Args:
        in_features: length of an input.
        out_features: length of an output.
        bias: whether there is one; it starts at 0.
        parametrization: from free numbers to orthogonal matrices.
        generator: of the rotation that it starts from.

    Example:
        >>> layer, inputs = OrthogonalLinear(3, 5, bias=False), torch.randn(2, 3)
        >>> bool(torch.isclose(layer(inputs).norm(), inputs.norm()))
        True

    Raises:
        LayerError: if a size is below 1.
    """

    start: Tensor

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        *,
        parametrization: Parametrization | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        if min(in_features, out_features) < 1:
            raise LayerError(
                f"OrthogonalLinear: both sizes must be at least 1, got {in_features} inputs and "
                f"{out_features} outputs."
            )
        self.in_features, self.out_features = in_features, out_features
        self.parametrization = Cayley() if parametrization is None else parametrization
        size, columns = max(in_features, out_features), min(in_features, out_features)
        start = random_rotation(size, generator).to(torch.get_default_dtype())
        self.register_buffer("start", start)
        self.frame = nn.Parameter(torch.zeros(size - columns, columns))
        self.rotation = nn.Parameter(torch.zeros(columns, columns))
        self.bias = nn.Parameter(torch.zeros(out_features)) if bias else None
        self._kept = KeptWeight()

    def weight(self) -> Tensor:
        """(out_features, in_features), as `nn.Linear` would hold it; kept in evaluation."""
        if self.training or torch.is_grad_enabled() or torch.compiler.is_compiling():
            return self._built()
        return self._kept.get((self.start, self.frame, self.rotation), self._built)

    def forward(self, inputs: Tensor) -> Tensor:
        """(…, in_features) to (…, out_features)."""
        bias = None if self.bias is None else self.bias.to(inputs.dtype)
        return functional.linear(inputs, self.weight().to(inputs.dtype), bias)

    def to_linear(self) -> nn.Linear:
        """A plain linear layer with the weight as it is now."""
        weight = self.weight().detach().clone()
        plain = nn.Linear(self.in_features, self.out_features, bias=self.bias is not None)
        plain.to(weight)
        with torch.no_grad():
            plain.weight.copy_(weight)
            if self.bias is not None:
                plain.bias.copy_(self.bias)
        return plain

    def extra_repr(self) -> str:
        """Settings shown in `repr`."""
        return f"{self.in_features}, {self.out_features}, bias={self.bias is not None}"

    def _built(self) -> Tensor:
        return built_in_full_precision(self._product, self.start.device)

    def _product(self) -> Tensor:
        rotation = self.parametrization.rotation(wide(self.rotation))
        tall = orthogonal_start(self.start) @ self.parametrization.frame(wide(self.frame))
        tall = tall @ rotation
        return tall if self.out_features >= self.in_features else tall.mT


# --- Pooling scaled so that it is a projection ----------------------------------------------------


class NormPreservingPool(nn.Module):
    """The sum of each block of pixels over the root of their number: s² of them over s.

    The rows of this map are orthonormal: its Lipschitz constant is 1, gradients keep their norms,
    and so do images that are constant on blocks. (An average is 1 / s of it.)

    Args:
        size: of a block, rows and columns; one number for both.

    Example:
        >>> import torch
        >>> NormPreservingPool(2)(torch.ones(1, 1, 2, 2))
        tensor([[[[2.]]]])

    Raises:
        LayerError: if blocks do not tile the images.
    """

    def __init__(self, size: int | Sequence[int]) -> None:
        super().__init__()
        sizes = (size, size) if isinstance(size, int) else tuple(size)
        if len(sizes) != 2 or min(sizes) < 1:
            raise LayerError(f"NormPreservingPool: a block has 2 sizes of at least 1, got {sizes}.")
        self.size = sizes

    def forward(self, inputs: Tensor) -> Tensor:
        """(batch, channels, rows, columns) to the same with fewer rows and columns."""
        shape = tuple(inputs.shape)
        if len(shape) != 4 or shape[2] % self.size[0] or shape[3] % self.size[1]:
            raise LayerError(
                f"NormPreservingPool: images (batch, channels, rows, columns) must be tiled by "
                f"blocks of {self.size}, got the shape {shape}."
            )
        return functional.avg_pool2d(inputs, self.size) * math.sqrt(math.prod(self.size))

    def extra_repr(self) -> str:
        """Settings shown in `repr`."""
        return f"{self.size}"


# --- Pixels to what a network sees, as a part of the network, so that its constant counts ---------


class InputScaling(nn.Module):
    """(pixel - mean) / deviation, channel by channel; Lipschitz constant 1 / smallest deviation.

    Args:
        means: of each channel.
        deviations: of each channel; None only moves images, which keeps distances.

    Example:
        >>> InputScaling((0.5, 0.5), (0.25, 0.5)).lipschitz_constant
        4.0

    Raises:
        LayerError: if there are other deviations than means, or one is not above 0; or images
            have other channels.
    """

    means: Tensor
    deviations: Tensor

    def __init__(self, means: Sequence[float], deviations: Sequence[float] | None = None) -> None:
        super().__init__()
        scales = [1.0] * len(means) if deviations is None else [*deviations]
        if len(scales) != len(means) or min(scales, default=0.0) <= 0:
            raise LayerError(
                f"InputScaling: wanted one deviation above 0 for each of {len(means)} means, got "
                f"{tuple(scales)}."
            )
        self.register_buffer("means", torch.tensor(means).reshape(-1, 1, 1))
        self.register_buffer("deviations", torch.tensor(scales).reshape(-1, 1, 1))

    @property
    def lipschitz_constant(self) -> float:
        """Lipschitz constant at the present parameters."""
        return 1 / float(self.deviations.min())

    def forward(self, images: Tensor) -> Tensor:
        """(batch, channels, rows, columns) to the same."""
        if images.ndim != 4 or images.shape[1] != len(self.means):
            # One channel would be taken for several, without a word.
            raise LayerError(
                f"InputScaling: wanted images (batch, {len(self.means)}, rows, columns), got the "
                f"shape {tuple(images.shape)}."
            )
        return (images - self.means) / self.deviations


# --- Activations that sort: outputs are the inputs in another order, so norms and gradients stay


class MaxMin(nn.Module):
    """The larger of two channels, then the smaller; channel c is paired with c + channels / 2.

    Lipschitz constant 1. Each output is one of the inputs, also where the two are equal, so that
    gradients keep their norms everywhere.

    Example:
        >>> MaxMin()(torch.tensor([[1.0, 5.0, 2.0, 4.0]]))
        tensor([[2., 5., 1., 4.]])

    Raises:
        LayerError: if the number of channels is odd.

    Reference:
        Anil, Lucas & Grosse (2019), arXiv:1811.05381.
    """

    def forward(self, inputs: Tensor) -> Tensor:
        """(batch, channels, …) to the same."""
        first, second = halves(type(self).__name__, inputs)
        # Not torch.maximum, which halves the gradients of equal entries, such as dark pixels; and
        # not torch.where, which takes three times as long. With weights 0 and 1, lerp is exact.
        is_larger = (first >= second).to(inputs.dtype)
        ordered = torch.lerp(second, first, is_larger), torch.lerp(first, second, is_larger)
        return torch.cat(ordered, dim=1)


class GroupSort(nn.Module):
    """Channels sorted in groups, the largest first; groups of 2 are `MaxMin`.

    Channel c is in a group with c + n, c + 2n, …, for n = channels / group_size. Lipschitz constant
    1: sorting never moves two vectors apart, and each output is one of the inputs.

    Args:
        group_size: how many channels are sorted together.

    Example:
        >>> GroupSort(4)(torch.tensor([[1.0, 5.0, 2.0, 4.0]]))
        tensor([[5., 4., 2., 1.]])

    Raises:
        LayerError: if the group size does not divide the number of channels.

    Reference:
        Anil, Lucas & Grosse (2019), arXiv:1811.05381.
    """

    def __init__(self, group_size: int) -> None:
        super().__init__()
        if group_size < 1:
            raise LayerError(f"GroupSort: a group holds at least 1 channel, got {group_size}.")
        self.group_size = group_size

    def forward(self, inputs: Tensor) -> Tensor:
        """(batch, channels, …) to the same."""
        channels = inputs.shape[1] if inputs.ndim > 1 else 0
        if channels == 0 or channels % self.group_size:
            raise LayerError(
                f"GroupSort: groups of {self.group_size} must divide the channels, got inputs of "
                f"shape {tuple(inputs.shape)}."
            )
        sizes = (self.group_size, channels // self.group_size)
        groups = inputs.reshape(inputs.shape[0], *sizes, *inputs.shape[2:])
        return torch.sort(groups, dim=1, descending=True, stable=True).values.flatten(1, 2)

    def extra_repr(self) -> str:
        """Settings shown in `repr`."""
        return f"{self.group_size}"


class BetaAbs(nn.Module):
    r"""Absolute values of the first channels, a share beta of them; the others as they are.

    Lipschitz constant 1. Every entry keeps its size, and gradients keep their norms but at 0, where
    torch has 0 for the derivative. With beta = 1/2 and rotations by 45 degrees before and after, of
    each pair of channels c and c + channels / 2, it is `MaxMin`, so that orthogonal layers around
    either express the same.

    Args:
        beta: above 0, at most 1; the number of channels is rounded down.

    Example:
        >>> BetaAbs(0.5)(torch.tensor([[-1.0, 5.0, -2.0, 4.0]]))
        tensor([[ 1.,  5., -2.,  4.]])

    Raises:
        LayerError: if beta is not in that range, or inputs have too few channels for it.

    Reference:
        Hu, Hu & Fredrikson (2026), arXiv:2601.18513 (as recalled from its abstract and summaries).
    """

    def __init__(self, beta: float = 0.5) -> None:
        super().__init__()
        if not 0 < beta <= 1:
            raise LayerError(f"BetaAbs: the share must be above 0 and at most 1, got {beta}.")
        self.beta = beta

    def forward(self, inputs: Tensor) -> Tensor:
        """(batch, channels, …) to the same."""
        channels = inputs.shape[1] if inputs.ndim > 1 else 0
        count = int(self.beta * channels)
        if count == 0:
            raise LayerError(
                f"BetaAbs: a share of {self.beta} is no channel of inputs of shape "
                f"{tuple(inputs.shape)}."
            )
        return torch.cat([inputs[:, :count].abs(), inputs[:, count:]], dim=1)

    def extra_repr(self) -> str:
        """Settings shown in `repr`."""
        return f"{self.beta}"


def halves(who: str, inputs: Tensor) -> tuple[Tensor, Tensor]:
    """The first and the second half of the channels.

    Raises:
        LayerError: if their number is odd.
    """
    channels = inputs.shape[1] if inputs.ndim > 1 else 0
    if channels == 0 or channels % 2:
        raise LayerError(
            f"{who}: channels are taken in two halves, so their number must be even, got inputs of "
            f"shape {tuple(inputs.shape)}."
        )
    first, second = inputs.chunk(2, dim=1)
    return first, second


# --- The Householder activation: pairs of channels, reflected where they lie behind a line --------


class HouseholderActivation(nn.Module):
    r"""Reflect each pair of channels (a, b) into one half of its plane, given by a trained angle.

    .. math:: (a, b) \mapsto \begin{cases} (a, b) & a \sin(\theta/2) \ge b \cos(\theta/2) \\
              (a \cos\theta + b \sin\theta,\; a \sin\theta - b \cos\theta) & \text{otherwise}
              \end{cases}

    Channel c is paired with c + channels / 2. The reflection leaves the line itself in place, so
    the map is continuous; it keeps norms and gradients, and its Lipschitz constant is 1. All
    angles start at a right angle, which is `MaxMin`.

    Args:
        channels: an even number.

    Raises:
        LayerError: if the channels are odd, or inputs have others.

    Reference:
        Singla, Singla & Feizi (2022), arXiv:2108.04062.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        if channels < 2 or channels % 2:
            raise LayerError(
                f"HouseholderActivation: channels are taken in pairs, so their number must be even "
                f"and positive, got {channels}."
            )
        self.channels = channels
        self.angles = nn.Parameter(torch.full((channels // 2,), math.pi / 2))

    def forward(self, inputs: Tensor) -> Tensor:
        """(batch, channels, …) to the same."""
        first, second = halves(type(self).__name__, inputs)
        if inputs.shape[1] != self.channels:
            raise LayerError(
                f"HouseholderActivation: wanted {self.channels} channels, got inputs of shape "
                f"{tuple(inputs.shape)}."
            )
        angles = self.angles.view(-1, *[1] * (inputs.ndim - 2))
        stays = first * torch.sin(angles / 2) >= second * torch.cos(angles / 2)
        cosine, sine = torch.cos(angles), torch.sin(angles)
        reflected = (first * cosine + second * sine, first * sine - second * cosine)
        return torch.cat(
            [
                torch.where(stays, first, reflected[0]),
                torch.where(stays, second, reflected[1]),
            ],
            dim=1,
        )

    def extra_repr(self) -> str:
        """Settings shown in `repr`."""
        return f"{self.channels}"


# --- Skips that do not lengthen: a mean of two paths, or two paths side by side -------------------


class ConvexSkip(nn.Module):
    r"""A trained mean of two paths, :math:`\sigma(a)\, S(x) + (1 - \sigma(a))\, F(x)`.

    If neither path stretches, the mean does not: Lipschitz constant
    :math:`\sigma(a) L_S + (1 - \sigma(a)) L_F`. It does not preserve norms, as the paths may
    cancel. The mean starts in the middle, a = 0.

    Args:
        inner: F.
        shortcut: S; None for the input itself.

    Example:
        >>> ConvexSkip(nn.Flatten())(torch.tensor([[2.0, 3.0]]))
        tensor([[2., 3.]], grad_fn=<AddBackward0>)

    Raises:
        LayerError: if the outputs of the paths differ in shape.
    """

    def __init__(self, inner: nn.Module, shortcut: nn.Module | None = None) -> None:
        super().__init__()
        self.inner = inner
        self.shortcut = nn.Identity() if shortcut is None else shortcut
        self.balance = nn.Parameter(torch.zeros(()))

    def share(self) -> Tensor:
        """How much of the shortcut is in the mean: the sigmoid of the balance."""
        return torch.sigmoid(self.balance)

    def forward(self, inputs: Tensor) -> Tensor:
        """The mean of both paths."""
        kept, changed = self.shortcut(inputs), self.inner(inputs)
        if kept.shape != changed.shape:
            raise LayerError(
                f"ConvexSkip: the shortcut gives the shape {tuple(kept.shape)}, the other path "
                f"{tuple(changed.shape)}; give it a shortcut to the same."
            )
        share = self.share()
        mean: Tensor = share * kept + (1 - share) * changed
        return mean


class ConcatenativeSkip(nn.Module):
    """Half of the channels as they are beside the changed other half, then shuffled.

    Channels c and c + channels / 2 become neighbours, so that two such skips in a row change
    everything. It is orthogonal if the inner map is, and its Lipschitz constant is the larger of 1
    and that of the inner map.

    Args:
        inner: changes the second half; keeps its shape.

    Example:
        >>> ConcatenativeSkip(nn.Flatten())(torch.tensor([[1.0, 2.0, 3.0, 4.0]]))
        tensor([[1., 3., 2., 4.]])

    Raises:
        LayerError: if the number of channels is odd, or the inner map changes the shape.

    Reference:
        Ma et al. (2018), arXiv:1807.11164 (the shuffle).
    """

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, inputs: Tensor) -> Tensor:
        """(batch, channels, …) to the same."""
        kept, second = halves(type(self).__name__, inputs)
        changed = self.inner(second)
        if changed.shape != second.shape:
            raise LayerError(
                f"ConcatenativeSkip: the inner map must keep the shape {tuple(second.shape)}, "
                f"got {tuple(changed.shape)}."
            )
        return torch.stack([kept, changed], dim=2).flatten(1, 2)
