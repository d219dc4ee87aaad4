"""Residual networks for CIFAR-10 as published.

He et al. (2015), arXiv:1512.03385, section 4.2, with shortcuts that pad by zeros (option A); the
names of the parts are those of github.com/akamaster/pytorch_resnet_cifar10.
"""

from torch import Tensor, nn

from rankscope.errors import SizeError


class BasicBlock(nn.Module):
    """Two convolutions, added to the input; half the pixels where there are more channels."""

    def __init__(self, in_channels: int, channels: int) -> None:
        super().__init__()
        self.stride = 1 if in_channels == channels else 2
        self.padding = (channels - in_channels) // 2
        self.conv1 = nn.Conv2d(in_channels, channels, 3, self.stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)

    def forward(self, images: Tensor) -> Tensor:
        """(batch, channels, rows, columns) to the same, or to twice the channels."""
        changed: Tensor = self.bn2(self.conv2(self.bn1(self.conv1(images)).relu_()))
        # In place: of a small network, half of the time is spent on memory.
        changed += self._shortcut(images)
        return changed.relu_()

    def _shortcut(self, images: Tensor) -> Tensor:
        if self.stride == 1:
            return images  # padding by nothing would copy it
        kept = images[:, :, :: self.stride, :: self.stride]
        return nn.functional.pad(kept, (0, 0, 0, 0, self.padding, self.padding))


class ResNet(nn.Module):
    """A convolution, three stages of basic blocks, and a linear map.

    Args:
        depth: layers with weights, 6n + 2 for n blocks in each stage: 20, 32, 44, 56, 110 …
        width: channels of the first stage, an even number; the others have twice and four times
            as many.
        num_classes: length of the output.

    Example:
        >>> sum(weight.numel() for weight in ResNet(32).parameters())
        464154

    Raises:
        SizeError: if there is no such network.
    """

    def __init__(self, depth: int, *, width: int = 16, num_classes: int = 10) -> None:
        super().__init__()
        blocks, rest = divmod(depth - 2, 6)
        if rest or blocks < 1:
            raise SizeError(
                f"ResNet: the depth must be 6n + 2 with n at least 1 (8, 14, 20, 26, 32 …), "
                f"got {depth}."
            )
        if width < 2 or width % 2:
            raise SizeError(
                f"ResNet: the width must be even and positive, as shortcuts pad by half of it on "
                f"either side; got {width}."
            )
        self.conv1 = nn.Conv2d(3, width, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.layer1 = _stage(width, width, blocks)
        self.layer2 = _stage(width, 2 * width, blocks)
        self.layer3 = _stage(2 * width, 4 * width, blocks)
        self.linear = nn.Linear(4 * width, num_classes)

    def forward(self, images: Tensor) -> Tensor:
        """(batch, 3, rows, columns) to logits (batch, classes)."""
        features = self.bn1(self.conv1(images)).relu_()
        features = self.layer3(self.layer2(self.layer1(features)))
        logits: Tensor = self.linear(features.mean(dim=(2, 3)))
        return logits


def _stage(in_channels: int, channels: int, num_blocks: int) -> nn.Sequential:
    inputs = [in_channels, *[channels] * (num_blocks - 1)]
    return nn.Sequential(*(BasicBlock(size, channels) for size in inputs))
