"""`tt-mnist` and `tt-digits`: tensor-train classifiers with different and with equal cores.

Alkin (2024) trains both on MNIST for 20 epochs with Adam at 5e-4 and batches of 64. Sizes of
patches, features and bonds are not reported; ours are 16 patches of 7 x 7, 32 features and bonds
of 32.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from rankscope.architectures.classifiers.features import PatchFeatures
from rankscope.architectures.classifiers.train_classifier import TrainClassifier
from rankscope.experiments.classifier_entry import ClassifierEntry
from rankscope.experiments.experiment import Experiment, Row
from rankscope.training.recipe import Cosine, Recipe

# Of the source, except for the schedule, which it does not mention.
SOURCE_RECIPE = Recipe(epochs=20, batch_size=64, learning_rate=5e-4)
DIGITS_RECIPE = Recipe(epochs=60, batch_size=64, learning_rate=2e-3, schedule=Cosine())
DIFFERENT, EQUAL = (
    partial(TrainClassifier, bond=32, has_equal_cores=has_equal_cores)
    for has_equal_cores in (False, True)
)
MNIST_PATCHES = partial(PatchFeatures, image=(1, 28, 28), patch=7, num_features=32)
OVERLAPPING = partial(PatchFeatures, image=(1, 28, 28), patch=8, stride=4, num_features=32)
DIGITS_PATCHES = partial(PatchFeatures, image=(1, 8, 8), patch=2, num_features=16)

_DIGITS = tuple(
    ClassifierEntry(
        setting,
        DIGITS_PATCHES,
        partial(TrainClassifier, bond=16, has_equal_cores=setting == "equal-cores"),
        "digits",
        DIGITS_RECIPE,
    )
    for setting in ("different-cores", "equal-cores")
)


def shortened(entry: ClassifierEntry) -> ClassifierEntry:
    """The same for the quick version: a third of the epochs."""
    return replace(entry, recipe=replace(entry.recipe, epochs=entry.recipe.epochs // 3))


def learning_curves(rows: Sequence[Row]) -> object:
    """Test accuracies by epoch, a line for each run and a colour for each setting."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.subplots()
    settings = list(dict.fromkeys(str(row["setting"]) for row in rows))
    for row in rows:
        accuracies = row["test accuracies"]
        assert isinstance(accuracies, list), "every row of this experiment has its curve"
        number = settings.index(str(row["setting"]))
        label = settings[number] if row["seed"] in (0, None) else None
        axes.plot(range(1, len(accuracies) + 1), accuracies, color=f"C{number}", label=label)
    axes.set_xlabel("epoch")
    axes.locator_params(axis="x", integer=True)
    axes.set_ylabel("test accuracy, percent")
    axes.legend()
    return figure


TT_MNIST = Experiment(
    name="tt-mnist",
    title="Tensor-train classifiers on MNIST: accuracy in percent",
    entries=(
        ClassifierEntry(
            "different-cores",
            MNIST_PATCHES,
            DIFFERENT,
            "mnist",
            SOURCE_RECIPE,
            published=(96.36, 95.32),
        ),
        ClassifierEntry(
            "equal-cores", MNIST_PATCHES, EQUAL, "mnist", SOURCE_RECIPE, published=(90.78, 90.66)
        ),
        ClassifierEntry(
            "equal-cores-overlapping-cosine",
            OVERLAPPING,
            EQUAL,
            "mnist",
            replace(SOURCE_RECIPE, schedule=Cosine()),
        ),
    ),
    quick=tuple(shortened(entry) for entry in _DIGITS),
    protocol=(
        "Patches, an affine map with ReLU and a normalization, then a tensor train; cross-entropy "
        "of its scores; 60,000 images, Adam at 5e-4, batches of 64, 20 epochs, no augmentation. "
        "The accuracy is that after the last epoch, on the 10,000 test images (train accuracy: on "
        "the first 10,000 training images). The third setting is ours: 36 overlapping patches of "
        "8 x 8, and a rate that falls from 5e-4 to 0. The quick version trains on the digits of "
        "scikit-learn."
    ),
    needs="MNIST/raw with its four idx files",
    seconds=1800.0,
    seeds=3,
    figure=learning_curves,
)

TT_DIGITS = Experiment(
    name="tt-digits",
    title="Tensor-train classifiers on 8 x 8 digits: accuracy in percent",
    entries=_DIGITS,
    quick=tuple(shortened(entry) for entry in _DIGITS),
    protocol=(
        "The digits that come with scikit-learn, 1,437 for training and 360 for testing; 16 "
        "patches of 2 x 2, 16 features, bonds of 16; Adam from 2e-3 down to 0 along a cosine, "
        "batches of 64, 60 epochs."
    ),
    seconds=120.0,
    seeds=5,
    figure=learning_curves,
)
