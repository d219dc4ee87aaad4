"""1-Lipschitz networks: no layer increases the distance between two inputs."""

from collections.abc import Callable
from functools import partial

from torch import Tensor, nn

from rankscope.errors import SizeError
from rankscope.robust.norm_preserving import (
    ConvexSkip,
    InputScaling,
    MaxMin,
    NormalizedLinear,
    NormPreservingPool,
    OrthogonalLinear,
)
from rankscope.robust.orthogonal import OrthogonalConv2d
from rankscope.robust.paraunitary import Cayley, Parametrization

# --- What networks of norm-preserving parts have in common ----------------------------------------


ImageShape = tuple[int, int, int]  # channels, rows, columns
LastLayer = Callable[[int, int], OrthogonalLinear | NormalizedLinear]
Activation = Callable[[], nn.Module]  # of Lipschitz constant 1
Convolution = Callable[..., OrthogonalConv2d]  # of channels in and out and the kernel's size

_CAYLEY = Cayley()

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
        """Lipschitz constant by construction: that of the scaling times that of the last layer.

        It is not measured: rounding, or weights changed by hand, can make the true one larger.
        `rankscope.robust` measures.
        """
        scaled = self.scaling.lipschitz_constant if isinstance(self.scaling, InputScaling) else 1.0
        last = self.last.lipschitz_constant if isinstance(self.last, NormalizedLinear) else 1.0
        return scaled * last

    def forward(self, images: Tensor) -> Tensor:
        """(batch, channels, rows, columns) to logits (batch, classes)."""
        logits: Tensor = self.last(self.features(self.scaling(images)))
        return logits


def residual(
    in_channels: int,
    channels: int,
    activation: Activation = MaxMin,
    convolution: Convolution = OrthogonalConv2d,
) -> nn.Sequential:
    """Two convolutions beside a shortcut, then activated; a 1x1 shortcut where channels change."""
    inner = nn.Sequential(
        convolution(in_channels, channels, 3),
        activation(),
        convolution(channels, channels, 3),
    )
    is_same = in_channels == channels
    shortcut = None if is_same else convolution(in_channels, channels, 1, bias=False)
    return nn.Sequential(ConvexSkip(inner, shortcut), activation())


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


# --- Chains of orthogonal convolutions, without skips or pooling ----------------------------------


