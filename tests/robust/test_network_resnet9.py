import pytest
import torch

from rankscope.errors import SizeError
from rankscope.robust import OrthogonalConv2d, OrthogonalLinear, ResNet9


def test_it_has_eight_convolutions_and_two_linear_maps() -> None:
    model = ResNet9((2, 16, 32), width=2)
    parts = list(model.modules())
    assert sum(isinstance(part, OrthogonalConv2d) for part in parts) == 8
    sizes = [
        (part.in_features, part.out_features)
        for part in parts
        if isinstance(part, OrthogonalLinear)
    ]
    assert sizes == [(16 * 1 * 2, 16), (16, 10)]
    assert model(torch.rand(3, 2, 16, 32)).shape == (3, 10)


def test_sizes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(SizeError, match="sizes that 16 divides, got 3 channels of 32 x 24"):
        ResNet9((3, 32, 24))
    with pytest.raises(SizeError, match="must be even and positive, got 5"):
        ResNet9(width=5)
