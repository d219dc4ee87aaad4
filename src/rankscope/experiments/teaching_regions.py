"""Affine regions of a network before and after training, counted and drawn."""

import itertools
from dataclasses import dataclass

import numpy
import torch
from torch import nn

from rankscope.constructions.box import Box
from rankscope.constructions.pictures_regions import draw_regions
from rankscope.constructions.region_bounds import product_upper_bound
from rankscope.constructions.regions_plane import regions_in_plane
from rankscope.experiments.dot_figure import DotFigure
from rankscope.experiments.experiment import Entry, Experiment, Row, Workplace
from rankscope.progress import Progress

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

    def run(self, place: Workplace) -> Row:
        """Train, count the regions in the square and draw them into the folder."""
        network, accuracy = self.train(place)
        found = regions_in_plane(network, SQUARE)
        title = f"{self.steps} steps: {found.num_affine_pieces:,} affine pieces"
        picture = draw_regions(found, place.folder / f"{self.name}.png", title=title)
        return {
            "steps": self.steps,
            "accuracy": accuracy,
            "patterns": found.num_patterns,
            "affine pieces": found.num_affine_pieces,
            "at most": product_upper_bound(num_inputs=2, widths=self.widths).value,
            "picture": picture.name,
        }

    def train(self, place: Workplace) -> tuple[nn.Sequential, float]:
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
            place.report(Progress(self.name, step + 1, self.steps))
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
