"""Units that die while a network learns: the longer the steps, the more of them."""

from dataclasses import dataclass

import torch
from torch import nn

from rankscope.constructions.dead_units import DeadUnits, dead_units
from rankscope.errors import TrainingError

WIDTH, NUM_POINTS = 64, 400
RADIUS_SQUARED = 2 / torch.pi  # half of the points of the square are inside


@dataclass(frozen=True)
class DeadRun:
    """What is left of the hidden units.

    Args:
        before: at the first weights.
        after: at the last.
        accuracy: on the points of training, at the end.
    """

    before: DeadUnits
    after: DeadUnits
    accuracy: float


def train_until_dead(*, rate: float, steps: int = 300, seed: int = 0) -> DeadRun:
    """Teach a circle to one hidden layer by gradient descent, and count units before and after.

    Raises:
        TrainingError: if the rate is not positive.
    """
    if rate <= 0:
        raise TrainingError(f"train_until_dead needs a positive rate, got {rate:g}.")
    generator = torch.Generator().manual_seed(seed)
    points = 2 * torch.rand(NUM_POINTS, 2, generator=generator, dtype=torch.float64) - 1
    labels = (points.square().sum(dim=1, keepdim=True) < RADIUS_SQUARED).double()
    network = nn.Sequential(nn.Linear(2, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 1)).double()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.uniform_(-0.7, 0.7, generator=generator)
    before = dead_units(network, points)
    optimizer = torch.optim.SGD(network.parameters(), lr=rate)
    for _ in range(steps):
        optimizer.zero_grad()
        loss = nn.functional.binary_cross_entropy_with_logits(network(points), labels)
        torch.autograd.backward(loss)
        optimizer.step()
    with torch.no_grad():
        is_right = (network(points) > 0) == (labels > 0)
    return DeadRun(before, dead_units(network, points), float(is_right.double().mean()))
