"""Residual networks have the published sizes, and shortcuts without weights."""

import pytest
import torch
from torch import nn

from rankscope.errors import SizeError
from rankscope.networks import BasicBlock, ResNet


@pytest.mark.parametrize(
    ("depth", "parameters"),
    [(20, 269_722), (32, 464_154), (44, 658_586), (56, 853_018), (110, 1_727_962)],
)
def test_the_number_of_parameters_is_the_published_one(depth: int, parameters: int) -> None:
    """As counted by github.com/akamaster/pytorch_resnet_cifar10: 0.27, 0.46, 0.66, 0.85, 1.7 M."""
    with torch.device("meta"):
        model = ResNet(depth)
    assert sum(weight.numel() for weight in model.parameters()) == parameters


def test_resnet32_has_460800_weights_in_the_convolutions_of_its_blocks() -> None:
    kernels = [m.weight for m in ResNet(32).modules() if isinstance(m, nn.Conv2d)]
    assert sum(kernel.numel() for kernel in kernels[1:]) == 460_800


@pytest.mark.parametrize(("in_channels", "channels"), [(6, 6), (4, 8)])
def test_a_block_without_its_convolutions_keeps_channels_between_zeros(
    in_channels: int, channels: int
) -> None:
    block = BasicBlock(in_channels, channels).eval()
    nn.init.zeros_(block.bn2.weight)
    images = torch.randn(2, in_channels, 8, 8)
    outputs = block(images)
    if in_channels == channels:
        torch.testing.assert_close(outputs, images.relu())
        return
    assert outputs.shape == (2, 8, 4, 4)
    torch.testing.assert_close(outputs[:, 2:6], images[:, :, ::2, ::2].relu())
    assert outputs[:, [0, 1, 6, 7]].count_nonzero() == 0


def test_an_image_becomes_one_logit_for_each_class() -> None:
    model = ResNet(8, width=4, num_classes=7)
    assert model(torch.randn(3, 3, 32, 32)).shape == (3, 7)


@pytest.mark.parametrize("depth", [2, 21, -4])
def test_a_depth_that_is_not_6n_plus_2_is_refused(depth: int) -> None:
    with pytest.raises(SizeError, match=rf"6n \+ 2 .* got {depth}\."):
        ResNet(depth)


@pytest.mark.parametrize("width", [0, 5])
def test_a_width_that_cannot_be_padded_evenly_is_refused(width: int) -> None:
    with pytest.raises(SizeError, match=rf"must be even .* got {width}\."):
        ResNet(20, width=width)
