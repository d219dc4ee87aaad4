"""VGG-16 with batch normalization, in its usual form for CIFAR-10.

Simonyan & Zisserman (2014), arXiv:1409.1556, column D; for images of 32 x 32 pixels the three
linear maps have 512 channels. Parts are numbered as in torchvision, and as in the public CIFAR
weights of github.com/chenyaofo/pytorch-cifar-models (vgg16_bn, 15.25 M parameters).
"""

from torch import Tensor, nn

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
