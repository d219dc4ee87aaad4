"""`shallow-vs-deep`: three ways to write the same coefficients, at equal numbers of parameters.

A sum of products (CP), a train with different or equal cores, and a tree (hierarchical Tucker)
with maps of its own at every node or shared by a level. Cohen et al. (2016) and Khrulkov et al.
(2018) prove that a train or a tree can need exponentially many products; here all three learn.
"""

from collections.abc import Callable
from functools import partial

from rankscope.architectures.classifiers.classifier import TensorNetworkClassifier
from rankscope.architectures.classifiers.features import PatchFeatures
from rankscope.architectures.classifiers.hierarchical_classifier import HierarchicalClassifier
from rankscope.architectures.classifiers.shallow_classifier import ShallowClassifier
from rankscope.architectures.classifiers.train_classifier import TrainClassifier
from rankscope.experiments.classifier_entry import ClassifierEntry
from rankscope.experiments.dot_figure import DotFigure
from rankscope.experiments.experiment import Experiment
from rankscope.experiments.tt_mnist import (
    DIGITS_RECIPE,
    MNIST_PATCHES,
    shortened,
)
from rankscope.training.recipe import Cosine, Recipe

Form = Callable[..., TensorNetworkClassifier]
SMALL, LARGE, DIGITS = 14_600, 50_000, 6_200  # parameters, at most
MNIST_SAMPLES = 20_000
MNIST_RECIPE = Recipe(epochs=10, batch_size=64, learning_rate=2e-3, schedule=Cosine())
DIGITS_PATCHES = partial(PatchFeatures, image=(1, 8, 8), patch=2, num_features=8)


def shallow(size: int) -> Form:
    """A sum of so many products."""
    return partial(ShallowClassifier, channels=size)


def train(size: int) -> Form:
    """A train with different cores and such bonds."""
    return partial(TrainClassifier, bond=size)


def equal_train(size: int) -> Form:
    """A train with equal cores and such bonds."""
    return partial(TrainClassifier, bond=size, has_equal_cores=True)


def tree(size: int) -> Form:
    """A tree of so many channels."""
    return partial(HierarchicalClassifier, channels=size)


def shared_tree(size: int) -> Form:
    """A tree of so many channels whose levels share their maps."""
    return partial(HierarchicalClassifier, channels=size, is_shared=True)


FORMS = (shallow, train, equal_train, tree, shared_tree)
# The largest size of each form within a number of parameters; the tests count them again.
SIZES: dict[int, tuple[int, ...]] = {
    SMALL: (25, 5, 15, 17, 59),
    LARGE: (92, 10, 33, 43, 120),
    DIGITS: (44, 7, 22, 16, 42),
}


def _digits(form: Callable[[int], Form], size: int) -> ClassifierEntry:
    name = f"digits-{form.__name__.replace('_', '-')}"
    return ClassifierEntry(name, DIGITS_PATCHES, form(size), "digits", DIGITS_RECIPE)


def _mnist(form: Callable[[int], Form], size: int, budget: int) -> ClassifierEntry:
    name = f"mnist-{round(budget / 1000)}k-{form.__name__.replace('_', '-')}"
    return ClassifierEntry(
        name, MNIST_PATCHES, form(size), "mnist", MNIST_RECIPE, num_samples=MNIST_SAMPLES
    )


_DIGITS = tuple(_digits(form, size) for form, size in zip(FORMS, SIZES[DIGITS], strict=True))

SHALLOW_VS_DEEP = Experiment(
    name="shallow-vs-deep",
    title="Sum of products, train and tree at equal parameters: accuracy in percent",
    entries=(
        *_DIGITS,
        *(
            _mnist(form, size, budget)
            for budget in (SMALL, LARGE)
            for form, size in zip(FORMS, SIZES[budget], strict=True)
        ),
    ),
    quick=tuple(shortened(entry) for entry in _DIGITS),
    protocol=(
        "Five classifiers on the same kind of features (16 patches, an affine map with ReLU, "
        "normalized), each of the largest size within a number of parameters: 6,200 on the digits "
        "of scikit-learn, 14,600 and 50,000 on the first 20,000 images of MNIST. Adam from 2e-3 "
        "down to 0 along a cosine, batches of 64, 60 epochs (digits) or 10 (MNIST), nothing tuned "
        "for one of them. The logarithm of the rank is that of the minimal cut between odd and "
        "even patches. Accuracies are those after the last epoch, on all test images."
    ),
    needs="MNIST/raw with its four idx files",
    seconds=600.0,
    seeds=3,
    figure=DotFigure(("test accuracy",)),
)
