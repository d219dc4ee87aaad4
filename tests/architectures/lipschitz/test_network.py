"""Networks of norm-preserving parts: nothing is stretched, from images to logits."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from rankscope.architectures.lipschitz.lip_convnet import LipConvNet
from rankscope.architectures.lipschitz.network import LipschitzNetwork
from rankscope.architectures.lipschitz.resnet9 import ResNet9
from rankscope.architectures.lipschitz.wide_resnet import WideResNet
from rankscope.errors import SizeError
from rankscope.layers.norm_preserving.last_layer import NormalizedLinear
from rankscope.layers.norm_preserving.linear import OrthogonalLinear
from rankscope.layers.norm_preserving.scaling import InputScaling
from rankscope.layers.orthogonal.convolution import OrthogonalConv2d

IMAGE = (2, 16, 32)
MAKERS: dict[str, Callable[[], LipschitzNetwork]] = {
    "ResNet9": lambda: ResNet9(IMAGE, width=2, num_classes=3),
    "scaled ResNet9": lambda: ResNet9(
        IMAGE, width=2, last_layer=NormalizedLinear, scaling=InputScaling((0.5, 0.4), (0.25, 0.5))
    ),
    "WideResNet": lambda: WideResNet(10, 1, image=IMAGE, num_classes=5),
    "LipConvNet": lambda: LipConvNet(8, width=2, num_blocks=4, image=IMAGE),
    "orthogonal LipConvNet": lambda: LipConvNet(
        3, width=2, num_blocks=3, image=IMAGE, last_layer=OrthogonalLinear
    ),
}
CONSTANTS = {"ResNet9": 1.0, "WideResNet": 1.0, "orthogonal LipConvNet": 1.0}


def moved(name: str, seed: int) -> LipschitzNetwork:
    """In float64, away from where it started."""
    model = MAKERS[name]().double()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    return model


@pytest.mark.parametrize("name", MAKERS)
@settings(deadline=None, max_examples=4)
@given(seed=st.integers(0, 2**32), scale=st.sampled_from([1e-4, 1.0]))
def test_logits_never_come_apart_faster_than_the_constant_says(
    name: str, seed: int, scale: float
) -> None:
    model = moved(name, seed)
    generator = torch.Generator().manual_seed(seed)
    images = torch.rand(1, *IMAGE, dtype=torch.float64, generator=generator)
    step = scale * torch.randn(1, *IMAGE, dtype=torch.float64, generator=generator)
    with torch.no_grad():
        change = model(images + step) - model(images)
    assert change.norm() <= model.lipschitz_constant * step.norm() * (1 + 1e-9)


@pytest.mark.parametrize("name", MAKERS)
def test_no_gradient_of_all_logits_is_longer_than_the_constant(name: str) -> None:
    model = moved(name, 0).requires_grad_(requires_grad=False)
    images = torch.rand(1, *IMAGE, dtype=torch.float64)
    jacobian = torch.func.jacrev(model)(images).reshape(-1, images.numel())
    assert torch.linalg.matrix_norm(jacobian, 2) <= model.lipschitz_constant * (1 + 1e-9)


def test_chains_without_skips_keep_the_norms_of_gradients() -> None:
    model = moved("orthogonal LipConvNet", 0).requires_grad_(requires_grad=False)
    images = torch.rand(1, *IMAGE, dtype=torch.float64)
    logits, pull_back = torch.func.vjp(model, images)[:2]
    upstream = torch.randn_like(logits)
    (gradient,) = pull_back(upstream)
    torch.testing.assert_close(gradient.norm(), upstream.norm())


@pytest.mark.parametrize(("name", "constant"), CONSTANTS.items())
def test_the_constant_is_one_by_construction(name: str, constant: float) -> None:
    assert MAKERS[name]().lipschitz_constant == constant


def test_scaling_and_a_normalized_last_layer_count() -> None:
    model = MAKERS["scaled ResNet9"]()
    assert isinstance(model.last, NormalizedLinear)
    assert model.lipschitz_constant == 4 * model.last.lipschitz_constant


def test_every_layer_with_weights_is_counted_in_the_depth() -> None:
    def count(model: nn.Module) -> int:
        return sum(
            isinstance(part, OrthogonalConv2d | OrthogonalLinear | NormalizedLinear)
            for part in model.modules()
        )

    # A wide network counts its shortcuts instead of the linear map, as published.
    assert count(WideResNet(10, 2, image=IMAGE)) == 1 + 3 * 2 + 3 + 1
    assert count(WideResNet(16, 1, image=IMAGE)) == 1 + 6 * 2 + 2 + 1
    assert count(ResNet9(IMAGE, width=2)) == 9 + 1
    assert count(LipConvNet(8, width=2, num_blocks=4, image=IMAGE)) == 8 + 1


def test_sizes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(SizeError, match="sizes that 16 divides, got 3 channels of 32 x 24"):
        ResNet9((3, 32, 24))
    with pytest.raises(SizeError, match="must be even and positive, got 5"):
        ResNet9(width=5)
    with pytest.raises(SizeError, match="got depth 12 and width 1"):
        WideResNet(12, 1)
    with pytest.raises(SizeError, match="got depth 10 and width 0"):
        WideResNet(10, 0)
    with pytest.raises(SizeError, match="sizes that 4 divides, got 0 channels of 8 x 8"):
        WideResNet(10, 1, image=(0, 8, 8))
    with pytest.raises(SizeError, match="multiple of its 5 blocks, got 7"):
        LipConvNet(7)
    with pytest.raises(SizeError, match="sizes that 32 divides, got 3 channels of 48 x 32"):
        LipConvNet(5, image=(3, 48, 32))
