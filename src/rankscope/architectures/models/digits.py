"""A small convolutional network for scikit-learn's digits; its weights come with the package."""

from torch import Tensor, nn


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
