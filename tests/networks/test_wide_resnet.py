"""Wide residual networks."""

import pytest
import torch

from rankscope.errors import SizeError
from rankscope.networks import WideBlock, WideResNet


def test_blocks_add_and_only_fit_the_input_where_sizes_change() -> None:
    block = WideBlock(4, 4, 1).eval()
    assert block.shortcut is None
    torch.nn.init.zeros_(block.conv2.weight)
    images = torch.randn(2, 4, 6, 6)
    assert torch.equal(block(images), images)
    wider = WideBlock(4, 8, 2).eval()
    assert wider(images).shape == (2, 8, 3, 3)


def test_sizes_follow_depth_and_width() -> None:
    model = WideResNet(16, 2, in_channels=1, num_classes=7).eval()
    convolutions = [m for m in model.modules() if isinstance(m, torch.nn.Conv2d)]
    # Of depth 16: a first one, two in each of six blocks, and three that fit shortcuts.
    assert len(convolutions) == 1 + 12 + 3
    assert max(layer.out_channels for layer in convolutions) == 128
    assert model(torch.zeros(2, 1, 8, 8)).shape == (2, 7)


@pytest.mark.parametrize(("depth", "width"), [(11, 1), (4, 1), (10, 0)])
def test_sizes_that_do_not_exist_are_refused(depth: int, width: int) -> None:
    with pytest.raises(SizeError, match=f"got depth {depth} and width {width}"):
        WideResNet(depth, width)
