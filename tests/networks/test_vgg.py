"""VGG-16 has the published size and torchvision's numbers."""

from itertools import pairwise

import torch
from torch import nn

from rankscope.networks import VGG16


def test_the_number_of_parameters_is_the_published_one() -> None:
    """15.25 M at github.com/chenyaofo/pytorch-cifar-models; counted here part by part."""
    channels = [3, 64, 64, 128, 128, *[256] * 3, *[512] * 6]
    pairs = pairwise(channels)
    convolutions = sum(9 * before * after + 3 * after for before, after in pairs)
    linear = 2 * (512 * 512 + 512) + 512 * 10 + 10
    with torch.device("meta"):
        model = VGG16()
    assert sum(w.numel() for w in model.parameters()) == convolutions + linear == 15_253_578


def test_parts_are_numbered_as_in_torchvision() -> None:
    with torch.device("meta"):
        model = VGG16()
    numbers = [n for n, part in enumerate(model.features) if isinstance(part, nn.Conv2d)]
    assert numbers == [0, 3, 7, 10, 14, 17, 20, 24, 27, 30, 34, 37, 40]
    linear = [n for n, part in enumerate(model.classifier) if isinstance(part, nn.Linear)]
    assert linear == [0, 3, 6]


def test_an_image_becomes_one_logit_for_each_class() -> None:
    assert VGG16(num_classes=4).eval()(torch.randn(2, 3, 32, 32)).shape == (2, 4)
