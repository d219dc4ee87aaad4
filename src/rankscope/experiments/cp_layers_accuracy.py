"""`cp-layers-accuracy`: do CP layers cost accuracy at an equal number of parameters?

The source trains VGG-16 and WideResNet-28-10 on CIFAR-10, which takes days without a GPU; here
small networks are trained on subsets.
"""

from dataclasses import replace

from rankscope.experiments.accuracy_entry import AccuracyEntry
from rankscope.experiments.cp_subject import CPSubject
from rankscope.experiments.dot_figure import DotFigure
from rankscope.experiments.experiment import Experiment
from rankscope.training.recipe import Cosine, Recipe

_DIGITS = Recipe(epochs=60, batch_size=64, learning_rate=2e-3, schedule=Cosine())
_LARGER = replace(_DIGITS, epochs=25)
_NUM_SAMPLES = 5_000


def _pair(data_set: str, recipe: Recipe, *, is_regularized: bool) -> tuple[AccuracyEntry, ...]:
    samples = None if data_set == "digits" else _NUM_SAMPLES
    return tuple(
        AccuracyEntry(
            CPSubject(data_set, samples, is_cp=is_cp, is_regularized=is_regularized), recipe
        )
        for is_cp in (False, True)
    )


CP_LAYERS_ACCURACY = Experiment(
    name="cp-layers-accuracy",
    title="CP layers against plain ones at equal parameters: accuracy in percent",
    entries=(
        *_pair("digits", _DIGITS, is_regularized=False),
        *_pair("fashion-mnist", _LARGER, is_regularized=False),
        *_pair("cifar10", _LARGER, is_regularized=True),
    ),
    quick=_pair("digits", replace(_DIGITS, epochs=12), is_regularized=False),
    protocol=(
        "Three convolutions of 16, 32 and 32 channels and a linear map, ReLU, no normalization. "
        "With CP layers, the second and the third convolution are drawn and trained in CP form, "
        "at the rank with as many parameters. Adam from 2e-3 to 0 along a cosine, batches of 64: "
        "60 epochs on 1,437 digits, 25 on the first 5,000 images of Fashion-MNIST and CIFAR-10. "
        "CIFAR-10 with shifted and flipped images, dropout of one half before the last layer and "
        "a weight decay of 0.1; the others without. Accuracies are those after the last epoch, "
        "on the whole test set."
    ),
    needs="FashionMNIST/raw and cifar-10-batches-bin",
    seconds=1800.0,
    seeds=5,
    figure=DotFigure(("test accuracy", "train accuracy")),
)
