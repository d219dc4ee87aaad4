"""Shallow networks trained to follow the sawtooth, all above the distance that is proved."""

import itertools
from dataclasses import dataclass

import torch
from torch import nn

from rankscope.constructions.sawtooth import (
    depth_separation,
    distance_to_sawtooth,
    sawtooth_network,
)
from rankscope.experiments.dot_figure import DotFigure
from rankscope.experiments.experiment import Entry, Experiment, Row, Workplace
from rankscope.progress import Progress

POINTS_PER_TOOTH = 4


@dataclass(frozen=True)
class SawtoothRival(Entry):
    """A network with L hidden layers and 2^L units, trained on Δ^(L² + 2) with the L1 loss.

    Args:
        num_layers: L.
        seed: of its first weights.
        steps: of Adam.
    """

    num_layers: int
    seed: int
    steps: int = 1500

    @property
    def name(self) -> str:
        """Layers and seed."""
        return f"{self.num_layers}-layers-seed-{self.seed}"

    def run(self, place: Workplace) -> Row:
        """Train, then measure the distance piece by piece."""
        separation = depth_separation(self.num_layers)
        network = self.train(place)
        found = distance_to_sawtooth(network, separation.power)
        return {
            "hidden layers": self.num_layers,
            "hidden units": separation.num_nodes,
            "pieces on [0, 1]": found.num_pieces,
            "distance": found.distance,
            "least for its pieces": float(found.bound),
            "least for its sizes": float(separation.distance),
        }

    def train(self, place: Workplace) -> nn.Sequential:
        """The trained network, in float64."""
        separation = depth_separation(self.num_layers)
        count = POINTS_PER_TOOTH * 2**separation.power
        points = (torch.arange(count, dtype=torch.float64)[:, None] + 0.5) / count
        with torch.no_grad():
            goals = sawtooth_network(separation.power)(points)
        network = self._start()
        optimizer = torch.optim.Adam(network.parameters(), lr=0.02)
        for step in range(self.steps):
            optimizer.zero_grad()
            (network(points) - goals).abs().mean().backward()
            optimizer.step()
            place.report(Progress(self.name, step + 1, self.steps))
        return network

    def _start(self) -> nn.Sequential:
        """Units with kinks all over [0, 1], as far as one seed can tell."""
        generator = torch.Generator().manual_seed(self.seed)
        share, wider = divmod(2**self.num_layers, self.num_layers)
        widths = [share + (layer < wider) for layer in range(self.num_layers)]
        sizes = [1, *widths, 1]
        parts: list[nn.Module] = []
        for inputs, outputs in itertools.pairwise(sizes):
            layer = nn.Linear(inputs, outputs, dtype=torch.float64)
            with torch.no_grad():
                layer.weight.copy_(torch.randn(outputs, inputs, generator=generator) * 2)
                kinks = torch.rand(outputs, generator=generator, dtype=torch.float64)
                layer.bias.copy_(-layer.weight.mean(dim=1) * kinks)
            parts += [nn.ReLU(), layer]
        return nn.Sequential(*parts[1:])


SAWTOOTH_RIVALS = Experiment(
    name="sawtooth-rivals",
    title="How near do shallow networks come to Telgarsky's sawtooth?",
    entries=tuple(SawtoothRival(num_layers, seed) for num_layers in (2, 3) for seed in range(3)),
    seconds=120.0,
    quick=(SawtoothRival(2, 0, steps=100), SawtoothRival(3, 0, steps=100)),
    figure=DotFigure(("distance", "least for its pieces", "least for its sizes")),
)
