"""Lipschitz networks by the names that the command line knows; all take pixels in 0..1."""

from collections.abc import Callable

from torch import nn

from rankscope.architectures.lipschitz.lip_convnet import LipConvNet
from rankscope.architectures.lipschitz.resnet9 import ResNet9
from rankscope.architectures.lipschitz.wide_resnet import WideResNet
from rankscope.layers.norm_preserving.linear import OrthogonalLinear
from rankscope.layers.norm_preserving.scaling import InputScaling

# Of the pixels of CIFAR-10, in 0..1.
CIFAR10_MEANS = (0.4914, 0.4822, 0.4465)
CIFAR10_DEVIATIONS = (0.2470, 0.2435, 0.2616)


def _centred() -> InputScaling:
    """Only the means are subtracted, so that distances between images stay."""
    return InputScaling(CIFAR10_MEANS)


def _for_digits() -> nn.Module:
    return LipConvNet(6, width=16, num_blocks=3, image=(1, 8, 8), last_layer=OrthogonalLinear)


def _wide(depth: int, width: int) -> Callable[[], nn.Module]:
    return lambda: WideResNet(depth, width, scaling=_centred())


def _chain(depth: int) -> Callable[[], nn.Module]:
    return lambda: LipConvNet(depth, scaling=_centred())


# Untrained. For CIFAR-10, except for the first, which takes the 8 x 8 digits.
LIPSCHITZ_NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "lipschitz-digits": _for_digits,
    "lipschitz-resnet9": lambda: ResNet9(scaling=_centred()),
    "lipschitz-resnet9-small": lambda: ResNet9(width=16, scaling=_centred()),
    **{f"lipschitz-wide-resnet-{depth}-1": _wide(depth, 1) for depth in (10, 16, 22, 28)},
    "lipschitz-wide-resnet-10-10": _wide(10, 10),
    "lipschitz-wide-resnet-22-10": _wide(22, 10),
    **{f"lip-convnet-{depth}": _chain(depth) for depth in (5, 10, 15, 20, 25, 30, 35, 40)},
}
