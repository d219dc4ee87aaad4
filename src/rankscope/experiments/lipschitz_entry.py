"""One row of a robustness table: a network trained, then certified and attacked.

Runs end by counts of samples, not by the clock, so that a row is the same on every machine.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction

import torch
from torch import Tensor, nn

from rankscope.errors import ExperimentError
from rankscope.experiments.experiment import Entry, Row, Value, Workplace
from rankscope.robustness.attacks import ProjectedDescent
from rankscope.robustness.certification import Certification, certify
from rankscope.training.augmentation import Normalization
from rankscope.training.batches import TensorData, seed_of
from rankscope.training.datasets import DataSet, load_data_set
from rankscope.training.loop import Loss, fit
from rankscope.training.margin_loss import MarginLoss
from rankscope.training.piecewise_schedule import PiecewiseLinear
from rankscope.training.recipe import Adam, Recipe

RADII = (Fraction(36, 255), Fraction(72, 255), Fraction(108, 255))
HALF_MARGIN = MarginLoss(0.5)  # of the source
# Of the source: Adam at 1e-2, batches of 256, 200 epochs, rate up and down in straight lines.
SOURCE_RECIPE = Recipe(
    epochs=200,
    batch_size=256,
    learning_rate=1e-2,
    optimizer=Adam(),
    schedule=PiecewiseLinear(),
)


@dataclass(frozen=True)
class Contender:
    """A network and how it is trained.

    Args:
        name: letters, digits, dots and hyphens.
        build: a fresh network that takes pixels in 0..1.
        loss: that it is trained with.
        recipe: how it is trained; its seed is that of the entry.
    """

    name: str
    build: Callable[[], nn.Module]
    loss: Loss = HALF_MARGIN
    recipe: Recipe = SOURCE_RECIPE


@dataclass(frozen=True)
class LipschitzEntry(Entry):
    """Train a network, then certify and attack it.

    Args:
        contender: the network.
        data_set: its name.
        num_samples: of the test set, that are attacked and certified.
        radii: Euclidean, of pixels in 0..1, in increasing order.
        published: clean accuracy and that after the attack at the first radius, in percent, as the
            source reports them for a network of the full size.
        seed: of the weights, and of the order of the samples.
    """

    contender: Contender
    data_set: str
    num_samples: int
    radii: tuple[Fraction, ...] = RADII
    published: tuple[float, float] | None = None
    seed: int = 0

    @property
    def name(self) -> str:
        """That of the contender."""
        return self.contender.name

    def run(self, place: Workplace) -> Row:
        """Accuracies in percent: clean, and attacked and certified at each radius."""
        data = load_data_set(self.data_set, place.data)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed_of("weights", self.seed))
            model = self.contender.build()
        recipe = replace(self.contender.recipe, seed=self.seed)
        history = fit(
            model,
            self.contender.loss,
            in_pixels(data).train,
            recipe,
            folder=place.folder / "training",
            progress=place.report,
        )
        inputs, labels = first_samples(data, self.num_samples)
        found = certify(
            model,
            inputs,
            labels,
            [float(radius) for radius in self.radii],
            attack=ProjectedDescent(),
            report=place.report,
        )
        published = self.published or (None, None)
        return {
            "network": self.contender.name,
            "parameters": sum(parameter.numel() for parameter in model.parameters()),
            "samples trained on": history.samples,
            "clean": _percent(found.clean),
            **self._accuracies(found),
            "Lipschitz": found.lipschitz,
            "published clean": published[0],
            "published attacked": published[1],
            "radii": [float(radius) for radius in self.radii],
            "attacked": [_percent(row.attacked) for row in found.radii],
            "certified": [_percent(row.certified) for row in found.radii],
        }

    def _accuracies(self, found: Certification) -> dict[str, Value]:
        row: dict[str, Value] = {}
        for radius, accuracies in zip(self.radii, found.radii, strict=True):
            row[f"attacked {radius_name(radius)}"] = _percent(accuracies.attacked)
            row[f"certified {radius_name(radius)}"] = _percent(accuracies.certified)
        return row


def in_pixels(data: DataSet) -> DataSet:
    """The same data as numbers in 0..1, not normalized: scaling is a part of the networks."""

    def changed(part: TensorData) -> TensorData:
        if part.normalize is None:
            return part
        channels = len(part.normalize.means)
        return replace(part, normalize=Normalization((0.0,) * channels, (1.0,) * channels))

    return replace(data, train=changed(data.train), test=changed(data.test))


def first_samples(data: DataSet, count: int) -> tuple[Tensor, Tensor]:
    """Test images in 0..1, and their labels.

    Raises:
        ExperimentError: if there are not so many.
    """
    test = in_pixels(data).test
    if count > len(test):
        raise ExperimentError(
            f"{data.name} has {len(test):,} test samples, but {count:,} are wanted."
        )
    batch = test.head(count).batches(count)[0]
    assert batch.targets is not None, "every data set of an experiment has labels"
    return batch.inputs.contiguous(), batch.targets


def radius_name(radius: Fraction) -> str:
    """As tables print it: in units of a pixel's 255 steps where that is a whole number.

    Example:
        >>> radius_name(Fraction(36, 255)), radius_name(Fraction(1, 2))
        ('36/255', '1/2')
    """
    steps = radius * 255
    return f"{steps.numerator}/255" if steps.denominator == 1 else str(radius)


def _percent(share: float) -> float:
    return round(100 * share, 2)
