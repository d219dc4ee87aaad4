"""`label-noise`: what is left of a network that has learned wrong labels by heart.

The source trains VGG-16 on CIFAR-10 with random labels on a share of the training set until
convergence, and finds that CP layers keep more accuracy on true labels.
"""

from dataclasses import replace

from rankscope.experiments.cp_subject import CPSubject
from rankscope.experiments.experiment import Experiment
from rankscope.experiments.label_noise_entry import LabelNoiseEntry, RademacherEntry
from rankscope.experiments.line_figure import LineFigure
from rankscope.training.recipe import Cosine, Recipe

NOISES = (0.2, 0.4, 0.6, 0.8, 1.0)
_RECIPE = Recipe(epochs=80, batch_size=32, learning_rate=2e-3, schedule=Cosine())
_NUM_SAMPLES = 500


def _subjects(data_set: str, width: int, *, is_regularized: bool) -> tuple[CPSubject, ...]:
    return tuple(
        CPSubject(data_set, _NUM_SAMPLES, is_cp, width, is_regularized) for is_cp in (False, True)
    )


_PLAIN_DIGITS = _subjects("digits", 32, is_regularized=False)
_REGULARIZED_DIGITS = _subjects("digits", 32, is_regularized=True)
_FASHION = _subjects("fashion-mnist", 16, is_regularized=False)
_QUICK = replace(_RECIPE, epochs=60)

LABEL_NOISE = Experiment(
    name="label-noise",
    title="Trained on partly random labels: accuracy on true ones, in percent",
    entries=(
        *(
            LabelNoiseEntry(subject, noise, _RECIPE)
            for subject in (*_PLAIN_DIGITS, *_REGULARIZED_DIGITS, *_FASHION)
            for noise in NOISES
        ),
        *(RademacherEntry(subject, _RECIPE) for subject in (*_PLAIN_DIGITS, *_REGULARIZED_DIGITS)),
    ),
    quick=(
        *(
            LabelNoiseEntry(replace(subject, num_samples=100), 0.4, _QUICK)
            for subject in _PLAIN_DIGITS
        ),
        RademacherEntry(replace(_PLAIN_DIGITS[1], num_samples=100), _QUICK),
    ),
    seconds=600.0,
    seeds=3,
    figure=LineFigure("noise", "test accuracy", "network", is_logarithmic=False),
    needs="FashionMNIST/raw",
    protocol=(
        "A share of the first 500 training labels is replaced by draws from all ten classes "
        "alike, so that a tenth of the draws are right; at 1.0 all are random. Three convolutions "
        "(of 32, 64 and 64 channels for digits, of half as many for Fashion-MNIST) and a linear "
        "map; with CP layers the two in the middle are in CP form with as many parameters, and "
        "all start with the same variances. Adam from 2e-3 along a cosine that would end after 80 "
        "epochs, batches of 32; the run ends when 99.9 percent of the labels given are learned "
        "(looked at every second epoch), or after 80 epochs, and its last epoch is scored on the "
        "whole test set. Regularized: a weight decay of 0.1 and dropout of one half before the "
        "linear map. Rademacher complexity: for random signs, a network is trained on the true "
        "label where the sign is -1 and on another one where it is +1; the complexity is the mean "
        "of sign times error, at most the share of signs +1. Training finds it from below."
    ),
)
