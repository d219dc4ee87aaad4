"""The lecture's first network: two inputs, five hidden ReLU units, one output."""

from dataclasses import dataclass

import torch
from torch import nn

from rankscope.constructions.box import Box
from rankscope.constructions.region_bounds import zaslavsky_upper_bound
from rankscope.constructions.regions_plane import PlaneRegions, regions_in_plane
from rankscope.errors import ConstructionError

SIZES = (2, 5, 1)
# The square that the lecture draws.
SQUARE = Box.of([-2.0, -2.0], [2.0, 2.0])


@dataclass(frozen=True, eq=False)
class TwoFiveOne:
    """One realization and its affine regions in the square [-2, 2]².

    Args:
        seed: that its weights follow from.
        network: Linear(2, 5), ReLU, Linear(5, 1) in float64.
        regions: where it is affine.
        most_regions: 10 if all biases are zero (five lines through one point), else 16.
    """

    seed: int
    network: nn.Sequential
    regions: PlaneRegions
    most_regions: int

    @property
    def num_parameters(self) -> int:
        """Weights and biases: 10 + 5 + 5 + 1."""
        return sum(parameter.numel() for parameter in self.network.parameters())


def two_five_one(seed: int, *, bias_spread: float = 0.0) -> TwoFiveOne:
    """Draw the network as the lecture does: Glorot-normal matrices, biases zero.

    With zero biases the function inherits the homogeneity of ReLU, f(αx) = α f(x) for α >= 0, so
    that all its breaks are lines through the origin. (Keras cuts its normal numbers off at two
    standard deviations; we do not.)

    Args:
        seed: any integer.
        bias_spread: standard deviation of the five hidden biases.

    Example:
        >>> two_five_one(0).num_parameters, two_five_one(0).regions.num_patterns
        (21, 10)

    Raises:
        ConstructionError: if the spread is negative or not finite.

    Reference:
        Diehl (2023), Example 1.2, and its program examples/nn251.py.
    """
    if not 0 <= bias_spread < float("inf"):
        raise ConstructionError(
            f"two_five_one needs a finite bias_spread of at least 0, got {bias_spread}."
        )
    generator = torch.Generator().manual_seed(seed)
    inputs, width, outputs = SIZES
    first = nn.Linear(inputs, width, dtype=torch.float64)
    last = nn.Linear(width, outputs, dtype=torch.float64)
    for layer in (first, last):
        nn.init.xavier_normal_(layer.weight, generator=generator)
        nn.init.zeros_(layer.bias)
    if bias_spread:
        nn.init.normal_(first.bias, std=bias_spread, generator=generator)
    network = nn.Sequential(first, nn.ReLU(), last)
    most = zaslavsky_upper_bound(num_inputs=inputs, width=width).value if bias_spread else 2 * width
    assert most is not None
    return TwoFiveOne(seed, network, regions_in_plane(network, SQUARE), most)
