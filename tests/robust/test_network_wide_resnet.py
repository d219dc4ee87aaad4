import pytest
import torch

from rankscope.errors import SizeError
from rankscope.robust import ConvexSkip, OrthogonalConv2d, WideResNet


@pytest.mark.parametrize(("depth", "width"), [(10, 2), (16, 1)])
def test_its_depth_counts_the_first_layer_two_in_each_block_and_three_more(
    depth: int, width: int
) -> None:
    model = WideResNet(depth, width, image=(1, 8, 12))
    blocks = [part for part in model.modules() if isinstance(part, ConvexSkip)]
    kernels = [part.kernel_size for part in model.modules() if isinstance(part, OrthogonalConv2d)]
    assert depth == 1 + 2 * len(blocks) + 3
    assert kernels.count((3, 3)) == 1 + 2 * len(blocks)
    # Where channels change: always into the second and third stage, into the first if it is wide.
    assert kernels.count((1, 1)) == (2 if width == 1 else 3)
    assert model.last.in_features == 64 * width
    assert model(torch.rand(3, 1, 8, 12)).shape == (3, 10)


def test_networks_that_do_not_exist_are_refused() -> None:
    with pytest.raises(SizeError, match="got depth 12 and width 1"):
        WideResNet(12, 1)
    with pytest.raises(SizeError, match="got depth 4 and width 1"):
        WideResNet(4, 1)
    with pytest.raises(SizeError, match="got depth 10 and width 0"):
        WideResNet(10, 0)
    with pytest.raises(SizeError, match="sizes that 4 divides, got 0 channels of 8 x 8"):
        WideResNet(10, 1, image=(0, 8, 8))
