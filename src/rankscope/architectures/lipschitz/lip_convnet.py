"""Chains of orthogonal convolutions, without skips or pooling."""

from torch import nn

from rankscope.architectures.lipschitz.network import (
    ImageShape,
    LastLayer,
    LipschitzNetwork,
    require_sizes,
)
from rankscope.errors import SizeError
from rankscope.layers.norm_preserving.last_layer import NormalizedLinear
from rankscope.layers.norm_preserving.scaling import InputScaling
from rankscope.layers.norm_preserving.sorting import MaxMin
from rankscope.layers.orthogonal.convolution import OrthogonalConv2d


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
