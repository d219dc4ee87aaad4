"""Piecewise-linear functions and networks for the tests of the lab."""

import itertools

import numpy
import torch
from hypothesis import strategies
from torch import nn

from rankscope.lab.constructions import PiecewiseLinear, Reals, dense_layers

QUARTERS = strategies.integers(-40, 40).map(lambda number: number / 4)


@strategies.composite
def piecewise_linear(draw: strategies.DrawFn, most: int = 8) -> PiecewiseLinear:
    """Functions of quarters: all sums and products of a few are exact in float64."""
    kinks = sorted(draw(strategies.sets(QUARTERS, max_size=most)))
    slopes = draw(strategies.lists(QUARTERS, min_size=len(kinks) + 1, max_size=len(kinks) + 1))
    # Arrays, not lists: beartype looks at random items of lists, which hypothesis forbids here.
    return PiecewiseLinear(
        numpy.array(kinks, float), numpy.array(slopes), draw(QUARTERS), draw(QUARTERS)
    )


def random_network(*sizes: int, seed: int) -> nn.Sequential:
    """A network whose breaks are well inside [-1, 1]."""
    generator = torch.Generator().manual_seed(seed)
    parts: list[nn.Module] = []
    for inputs, outputs in itertools.pairwise(sizes):
        layer = nn.Linear(inputs, outputs, dtype=torch.float64)
        with torch.no_grad():
            layer.weight.copy_(torch.randn(outputs, inputs, generator=generator))
            layer.bias.copy_(torch.randn(outputs, generator=generator) / 3)
        parts += [nn.ReLU(), layer]
    return nn.Sequential(*parts[1:])


def points_in_square(count: int, *, size: float = 1.0, inputs: int = 2, seed: int = 0) -> Reals:
    """Random points between -size and size."""
    return numpy.random.default_rng(seed).uniform(-size, size, (count, inputs))


def sampled_patterns(network: nn.Module, points: Reals) -> set[tuple[bool, ...]]:
    """Which hidden units are switched on, at each point."""
    values, seen = points, []
    for layer in dense_layers(network)[:-1]:
        values = layer(values).clip(min=0)
        seen.append(values > 0)
    return {tuple(row) for row in numpy.hstack(seen).tolist()}
