import pytest

from rankscope.errors import SizeError
from rankscope.robust import LipConvNet, OrthogonalConv2d


def test_every_block_doubles_the_channels_and_halves_the_image_at_its_end() -> None:
    model = LipConvNet(6, width=2, num_blocks=3, image=(1, 8, 24))
    layers = [part for part in model.modules() if isinstance(part, OrthogonalConv2d)]
    channels = [(layer.in_channels, layer.out_channels) for layer in layers]
    assert channels == [(1, 2), (2, 2), (2, 4), (4, 4), (4, 8), (8, 8)]
    assert [layer.stride for layer in layers] == [(1, 1), (2, 2)] * 3
    assert model.last.in_features == 8 * 1 * 3


def test_networks_that_do_not_exist_are_refused() -> None:
    with pytest.raises(SizeError, match="multiple of its 5 blocks, got 7"):
        LipConvNet(7)
    with pytest.raises(SizeError, match="multiple of its 5 blocks, got 0"):
        LipConvNet(0)
    with pytest.raises(SizeError, match="sizes that 32 divides, got 3 channels of 48 x 32"):
        LipConvNet(5, image=(3, 48, 32))
