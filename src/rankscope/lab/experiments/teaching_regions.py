"""Two tables of small trained networks: `sawtooth-rivals` and `trained-regions`."""

import itertools
from dataclasses import dataclass

import numpy
import torch
from torch import nn

from rankscope.lab.constructions.dense import Box
from rankscope.lab.constructions.explicit_networks import (
    depth_separation,
    distance_to_sawtooth,
    sawtooth_network,
)
from rankscope.lab.constructions.pictures_functions import draw_regions
from rankscope.lab.constructions.regions import product_upper_bound, regions_in_plane
from rankscope.lab.experiments.experiment import Entry, Experiment, Row, RunContext
from rankscope.lab.experiments.figure_dots import DotFigure
from rankscope.progress import Progress

# Shallow networks trained to follow the sawtooth, all above the distance that is proved.


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

    def run(self, context: RunContext) -> Row:
        """Train, then measure the distance piece by piece."""
        separation = depth_separation(self.num_layers)
        network = self.train(context)
        result = distance_to_sawtooth(network, separation.power)
        return {
            "hidden layers": self.num_layers,
            "hidden units": separation.num_nodes,
            "pieces on [0, 1]": result.num_pieces,
            "distance": result.distance,
            "least for its pieces": float(result.bound),
            "least for its sizes": float(separation.distance),
        }

    def train(self, context: RunContext) -> nn.Sequential:
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
            context.report(Progress(self.name, step + 1, self.steps))
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


# Affine regions of a network before and after training, counted and drawn.


SQUARE = Box.of([-1.0, -1.0], [1.0, 1.0])
NUM_POINTS = 600
# Half of the points of the square are inside this circle.
RADIUS_SQUARED = 2 / numpy.pi


@dataclass(frozen=True)
class TrainedRegions(Entry):
    """A network with two inputs that learns to tell the inside of a circle from the outside.

    Args:
        widths: of its hidden layers.
        seed: of the points and of the first weights.
        steps: of Adam; none shows the regions before training.
    """

    widths: tuple[int, ...]
    seed: int
    steps: int

    @property
    def name(self) -> str:
        """Widths, seed and steps."""
        return f"{'-'.join(map(str, self.widths))}-seed-{self.seed}-steps-{self.steps}"

    def run(self, context: RunContext) -> Row:
        """Train, count the regions in the square and draw them into the folder."""
        network, accuracy = self.train(context)
        result = regions_in_plane(network, SQUARE)
        title = f"{self.steps} steps: {result.num_affine_pieces:,} affine pieces"
        picture = draw_regions(result, context.folder / f"{self.name}.png", title=title)
        return {
            "steps": self.steps,
            "accuracy": accuracy,
            "patterns": result.num_patterns,
            "affine pieces": result.num_affine_pieces,
            "at most": product_upper_bound(num_inputs=2, widths=self.widths).value,
            "picture": picture.name,
        }

    def train(self, context: RunContext) -> tuple[nn.Sequential, float]:
        """The trained float64 network and its accuracy on its points."""
        generator = torch.Generator().manual_seed(self.seed)
        points = 2 * torch.rand(NUM_POINTS, 2, generator=generator, dtype=torch.float64) - 1
        labels = (points.square().sum(dim=1, keepdim=True) < RADIUS_SQUARED).double()
        network = self._start(generator)
        optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
        for step in range(self.steps):
            optimizer.zero_grad()
            loss = nn.functional.binary_cross_entropy_with_logits(network(points), labels)
            torch.autograd.backward(loss)
            optimizer.step()
            context.report(Progress(self.name, step + 1, self.steps))
        with torch.no_grad():
            is_right = (network(points) > 0) == (labels > 0)
        return network, float(is_right.double().mean())

    def _start(self, generator: torch.Generator) -> nn.Sequential:
        sizes = [2, *self.widths, 1]
        parts: list[nn.Module] = []
        for inputs, outputs in itertools.pairwise(sizes):
            layer = nn.Linear(inputs, outputs, dtype=torch.float64)
            with torch.no_grad():
                for values in (layer.weight, layer.bias):
                    values.uniform_(-(inputs**-0.5), inputs**-0.5, generator=generator)
            parts += [nn.ReLU(), layer]
        return nn.Sequential(*parts[1:])


TRAINED_REGIONS = Experiment(
    name="trained-regions",
    title="How do the affine regions of a network change while it learns a circle?",
    entries=tuple(TrainedRegions((16, 16), 0, steps) for steps in (0, 100, 1000)),
    seconds=120.0,
    quick=tuple(TrainedRegions((6, 4), 0, steps) for steps in (0, 60)),
    figure=DotFigure(("patterns", "affine pieces")),
)
