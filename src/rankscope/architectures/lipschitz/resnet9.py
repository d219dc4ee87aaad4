"""A residual network of nine layers that preserves distances or shrinks them."""

from torch import nn

from rankscope.architectures.lipschitz.network import (
    ImageShape,
    LastLayer,
    LipschitzNetwork,
    require_sizes,
    residual,
)
from rankscope.layers.norm_preserving.linear import OrthogonalLinear
from rankscope.layers.norm_preserving.pooling import NormPreservingPool
from rankscope.layers.norm_preserving.scaling import InputScaling
from rankscope.layers.norm_preserving.sorting import MaxMin
from rankscope.layers.orthogonal.convolution import OrthogonalConv2d


class ResNet9(LipschitzNetwork):
    """Convolutions w, 2w, residual, 4w, 8w, residual, four poolings, and two linear layers.

    Lipschitz constant 1 by construction, times that of the scaling and of the last layer.

    Args:
        image: channels, rows and columns; 16 divides the last two.
        width: channels of the first layer, an even number; published with 64.
        num_classes: length of the output.
        last_layer: makes the last layer of its numbers of inputs and outputs.
        scaling: of the pixels; None for none.

    Raises:
        SizeError: if the sizes do not fit.

    Reference:
        Su, Byeon & Huang (2022), arXiv:2106.09121 (the network; as read in its code).
    """

    def __init__(
        self,
        image: ImageShape = (3, 32, 32),
        *,
        width: int = 64,
        num_classes: int = 10,
        last_layer: LastLayer = OrthogonalLinear,
        scaling: InputScaling | None = None,
    ) -> None:
        require_sizes("ResNet9", image, 16, width)
        channels, rows, columns = image
        wide = 8 * width
        features = nn.Sequential(
            *_convolution(channels, width),
            *_convolution(width, 2 * width),
            NormPreservingPool(2),
            residual(2 * width, 2 * width),
            *_convolution(2 * width, 4 * width),
            NormPreservingPool(2),
            *_convolution(4 * width, wide),
            NormPreservingPool(2),
            residual(wide, wide),
            NormPreservingPool(2),
            nn.Flatten(),
            OrthogonalLinear(wide * (rows // 16) * (columns // 16), wide),
            MaxMin(),
        )
        super().__init__(features, last_layer(wide, num_classes), scaling)


def _convolution(in_channels: int, channels: int) -> tuple[nn.Module, nn.Module]:
    return OrthogonalConv2d(in_channels, channels, 3), MaxMin()
