"""`lipschitz-cifar10`: residual networks of norm-preserving parts on CIFAR-10, by two protocols.

The published table was made with pixels divided by their deviations: networks are then about 4
times as steep in pixels, and its numbers are accuracies after an attack, not certified ones. Rows
that end in `-scaled` follow it; the others only subtract the means, so that certificates hold at
useful radii. Networks are smaller than the published ones (width 8 for 64, and 1 for 10), and see
25,600 images, not 200 times 50,000. A usual network, trained with and without attacks, stands
beside them.

Reference:
    Su, Byeon & Huang (2022), arXiv:2106.09121; accuracies as in the talk's table.
"""

from dataclasses import replace

from torch import nn

from rankscope.architectures.lipschitz.network import (
    CIFAR10_DEVIATIONS,
    CIFAR10_MEANS,
    LipschitzNetwork,
)
from rankscope.architectures.lipschitz.resnet9 import ResNet9
from rankscope.architectures.lipschitz.wide_resnet import WideResNet
from rankscope.experiments.experiment import Experiment
from rankscope.experiments.lipschitz_entry import (
    HALF_MARGIN,
    RADII,
    SOURCE_RECIPE,
    Contender,
    LipschitzEntry,
)
from rankscope.experiments.lipschitz_figure import draw_accuracies
from rankscope.layers.norm_preserving.scaling import InputScaling
from rankscope.robustness.attacks import Threat
from rankscope.robustness.norms import L2
from rankscope.training.adversarial import AdversarialLoss
from rankscope.training.loop import cross_entropy
from rankscope.training.recipe import Cosine, Recipe

NUM_SAMPLES = 500  # of the 10,000 test images
TRAINED_ON = 25_600  # images: 200 steps
LONGER = 256_000  # what training ten times as long gives, of the smallest network
DEPTHS = (10, 16, 22)
# Clean, and after PGD at 36/255, in percent; of the wide networks, by depth.
PUBLISHED_RESNET9 = (82.19, 71.21)
PUBLISHED_WIDE = {10: (84.09, 74.29), 22: (88.23, 75.23)}
# Of the pixels of scikit-learn's digits, in 0..1.
_DIGITS_MEAN, _DIGITS_DEVIATION = 0.305, 0.376
_CERTIFIED = replace(SOURCE_RECIPE, epochs=1, batch_size=128, max_samples=TRAINED_ON)
_USUAL = Recipe(
    epochs=1, batch_size=128, learning_rate=2e-3, schedule=Cosine(), max_samples=TRAINED_ON
)


def scaling(*, is_scaled: bool) -> InputScaling:
    """Means are subtracted; by the published protocol, what is left is divided by deviations."""
    return InputScaling(CIFAR10_MEANS, CIFAR10_DEVIATIONS if is_scaled else None)


def usual_network() -> nn.Module:
    """Three convolutions and a linear map; nothing keeps it from being steep."""
    return nn.Sequential(
        InputScaling(CIFAR10_MEANS, CIFAR10_DEVIATIONS),
        nn.Conv2d(3, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(64 * 8 * 8, 10),
    )


def _resnet9(*, is_scaled: bool, is_longer: bool = False) -> Contender:
    def build() -> LipschitzNetwork:
        return ResNet9(width=8, scaling=scaling(is_scaled=is_scaled))

    network = "resnet9-8-longer" if is_longer else "resnet9-8"
    recipe = replace(_CERTIFIED, epochs=6, max_samples=LONGER) if is_longer else _CERTIFIED
    return Contender(_named(network, is_scaled=is_scaled), build, HALF_MARGIN, recipe)


def _wide(depth: int, *, is_scaled: bool) -> Contender:
    def build() -> LipschitzNetwork:
        return WideResNet(depth, 1, scaling=scaling(is_scaled=is_scaled))

    name = _named(f"wide-resnet-{depth}-1", is_scaled=is_scaled)
    return Contender(name, build, HALF_MARGIN, _CERTIFIED)


def _named(network: str, *, is_scaled: bool) -> str:
    return f"{network}-scaled" if is_scaled else network


def _entries(*, is_scaled: bool) -> tuple[LipschitzEntry, ...]:
    """Published numbers stand beside rows of the published protocol only."""
    first = _resnet9(is_scaled=is_scaled)
    published = PUBLISHED_RESNET9 if is_scaled else None
    rows = [LipschitzEntry(first, "cifar10", NUM_SAMPLES, published=published)]
    for depth in DEPTHS:
        contender = _wide(depth, is_scaled=is_scaled)
        published = PUBLISHED_WIDE.get(depth) if is_scaled else None
        rows.append(LipschitzEntry(contender, "cifar10", NUM_SAMPLES, published=published))
    return tuple(rows)


def _longer_entries() -> tuple[LipschitzEntry, ...]:
    return tuple(
        LipschitzEntry(
            _resnet9(is_scaled=is_scaled, is_longer=True),
            "cifar10",
            NUM_SAMPLES,
            published=PUBLISHED_RESNET9 if is_scaled else None,
        )
        for is_scaled in (True, False)
    )


def _usual_entries() -> tuple[LipschitzEntry, ...]:
    threat = Threat(float(RADII[0]), L2())
    contenders = (
        Contender("usual", usual_network, cross_entropy, _USUAL),
        Contender("usual-adversarial", usual_network, AdversarialLoss(threat, steps=3), _USUAL),
    )
    return tuple(LipschitzEntry(contender, "cifar10", NUM_SAMPLES) for contender in contenders)


def _quick(*, is_scaled: bool) -> LipschitzEntry:
    """The digits by both protocols."""

    def build() -> LipschitzNetwork:
        deviations = (_DIGITS_DEVIATION,) if is_scaled else None
        return WideResNet(10, 1, image=(1, 8, 8), scaling=InputScaling((_DIGITS_MEAN,), deviations))

    recipe = replace(SOURCE_RECIPE, epochs=3, batch_size=64)
    name = _named("wide-resnet-10-1", is_scaled=is_scaled)
    return LipschitzEntry(Contender(name, build, HALF_MARGIN, recipe), "digits", 60)


LIPSCHITZ_CIFAR10 = Experiment(
    name="lipschitz-cifar10",
    title="CIFAR-10: accuracy in percent, clean, attacked and certified (l2, pixels in 0..1)",
    entries=(
        *_entries(is_scaled=True),
        *_entries(is_scaled=False),
        *_longer_entries(),
        *_usual_entries(),
    ),
    needs="CIFAR-10 (binary)",
    quick=(_quick(is_scaled=True), _quick(is_scaled=False)),
    protocol=(
        f"Every network sees {TRAINED_ON:,} images ({LONGER:,} where it says longer), shifted and "
        "mirrored, in batches of 128: "
        "norm-preserving ones with Adam at 0.01, the margin loss (1/2) and the schedule of the "
        "source; the usual one with cross-entropy, on images or on images attacked by 3 steps of "
        f"PGD at 36/255. On the first {NUM_SAMPLES} test images: clean accuracy, accuracy after "
        "PGD (10 steps of a quarter of the radius, one start), and the share that the Lipschitz "
        "bound of the trained weights certifies. Rows that end in -scaled divide pixels by their "
        "deviations, as the source did; the others only subtract means."
    ),
    seeds=3,
    figure=draw_accuracies,
)
