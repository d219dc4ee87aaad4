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
        in_box = smallest_product(weights, self.box())
        if isinstance(self.norm, Linf):
            return in_box
        reach = self.radius * self.norm.dual_lengths(weights, axes=self.centres.ndim - 1)
        return torch.maximum(in_box, products(weights, self.centres) - reach)


def products(weights: Tensor, values: Tensor) -> Tensor:
    """Weights (batch or 1, rows, …) times values (batch or 1, …): (batch, rows)."""
    found: Tensor = weights.flatten(2) @ values.flatten(1)[:, :, None]
    return found[:, :, 0]


def smallest_product(weights: Tensor, box: tuple[Tensor, Tensor]) -> Tensor:
    """The smallest that weights · values can be, for values between two bounds, (batch, rows)."""
    lower, upper = box
    return products(weights.clamp(min=0), lower) + products(weights.clamp(max=0), upper)
