"""Batch and layer normalization from their formulas."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from rankscope.errors import ConstructionError


@dataclass(frozen=True, eq=False)
class Moments:
    """Mean and variance over some axes, which are kept with size one.

    Args:
        mean: of the values.
        variance: divided by the number of values, as in the formula.
        count: how many values each of them is made of.
    """

    mean: Tensor
    variance: Tensor
    count: int

    def normalize(self, values: Tensor, *, epsilon: float) -> Tensor:
        """Values less the mean, divided by the root of the variance plus epsilon."""
        return (values - self.mean) / torch.sqrt(self.variance + epsilon)


def moments(values: Tensor, *, over: Sequence[int]) -> Moments:
    """Mean and variance over some axes.

    Raises:
        ConstructionError: if an axis is not there or named twice, or there are no values.
    """
    axes = [axis + values.ndim if axis < 0 else axis for axis in over]
    if len(set(axes)) != len(axes) or not all(0 <= axis < values.ndim for axis in axes):
        raise ConstructionError(
            f"moments: axes {tuple(over)} must be different ones of the {values.ndim} axes of "
            f"shape {tuple(values.shape)}."
        )
    if not axes or not values.numel():
        raise ConstructionError(
            f"moments needs at least one axis and one value, got axes {tuple(over)} of shape "
            f"{tuple(values.shape)}."
        )
    mean = values.mean(dim=axes, keepdim=True)
    variance = (values - mean).square().mean(dim=axes, keepdim=True)
    return Moments(mean, variance, values.numel() // mean.numel())


def layer_normalize(values: Tensor, *, num_axes: int = 1, epsilon: float = 1e-5) -> Tensor:
    r"""Normalize every sample by itself, over its last `num_axes` axes.

    .. math:: \frac{T_{b,n,c} - \mathrm{mean}(T_{b,\bullet,\bullet})}
                   {\sqrt{\mathrm{var}(T_{b,\bullet,\bullet}) + \varepsilon}}

    Raises:
        ConstructionError: if there are fewer axes, or none is asked for.

    Reference:
        Ba, Kiros & Hinton (2016), arXiv:1607.06450; Diehl (2023), section 1.6.
    """
    over = range(-num_axes, 0)
    return moments(values, over=over).normalize(values, epsilon=epsilon)


@dataclass(frozen=True, eq=False)
class BatchNormalization:
    r"""Batch normalization with what it remembers; nothing changes in place.

    .. math:: \gamma \frac{T_{b,n,c} - \mathrm{mean}(T_{\bullet,n,c})}
                   {\sqrt{\mathrm{var}(T_{\bullet,n,c}) + \varepsilon}} + \beta

    Args:
        mean: running mean, used at inference; shaped like one sample, axes in `over` of size one.
        variance: running variance, likewise.
        over: axes that are averaged: (0,) in the lecture, (0, 2, 3) for images in torch.
        momentum: share of the newest batch in the running numbers.
        epsilon: keeps the root away from zero.
        scale: γ, learned.
        shift: β, learned.

    Example:
        >>> layer = BatchNormalization.new((3,), over=(0,))
        >>> outputs, layer = layer.train(torch.tensor([[1.0, 2.0, 3.0], [3.0, 2.0, 5.0]]))
        >>> outputs.round().tolist()
        [[-1.0, 0.0, -1.0], [1.0, 0.0, 1.0]]

    Reference:
        Ioffe & Szegedy (2015), arXiv:1502.03167; Diehl (2023), section 1.6.
    """

    mean: Tensor
    variance: Tensor
    over: tuple[int, ...]
    momentum: float
    epsilon: float
    scale: Tensor
    shift: Tensor

    @classmethod
    def new(
        cls,
        sample_shape: Sequence[int],
        *,
        over: Sequence[int] = (0,),
        momentum: float = 0.1,
        epsilon: float = 1e-5,
        dtype: torch.dtype = torch.float32,
    ) -> "BatchNormalization":
        """Before the first batch: mean 0, variance 1, γ = 1 and β = 0.

        Raises:
            ConstructionError: if the batch axis 0 is not averaged over.
        """
        if 0 not in over:
            raise ConstructionError(
                f"BatchNormalization averages over the batch, axis 0, got over={tuple(over)}."
            )
        sizes = [1, *sample_shape]
        shape = [1 if axis in over else size for axis, size in enumerate(sizes)]
        ones, zeros = torch.ones(shape, dtype=dtype), torch.zeros(shape, dtype=dtype)
        return cls(zeros, ones, tuple(over), momentum, epsilon, ones, zeros)

    def train(self, batch: Tensor) -> "tuple[Tensor, BatchNormalization]":
        """Normalize by the batch itself, and remember a little of its mean and variance.

        The running variance takes the unbiased one, n / (n - 1) times the other, as torch does.

        Raises:
            ConstructionError: if a mean would be made of one value, which leaves only zeros.
        """
        found = moments(batch, over=self.over)
        if found.count < 2:
            raise ConstructionError(
                f"BatchNormalization trains on at least 2 values for each mean, got {found.count} "
                f"in a batch of shape {tuple(batch.shape)}; use `infer`, or a larger batch."
            )
        unbiased = found.variance * (found.count / (found.count - 1))
        remembered = replace(
            self,
            mean=torch.lerp(self.mean, found.mean, self.momentum),
            variance=torch.lerp(self.variance, unbiased, self.momentum),
        )
        return self.scale * found.normalize(batch, epsilon=self.epsilon) + self.shift, remembered

    def infer(self, values: Tensor) -> Tensor:
        """Normalize by the running numbers: every sample is by itself, the map is affine."""
        remembered = Moments(self.mean, self.variance, 1)
        return self.scale * remembered.normalize(values, epsilon=self.epsilon) + self.shift
