"""`lipschitz-digits`: certified networks beside usual ones, on images that come with scikit-learn.

Networks of norm-preserving parts can be certified; a usual network, trained with or without
attacks, withstands some of them, but nearly nothing is proved.
"""

from dataclasses import replace
from fractions import Fraction

from rankscope.architectures.lipschitz.wide_resnet import WideResNet
from rankscope.architectures.models.catalogue import BUILT_IN
from rankscope.architectures.models.digits import DigitsNetwork
from rankscope.experiments.experiment import Experiment
from rankscope.experiments.lipschitz_entry import (
    HALF_MARGIN,
    RADII,
    SOURCE_RECIPE,
    Contender,
    LipschitzEntry,
)
from rankscope.experiments.lipschitz_figure import draw_accuracies
from rankscope.robustness.attacks import Threat
from rankscope.robustness.norms import L2
from rankscope.training.adversarial import AdversarialLoss
from rankscope.training.loop import cross_entropy
from rankscope.training.margin_loss import MarginLoss
from rankscope.training.recipe import Cosine, Recipe

NUM_SAMPLES = 360  # the whole test set
_CERTIFIED = replace(SOURCE_RECIPE, epochs=40, batch_size=64)
_USUAL = Recipe(epochs=20, batch_size=64, learning_rate=2e-3, schedule=Cosine())
_CHAIN = BUILT_IN["lipschitz-digits"].make


def _wide() -> WideResNet:
    return WideResNet(10, 1, image=(1, 8, 8))


CONTENDERS = (
    Contender("lip-convnet-6", _CHAIN, HALF_MARGIN, _CERTIFIED),
    Contender("lip-convnet-6-margin-1", _CHAIN, MarginLoss(1.0), _CERTIFIED),
    Contender("wide-resnet-10-1", _wide, HALF_MARGIN, _CERTIFIED),
    Contender("usual", DigitsNetwork, cross_entropy, _USUAL),
    Contender(
        "usual-adversarial",
        DigitsNetwork,
        AdversarialLoss(Threat(float(RADII[1]), L2()), steps=5),
        _USUAL,
    ),
)

LIPSCHITZ_DIGITS = Experiment(
    name="lipschitz-digits",
    title="Digits of 8 x 8 pixels: accuracy in percent, clean, attacked and certified (l2)",
    entries=tuple(
        LipschitzEntry(contender, "digits", NUM_SAMPLES, (*RADII, Fraction(1, 1)))
        for contender in CONTENDERS
    ),
    quick=tuple(
        LipschitzEntry(replace(contender, recipe=replace(contender.recipe, epochs=4)), "digits", 60)
        for contender in CONTENDERS[:1] + CONTENDERS[3:]
    ),
    protocol=(
        "Networks of norm-preserving parts are trained for 40 epochs with the margin loss and the "
        "schedule of the source, usual ones for 20 epochs with cross-entropy, on images or on "
        "images attacked by 5 steps of PGD at 72/255. On all 360 test images: clean accuracy, "
        "accuracy after PGD (10 steps of a quarter of the radius, one start), and the share that "
        "the Lipschitz bound of the trained weights certifies."
    ),
    seeds=3,
    figure=draw_accuracies,
)
