"""One row of a robustness table: a network trained, then certified and attacked.

Runs end by counts of samples, not by the clock, so that a row is the same on every machine.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import ClassVar, TypeVar

import torch
from torch import Tensor, nn

from rankscope.compression.training.loop import Loss, fit
from rankscope.compression.training.recipe import Adam, PiecewiseLinear, Recipe
from rankscope.errors import ExperimentError
from rankscope.lab.data.losses import MarginLoss
from rankscope.lab.data.scoring import accuracy
from rankscope.lab.experiments.baselines import BaselineEntry, fitted_regression, flat
from rankscope.lab.experiments.experiment import Entry, Row, RunContext, Value
from rankscope.networks.batches import Augmentation, Normalization, TensorData
from rankscope.networks.datasets import DataSet, load_data_set
from rankscope.robust.attacks import ProjectedDescent, Threat
from rankscope.robust.certification import Certification, certify, lost_to_rounding
from rankscope.robust.networks import LipschitzNetwork
from rankscope.robust.norms import L2
from rankscope.seeds import seed_of

Built = TypeVar("Built", bound=nn.Module)
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
class TrainingSetup:
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
class LossSearch:
    """Losses that are tried on a smaller network, on images that are not tested on.

    The one taken proves most of the validation images at a radius, which are the last training
    images: trials are trained on the others.

    Args:
        losses: by the names that the row says.
        build: a fresh small network.
        recipe: how each trial is trained.
        num_validation: images of the training set that are scored.
        radius: Euclidean, of pixels in 0..1.
    """

    losses: Mapping[str, Loss]
    build: Callable[[], LipschitzNetwork]
    recipe: Recipe
    num_validation: int
    radius: Fraction = RADII[0]

    def scores(self, train: TensorData, seed: int, context: RunContext) -> dict[str, float]:
        """The share of validation images that each loss's trial proves, in percent.

        Logits of float32, the exact constant of the layers: rounding is not counted here.
        """
        assert train.targets is not None, "every data set of an experiment has labels"
        count = len(train) - self.num_validation
        rest = replace(train, inputs=train.inputs[count:], targets=train.targets[count:])
        scores = {}
        for name, loss in self.losses.items():
            model = seeded(self.build, seed)
            recipe = replace(self.recipe, seed=seed)
            folder = context.folder / f"trial-{name}"
            fit(model, loss, train.head(count), recipe, folder=folder, progress=context.report)
            scores[name] = _percent(self.proved(model, rest))
        return scores

    @torch.no_grad()
    def proved(self, model: LipschitzNetwork, data: TensorData) -> float:
        """The share of images whose right logit leads by more than a perturbation can turn."""
        model.eval()
        least = math.sqrt(2) * model.lipschitz_constant * float(self.radius)
        proved = 0
        for batch in data.batches(_VALIDATION_BATCH):
            assert batch.targets is not None, "every data set of an experiment has labels"
            logits, place = model(batch.inputs), batch.targets[:, None]
            right = logits.gather(1, place)[:, 0]
            others = logits.scatter(1, place, -math.inf).amax(1)
            proved += int((right - others > least).sum())
        return proved / len(data)


_VALIDATION_BATCH = 250


def seeded(build: Callable[[], Built], seed: int) -> Built:
    """A fresh network whose weights follow from the seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed_of("weights", seed))
        return build()


