"""`lipschitz-digits`: certified networks beside usual ones, on images that come with scikit-learn.

The same time for every row. Networks of norm-preserving parts can be certified; a usual network,
trained with or without attacks, withstands some of them, but nearly nothing is proved.
"""

from fractions import Fraction

from rankscope.architectures.lipschitz.catalogue import LIPSCHITZ_NETWORKS
from rankscope.architectures.lipschitz.wide_resnet import WideResNet
from rankscope.architectures.models.digits import DigitsNetwork
from rankscope.experiments.experiment import Experiment
from rankscope.experiments.lipschitz_entry import RADII, Contender, LipschitzEntry
from rankscope.robustness.attacks import Threat
from rankscope.robustness.norms import L2
from rankscope.training.adversarial import AdversarialLoss
from rankscope.training.loop import cross_entropy
from rankscope.training.margin_loss import MarginLoss
from rankscope.training.recipe import Cosine, Recipe

NUM_SAMPLES = 360  # the whole test set
_USUAL = Recipe(epochs=40, batch_size=64, learning_rate=2e-3, schedule=Cosine())


def _wide() -> WideResNet:
    return WideResNet(10, 1, image=(1, 8, 8))


CONTENDERS = (
    Contender("lip-convnet-6", LIPSCHITZ_NETWORKS["lipschitz-digits"]),
    Contender("lip-convnet-6-margin-1", LIPSCHITZ_NETWORKS["lipschitz-digits"], MarginLoss(1.0)),
    Contender("wide-resnet-10-1", _wide),
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
    seconds=120.0,
)
