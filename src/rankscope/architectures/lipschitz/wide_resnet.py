"""Wide residual networks that preserve distances or shrink them."""

from torch import nn

from rankscope.architectures.lipschitz.network import (
    ImageShape,
    LastLayer,
    LipschitzNetwork,
    require_sizes,
    residual,
)
from rankscope.errors import SizeError
from rankscope.layers.norm_preserving.linear import OrthogonalLinear
from rankscope.layers.norm_preserving.pooling import NormPreservingPool
from rankscope.layers.norm_preserving.scaling import InputScaling
from rankscope.layers.norm_preserving.sorting import MaxMin
from rankscope.layers.orthogonal.convolution import OrthogonalConv2d


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
