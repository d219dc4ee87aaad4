"""`lipschitz-cifar10`: residual networks of norm-preserving parts on CIFAR-10, by two protocols.

The published table was made with pixels divided by their deviations: networks are then about 4
times as steep in pixels, and its numbers are accuracies after an attack, not certified ones. Rows
that end in `-scaled` follow it; the others only subtract the means, so that certificates hold at
useful radii. Networks are smaller than the published ones (width 16 for 64, and 1 for 10), and
trained for as long as two processors take an hour for, not for 200 epochs.

Reference:
    Su, Byeon & Huang (2022), arXiv:2106.09121; accuracies as in the talk's table.
"""

from rankscope.architectures.lipschitz.catalogue import CIFAR10_DEVIATIONS, CIFAR10_MEANS
from rankscope.architectures.lipschitz.network import LipschitzNetwork
from rankscope.architectures.lipschitz.resnet9 import ResNet9
from rankscope.architectures.lipschitz.wide_resnet import WideResNet
from rankscope.experiments.experiment import Experiment
from rankscope.experiments.lipschitz_entry import Contender, LipschitzEntry
from rankscope.layers.norm_preserving.scaling import InputScaling

NUM_SAMPLES = 1000  # of the 10,000 test images
DEPTHS = (10, 16, 22)
# Clean, and after PGD at 36/255, in percent; of the wide networks, by depth.
PUBLISHED_RESNET9 = (82.19, 71.21)
PUBLISHED_WIDE = {10: (84.09, 74.29), 22: (88.23, 75.23)}


def scaling(*, is_scaled: bool) -> InputScaling:
    """Means are subtracted; by the published protocol, what is left is divided by deviations."""
    return InputScaling(CIFAR10_MEANS, CIFAR10_DEVIATIONS if is_scaled else None)


def _resnet9(*, is_scaled: bool) -> Contender:
    def build() -> LipschitzNetwork:
        return ResNet9(width=16, scaling=scaling(is_scaled=is_scaled))

    return Contender(_named("resnet9-16", is_scaled=is_scaled), build)


def _wide(depth: int, *, is_scaled: bool) -> Contender:
    def build() -> LipschitzNetwork:
        return WideResNet(depth, 1, scaling=scaling(is_scaled=is_scaled))

    return Contender(_named(f"wide-resnet-{depth}-1", is_scaled=is_scaled), build)


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


LIPSCHITZ_CIFAR10 = Experiment(
    name="lipschitz-cifar10",
    title="CIFAR-10: accuracy in percent, clean, attacked and certified (l2, pixels in 0..1)",
    entries=(*_entries(is_scaled=True), *_entries(is_scaled=False)),
    needs="CIFAR-10 (binary)",
    seconds=3600.0,
)
