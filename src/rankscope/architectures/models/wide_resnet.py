"""Wide residual networks as published: normalization and activation come before convolutions.

Zagoruyko & Komodakis (2016), arXiv:1605.07146, table 1, without dropout.
"""

from torch import Tensor, nn

from rankscope.errors import SizeError


class WideBlock(nn.Module):
    """Two convolutions, added to the input, which a 1 x 1 convolution fits where sizes change."""

    def __init__(self, in_channels: int, channels: int, stride: int) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(in_channels)
        self.conv1 = nn.Conv2d(in_channels, channels, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.shortcut: nn.Module | None = None
        if stride != 1 or in_channels != channels:
            self.shortcut = nn.Conv2d(in_channels, channels, 1, stride, bias=False)

    def forward(self, images: Tensor) -> Tensor:
        """(batch, channels, rows, columns) to the same, or to other channels and fewer pixels."""
        active = self.bn1(images).relu()
        changed = self.conv2(self.bn2(self.conv1(active)).relu())
        kept = images if self.shortcut is None else self.shortcut(active)
        outputs: Tensor = changed + kept
        return outputs


class WideResNet(nn.Module):
    """A convolution, three stages of blocks, and a linear map.

    The stages have 16, 32 and 64 times `width` channels.

    Args:
        depth: layers with weights, 6n + 4 for n blocks in each stage: 10, 16, 22, 28 …
        width: how many times as wide as the narrowest.
        in_channels: of the images.
        num_classes: length of the output.

    Example:
        >>> sum(weight.numel() for weight in WideResNet(28, 10).parameters())
        36479194

    Raises:
        SizeError: if there is no such network.
    """

    def __init__(
        self, depth: int, width: int, *, in_channels: int = 3, num_classes: int = 10
    ) -> None:
        super().__init__()
        blocks, rest = divmod(depth - 4, 6)
        if rest or blocks < 1 or width < 1:
            raise SizeError(
                f"WideResNet: the depth must be 6n + 4 with n at least 1 (10, 16, 22 …) and the "
                f"width at least 1, got depth {depth} and width {width}."
            )
        channels = (16 * width, 32 * width, 64 * width)
        self.conv1 = nn.Conv2d(in_channels, 16, 3, padding=1, bias=False)
        self.stage1 = _stage(16, channels[0], blocks, stride=1)
        self.stage2 = _stage(channels[0], channels[1], blocks, stride=2)
        self.stage3 = _stage(channels[1], channels[2], blocks, stride=2)
        self.bn = nn.BatchNorm2d(channels[2])
        self.linear = nn.Linear(channels[2], num_classes)

    def forward(self, images: Tensor) -> Tensor:
        """(batch, channels, rows, columns) to logits (batch, classes)."""
        features = self.stage3(self.stage2(self.stage1(self.conv1(images))))
        logits: Tensor = self.linear(self.bn(features).relu().mean(dim=(2, 3)))
        return logits


def _stage(in_channels: int, channels: int, num_blocks: int, *, stride: int) -> nn.Sequential:
    first = WideBlock(in_channels, channels, stride)
    return nn.Sequential(first, *(WideBlock(channels, channels, 1) for _ in range(num_blocks - 1)))
