"""Deep networks with and without skip connections: gradients at the start, and what is learned."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from rankscope.constructions.skip_connections import branches, compose
from rankscope.errors import TrainingError

WIDTH, NUM_POINTS, RATE = 16, 256, 0.01
# Branches that start small, as usual: with skips the signal then neither fades nor grows.
GAIN = 0.7


@dataclass(frozen=True)
class DeepRun:
    """How a deep network started and what it learned.

    Args:
        losses: cross-entropy before each step and after the last.
        accuracy: on its own points, at the end.
        first_gradients: norm of the first gradient of each branch's first matrix, input first.
    """

    losses: tuple[float, ...]
    accuracy: float
    first_gradients: tuple[float, ...]


def train_deep(*, depth: int, with_skips: bool, steps: int = 100, seed: int = 0) -> DeepRun:
    """Teach two interleaved spirals to a network of `depth` branches, in full batches with Adam.

    Raises:
        TrainingError: if there is no step.
    """
    if steps < 1:
        raise TrainingError(f"train_deep needs 1 or more steps, got {steps}.")
    generator = torch.Generator().manual_seed(seed)
    points, labels = spirals(generator)
    reading = nn.Linear(2, WIDTH, dtype=torch.float64)
    answer = nn.Linear(WIDTH, 1, dtype=torch.float64)
    with torch.no_grad():
        for layer in (reading, answer):
            layer.weight.normal_(0.0, layer.in_features**-0.5, generator=generator)
            layer.bias.zero_()
    parts = branches(depth, WIDTH, generator=generator, gain=GAIN)
    network = nn.ModuleList([reading, *parts, answer])
    optimizer = torch.optim.Adam(network.parameters(), lr=RATE)
    losses: list[float] = []
    gradients: tuple[float, ...] = ()
    for step in range(steps + 1):
        found = answer(compose(parts, reading(points), with_skips=with_skips))
        loss = nn.functional.binary_cross_entropy_with_logits(found, labels)
        losses.append(float(loss.detach()))
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        if step == 0:
            gradients = tuple(_gradient_norm(part) for part in parts)
        if step < steps:
            optimizer.step()
    accuracy = float(((found > 0) == (labels > 0)).double().mean())
    return DeepRun(tuple(losses), accuracy, gradients)


def spirals(generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Points of two spirals around each other, and which of the two each is of."""
    labels = (torch.arange(NUM_POINTS) % 2).double()[:, None]
    places = torch.rand(NUM_POINTS, 1, generator=generator, dtype=torch.float64).sqrt()
    angles = 1.5 * torch.pi * places + torch.pi * labels
    return 2 * places * torch.cat([angles.cos(), angles.sin()], dim=1), labels


def _gradient_norm(part: nn.Sequential) -> float:
    inner = part[0]
    assert isinstance(inner, nn.Linear)
    assert inner.weight.grad is not None
    return float(inner.weight.grad.norm())
