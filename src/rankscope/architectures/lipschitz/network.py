"""What networks of norm-preserving parts have in common."""

from collections.abc import Callable

from torch import Tensor, nn

from rankscope.errors import SizeError
from rankscope.layers.norm_preserving.last_layer import NormalizedLinear
from rankscope.layers.norm_preserving.linear import OrthogonalLinear
from rankscope.layers.norm_preserving.scaling import InputScaling
from rankscope.layers.norm_preserving.skips import ConvexSkip
from rankscope.layers.norm_preserving.sorting import MaxMin
from rankscope.layers.orthogonal.convolution import OrthogonalConv2d

ImageShape = tuple[int, int, int]  # channels, rows, columns
LastLayer = Callable[[int, int], OrthogonalLinear | NormalizedLinear]

# Of the pixels of CIFAR-10, in 0..1.
CIFAR10_MEANS = (0.4914, 0.4822, 0.4465)
CIFAR10_DEVIATIONS = (0.2470, 0.2435, 0.2616)


def centred_cifar10() -> InputScaling:
    """Subtract the means of CIFAR-10's pixels, and nothing else: distances between images stay."""
    return InputScaling(CIFAR10_MEANS)


class LipschitzNetwork(nn.Module):
    """Images to logits: scaling, features of Lipschitz constant 1, and a last layer.

    Args:
        features: (batch, channels, rows, columns) to (batch, features); no part of it stretches.
        last: features to logits.
        scaling: of the pixels; None for none.
    """

    def __init__(
        self,
        features: nn.Sequential,
        last: OrthogonalLinear | NormalizedLinear,
        scaling: InputScaling | None = None,
    ) -> None:
        super().__init__()
        self.scaling = nn.Identity() if scaling is None else scaling
        self.features = features
        self.last = last

    @property
    def lipschitz_constant(self) -> float:
        """That of the construction: of the scaling times that of the last layer, all else being 1.

        It is not measured: rounding, or weights changed by hand, can make the true one larger.
        `rankscope.robustness` measures.
        """
        scaled = self.scaling.lipschitz_constant if isinstance(self.scaling, InputScaling) else 1.0
        last = self.last.lipschitz_constant if isinstance(self.last, NormalizedLinear) else 1.0
        return scaled * last

    def forward(self, images: Tensor) -> Tensor:
        """(batch, channels, rows, columns) to logits (batch, classes)."""
        logits: Tensor = self.last(self.features(self.scaling(images)))
        return logits


def residual(in_channels: int, channels: int) -> nn.Sequential:
    """Two convolutions beside a shortcut, then sorted; a 1x1 shortcut where channels change."""
    inner = nn.Sequential(
        OrthogonalConv2d(in_channels, channels, 3),
        MaxMin(),
        OrthogonalConv2d(channels, channels, 3),
    )
    is_same = in_channels == channels
    shortcut = None if is_same else OrthogonalConv2d(in_channels, channels, 1, bias=False)
    return nn.Sequential(ConvexSkip(inner, shortcut), MaxMin())


def require_sizes(who: str, image: ImageShape, multiple: int, width: int) -> None:
    """Refuse images that cannot be halved often enough, and channels that cannot be paired.

    Raises:
        SizeError: with the sizes.
    """
    channels, rows, columns = image
    if min(image) < 1 or rows % multiple or columns % multiple:
        raise SizeError(
            f"{who}: images need a channel and sizes that {multiple} divides, got {channels} "
            f"channels of {rows} x {columns}."
        )
    if width < 2 or width % 2:
        raise SizeError(
            f"{who}: channels are sorted in pairs, so the first layer's must be even and positive, "
            f"got {width}."
        )
