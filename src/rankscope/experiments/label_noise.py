"""`label-noise`: what is left of a network that has learned wrong labels by heart.

The source trains VGG-16 on CIFAR-10 with random labels on a share of the training set until
convergence, and finds that CP layers keep more accuracy on true labels.
"""

from dataclasses import replace

from rankscope.experiments.cp_subject import CPSubject
from rankscope.experiments.experiment import Entry, Experiment
from rankscope.experiments.label_noise_entry import LabelNoiseEntry, RademacherEntry
from rankscope.experiments.line_figure import LineFigure
from rankscope.training.recipe import Cosine, Recipe

NOISES = (0.2, 0.4, 0.6, 0.8, 1.0)
_DIGITS = Recipe(epochs=150, batch_size=32, learning_rate=2e-3, schedule=Cosine())
_FASHION = replace(_DIGITS, epochs=60)
_WIDTH = 32  # with 16, random labels are not learned in that time


def _subjects(
    data_set: str, num_samples: int | None, *, is_regularized: bool
) -> tuple[CPSubject, ...]:
    return tuple(
        CPSubject(data_set, num_samples, is_cp=is_cp, width=_WIDTH, is_regularized=is_regularized)
        for is_cp in (False, True)
    )


_PLAIN_DIGITS = _subjects("digits", 500, is_regularized=False)
_REGULARIZED_DIGITS = _subjects("digits", 500, is_regularized=True)
_FASHION_SUBJECTS = _subjects("fashion-mnist", 1_000, is_regularized=False)
_ENTRIES: tuple[Entry, ...] = (
    *(
        LabelNoiseEntry(subject, noise, _DIGITS)
        for subject in (*_PLAIN_DIGITS, *_REGULARIZED_DIGITS)
        for noise in NOISES
    ),
    *(
        LabelNoiseEntry(subject, noise, _FASHION)
        for subject in _FASHION_SUBJECTS
        for noise in NOISES
    ),
    *(RademacherEntry(subject, _DIGITS) for subject in (*_PLAIN_DIGITS, *_REGULARIZED_DIGITS)),
)

LABEL_NOISE = Experiment(
    name="label-noise",
    title="Trained on partly random labels: accuracy on true ones, in percent",
    entries=_ENTRIES,
    quick=(
        *(
            LabelNoiseEntry(replace(subject, num_samples=200), 0.4, replace(_DIGITS, epochs=30))
            for subject in _PLAIN_DIGITS
        ),
        RademacherEntry(replace(_PLAIN_DIGITS[1], num_samples=100), replace(_DIGITS, epochs=30)),
    ),
    seconds=600.0,
    seeds=3,
    figure=LineFigure("noise", "test accuracy", "network", is_logarithmic=False),
)