@dataclass(frozen=True)
class LipschitzEntry(Entry):
    """Train a network in float32, then certify and attack it as it is run in float64.

    Args:
        setup: the network.
        data_set: its name.
        num_samples: of the test set, that are attacked and certified.
        radii: Euclidean, of pixels in 0..1, in increasing order.
        published: clean accuracy and that after the attack at the first radius, in percent, as the
            source reports them for a network of the full size.
        seed: of the weights, and of the order of the samples.
        dtype: that the trained network is converted to before it is certified and attacked.
    """

    has_checkpoints: ClassVar[bool] = True

    setup: TrainingSetup
    data_set: str
    num_samples: int
    radii: tuple[Fraction, ...] = RADII
    published: tuple[float, float] | None = None
    seed: int = 0
    dtype: torch.dtype = torch.float64

    @property
    def name(self) -> str:
        """The name of the setup."""
        return self.setup.name

    def run(self, context: RunContext) -> Row:
        """Accuracies in percent: clean, and attacked and certified at each radius."""
        data = load_data_set(self.data_set, context.data)
        train, loss, chosen = self.prepared(in_pixels(data).train, context)
        model = seeded(self.setup.build, self.seed)
        history = fit(
            model,
            loss,
            train,
            replace(self.setup.recipe, seed=self.seed),
            folder=context.folder / "training",
            progress=context.report,
        )
        inputs, labels = first_samples(data, self.num_samples)
        radii = [float(radius) for radius in self.radii]
        result = certify(
            model,
            inputs,
            labels,
            radii,
            attack=ProjectedDescent(),
            dtype=self.dtype,
            report=context.report,
        )
        everything = first_samples(data, len(data.test))
        threats = [Threat(radius, L2()) for radius in radii]
        lost_in_float32 = max(lost_to_rounding(model, inputs, labels, threats))
        published = self.published or (None, None)
        return {
            "network": self.setup.name,
            "parameters": sum(parameter.numel() for parameter in model.parameters()),
            "samples trained on": history.samples,
            **chosen,
            "clean": _percent(result.clean),
            "clean on all test images": _percent(accuracy(model, *everything)),
            **accuracies(self.radii, result),
            "lost to rounding": _percent(max(row.lost_to_rounding for row in result.radii)),
            "lost to rounding in float32": _percent(lost_in_float32),
            "Lipschitz": result.lipschitz,
            "published clean": published[0],
            "published attacked": published[1],
            "radii": [*radii],
            "attacked": [_percent(row.attacked) for row in result.radii],
            "certified": [_percent(row.certified) for row in result.radii],
        }

    def prepared(self, train: TensorData, context: RunContext) -> tuple[TensorData, Loss, Row]:
        """What is trained on and with, and what the row says of it."""
        del context
        return train, self.setup.loss, {}


def accuracies(radii: Sequence[Fraction], result: Certification) -> dict[str, Value]:
    """In percent, after an attack and certified at each radius."""
    row: dict[str, Value] = {}
    for radius, found in zip(radii, result.radii, strict=True):
        row[f"attacked {radius_name(radius)}"] = _percent(found.attacked)
        row[f"certified {radius_name(radius)}"] = _percent(found.certified)
    return row


@dataclass(frozen=True)
class CertifiedBaseline(BaselineEntry):
    """Logistic regression on pixels, certified and attacked like a network.

    Args:
        data_set: its name.
        num_samples: of the test set, that are attacked and certified.
        radii: Euclidean, of pixels in 0..1, in increasing order.
    """

    data_set: str
    num_samples: int
    radii: tuple[Fraction, ...] = RADII

    @property
    def kind(self) -> str:
        """The data set and the method."""
        return f"{self.data_set}-logistic-regression"

    def score(self, context: RunContext) -> Row:
        """Accuracies in percent: clean, and attacked and certified at each radius."""
        data = load_data_set(self.data_set, context.data)
        linear = fitted_regression(*flat(in_pixels(data).train), data.num_classes)
        inputs, labels = first_samples(data, self.num_samples)
        result = certify(
            nn.Sequential(nn.Flatten(), linear),
            inputs,
            labels,
            [float(radius) for radius in self.radii],
            attack=ProjectedDescent(),
            dtype=torch.float64,
            report=context.report,
        )
        return {"clean": _percent(result.clean), **accuracies(self.radii, result)}


@dataclass(frozen=True, kw_only=True)
class SearchedLipschitzEntry(LipschitzEntry):
    """The same with a loss that is searched for; that of the setup is not used.

    Args:
        search: of the loss.
        augment: random change of training images.
    """

    search: LossSearch
    augment: Augmentation

    def prepared(self, train: TensorData, context: RunContext) -> tuple[TensorData, Loss, Row]:
        """The loss that proves most validation images, and what each one proves."""
        train = replace(train, augment=self.augment)
        scores = self.search.scores(train, self.seed, context)
        best = max(scores, key=scores.__getitem__)
        validation = {f"validation, {name}": score for name, score in scores.items()}
        return train, self.search.losses[best], {"loss": best, **validation}


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
    """A radius as tables print it: in 255ths of a pixel's range where that is a whole number.

    Example:
        >>> radius_name(Fraction(36, 255)), radius_name(Fraction(1, 2))
        ('36/255', '1/2')
    """
    steps = radius * 255
    return f"{steps.numerator}/255" if steps.denominator == 1 else str(radius)


def _percent(share: float) -> float:
    return round(100 * share, 2)
