"""Image networks under the names of their public weights: digits, ResNet, VGG and wide ResNet."""

from torch import Tensor, nn

from rankscope.errors import SizeError

# --- A small convolutional network for scikit-learn's digits; its weights come with the package


class DigitsNetwork(nn.Module):
    """Three convolutions and a linear map, for images of 8 x 8 pixels."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 3, padding=1)
        self.conv2 = nn.Conv2d(16, 32, 3, padding=1)
        self.conv3 = nn.Conv2d(32, 32, 3, padding=1)
        self.linear = nn.Linear(32 * 4 * 4, 10)

    def forward(self, images: Tensor) -> Tensor:
        """Grey values in 0..1, (batch, 1, 8, 8), to logits (batch, 10)."""
        features = self.conv2(self.conv1(images).relu()).relu()
        features = self.conv3(nn.functional.max_pool2d(features, 2)).relu()
        logits: Tensor = self.linear(features.flatten(1))
        return logits


# --- Residual networks for CIFAR-10 as published --------------------------------------------------


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


# --- VGG-16 with batch normalization, in its usual form for CIFAR-10 ------------------------------


_CHANNELS = ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512))


class VGG16(nn.Module):
    """Thirteen convolutions in five groups, half the pixels after each, and three linear maps.

    Example:
        >>> sum(weight.numel() for weight in VGG16().parameters())
        15253578
    """

    def __init__(self, *, num_classes: int = 10) -> None:
        super().__init__()
        parts: list[nn.Module] = []
        before = 3
        for group in _CHANNELS:
            for channels in group:
                convolution = nn.Conv2d(before, channels, 3, padding=1)
                parts += [convolution, nn.BatchNorm2d(channels), nn.ReLU()]
                before = channels
            parts.append(nn.MaxPool2d(2))
        self.features = nn.Sequential(*parts)
        self.classifier = nn.Sequential(
            *(nn.Linear(before, 512), nn.ReLU(), nn.Dropout()),
            *(nn.Linear(512, 512), nn.ReLU(), nn.Dropout()),
            nn.Linear(512, num_classes),
        )

    def forward(self, images: Tensor) -> Tensor:
        """(batch, 3, 32, 32) to logits (batch, classes)."""
        logits: Tensor = self.classifier(self.features(images).flatten(1))
        return logits


# --- Wide residual networks as published: normalization and activation come before convolutions


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
        self.stage1 = _stage_wide_resnet(16, channels[0], blocks, stride=1)
        self.stage2 = _stage_wide_resnet(channels[0], channels[1], blocks, stride=2)
        self.stage3 = _stage_wide_resnet(channels[1], channels[2], blocks, stride=2)
        self.bn = nn.BatchNorm2d(channels[2])
        self.linear = nn.Linear(channels[2], num_classes)

    def forward(self, images: Tensor) -> Tensor:
        """(batch, channels, rows, columns) to logits (batch, classes)."""
        features = self.stage3(self.stage2(self.stage1(self.conv1(images))))
        logits: Tensor = self.linear(self.bn(features).relu().mean(dim=(2, 3)))
        return logits


def _stage_wide_resnet(
    in_channels: int, channels: int, num_blocks: int, *, stride: int
) -> nn.Sequential:
    first = WideBlock(in_channels, channels, stride)
    return nn.Sequential(first, *(WideBlock(channels, channels, 1) for _ in range(num_blocks - 1)))
