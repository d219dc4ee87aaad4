"""The set of perturbed inputs that something is proved for."""

from dataclasses import dataclass

import torch
from torch import Tensor

from rankscope.robustness.norms import Linf, Norm


@dataclass(frozen=True, eq=False)
class Ball:
    """Every input within a radius of a sample, and within the range of pixels.

    Args:
        centres: the samples, (batch, …).
        radius: not negative.
        norm: that the radius is measured in.
        pixels: smallest and largest value of an entry; None if there is no limit.
    """

    centres: Tensor
    radius: float
    norm: Norm
    pixels: tuple[float, float] | None = None

    def box(self) -> tuple[Tensor, Tensor]:
        """The smallest and the largest value of every entry: no norm here is below that."""
        lower, upper = self.centres - self.radius, self.centres + self.radius
        if self.pixels is None:
            return lower, upper
        return lower.clamp(min=self.pixels[0]), upper.clamp(max=self.pixels[1])

    def smallest(self, weights: Tensor) -> Tensor:
        """A lower bound on weights · input, for weights (batch, rows, …): (batch, rows)."""
        axes = self.centres.ndim - 1
        lower, upper = (bound[:, None] for bound in self.box())
        over = tuple(range(2, 2 + axes))
        in_box = (weights.clamp(min=0) * lower + weights.clamp(max=0) * upper).sum(dim=over)
        if isinstance(self.norm, Linf):
            return in_box
        middle = (weights * self.centres[:, None]).sum(dim=over)
        in_ball = middle - self.radius * self.norm.dual_lengths(weights, axes=axes)
        return torch.maximum(in_box, in_ball)