class LipConvNet(LipschitzNetwork):
    """Blocks of convolutions, the last of each with stride 2; each block doubles the channels.

    The features have Lipschitz constant 1 by construction. The last layer is normalized row by
    row, as published, and has a constant of its own.

    Args:
        depth: number of convolutions; `num_blocks` divides it.
        width: channels of the first block, an even number.
        num_blocks: how often the image is halved; published with 5, for images of 32 x 32.
        image: channels, rows and columns; 2 to the number of blocks divides the last two.
        num_classes: length of the output.
        last_layer: makes the last layer of its numbers of inputs and outputs.
        scaling: of the pixels; None for none.

    Raises:
        SizeError: if there is no such network.

    Reference:
        Singla & Feizi (2021), arXiv:2105.11417 (the network, as recalled; its layers differ).
    """

    def __init__(  # noqa: PLR0913 - the sizes of a network, all by name
        self,
        depth: int,
        *,
        width: int = 32,
        num_blocks: int = 5,
        image: ImageShape = (3, 32, 32),
        num_classes: int = 10,
        last_layer: LastLayer = NormalizedLinear,
        scaling: InputScaling | None = None,
    ) -> None:
        if num_blocks < 1 or depth < 1 or depth % num_blocks:
            raise SizeError(
                f"LipConvNet: the depth must be a multiple of its {num_blocks} blocks, got {depth}."
            )
        require_sizes("LipConvNet", image, 2**num_blocks, width)
        channels, rows, columns = image
        layers: list[nn.Module] = []
        for block in range(num_blocks):
            size = width * 2**block
            for number in range(depth // num_blocks):
                stride = 2 if number == depth // num_blocks - 1 else 1
                layers += [OrthogonalConv2d(channels, size, 3, stride), MaxMin()]
                channels = size
        pixels = (rows // 2**num_blocks) * (columns // 2**num_blocks)
        features = nn.Sequential(*layers, nn.Flatten())
        super().__init__(features, last_layer(channels * pixels, num_classes), scaling)


# --- A residual network of nine layers that preserves distances or shrinks them -------------------


class ResNet9(LipschitzNetwork):
    """Convolutions w, 2w, residual, 4w, 8w, residual, four poolings, and two linear layers.

    Lipschitz constant 1 by construction, times that of the scaling and of the last layer.

    Args:
        image: channels, rows and columns; 16 divides the last two.
        width: channels of the first layer, an even number; published with 64.
        num_classes: length of the output.
        last_layer: makes the last layer of its numbers of inputs and outputs.
        scaling: of the pixels; None for none.
        activation: makes what stands between layers; of Lipschitz constant 1.
        parametrization: of the convolutions and of the linear layer behind them.

    Raises:
        SizeError: if the sizes do not fit.

    Reference:
        Su, Byeon & Huang (2022), arXiv:2106.09121 (the network; as read in its code).
    """

    def __init__(  # noqa: PLR0913 - the parts of a network, all by name
        self,
        image: ImageShape = (3, 32, 32),
        *,
        width: int = 64,
        num_classes: int = 10,
        last_layer: LastLayer = OrthogonalLinear,
        scaling: InputScaling | None = None,
        activation: Activation = MaxMin,
        parametrization: Parametrization = _CAYLEY,
    ) -> None:
        require_sizes("ResNet9", image, 16, width)
        channels, rows, columns = image
        wide = 8 * width
        convolution = partial(OrthogonalConv2d, parametrization=parametrization)
        flat = wide * (rows // 16) * (columns // 16)
        features = nn.Sequential(
            convolution(channels, width, 3),
            activation(),
            convolution(width, 2 * width, 3),
            activation(),
            NormPreservingPool(2),
            residual(2 * width, 2 * width, activation, convolution),
            convolution(2 * width, 4 * width, 3),
            activation(),
            NormPreservingPool(2),
            convolution(4 * width, wide, 3),
            activation(),
            NormPreservingPool(2),
            residual(wide, wide, activation, convolution),
            NormPreservingPool(2),
            nn.Flatten(),
            OrthogonalLinear(flat, wide, parametrization=parametrization),
            activation(),
        )
        super().__init__(features, last_layer(wide, num_classes), scaling)


# --- Wide residual networks that preserve distances or shrink them --------------------------------


class WideResNet(LipschitzNetwork):
    """A convolution, three stages of residual blocks with poolings between, and a linear map.

    The stages have 16, 32 and 64 times `width` channels. Lipschitz constant 1 by construction,
    times that of the scaling and of the last layer.

    Args:
        depth: layers with weights, 6n + 4 for n blocks in each stage: 10, 16, 22, 28 …
        width: how many times as wide as the narrowest.
        image: channels, rows and columns; 4 divides the last two.
        num_classes: length of the output.
        last_layer: makes the last layer of its numbers of inputs and outputs.
        scaling: of the pixels; None for none.

    Raises:
        SizeError: if there is no such network.

    Reference:
        Zagoruyko & Komodakis (2016), arXiv:1605.07146 (the shape).
    """

    def __init__(
        self,
        depth: int,
        width: int,
        *,
        image: ImageShape = (3, 32, 32),
        num_classes: int = 10,
        last_layer: LastLayer = OrthogonalLinear,
        scaling: InputScaling | None = None,
    ) -> None:
        blocks, rest = divmod(depth - 4, 6)
        if rest or blocks < 1 or width < 1:
            raise SizeError(
                f"WideResNet: the depth must be 6n + 4 with n at least 1 (10, 16, 22 …) and the "
                f"width at least 1, got depth {depth} and width {width}."
            )
        require_sizes("WideResNet", image, 4, 16)
        channels, rows, columns = image
        features = nn.Sequential(
            OrthogonalConv2d(channels, 16, 3),
            MaxMin(),
            _stage(16, 16 * width, blocks),
            NormPreservingPool(2),
            _stage(16 * width, 32 * width, blocks),
            NormPreservingPool(2),
            _stage(32 * width, 64 * width, blocks),
            NormPreservingPool((rows // 4, columns // 4)),
            nn.Flatten(),
        )
        super().__init__(features, last_layer(64 * width, num_classes), scaling)


def _stage(in_channels: int, channels: int, num_blocks: int) -> nn.Sequential:
    inputs = [in_channels, *[channels] * (num_blocks - 1)]
    return nn.Sequential(*(residual(size, channels) for size in inputs))
