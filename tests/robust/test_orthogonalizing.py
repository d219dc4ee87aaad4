"""Networks whose convolutions become orthogonal."""

import math
from collections.abc import Callable
from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.reading.zoo import four_block_resnet
from torch import Tensor, nn

from rankscope.errors import LayerError
from rankscope.networks import ResNet
from rankscope.robust import OrthogonalConv1d, OrthogonalConv2d, orthogonalize


def assert_orthogonal(layer: OrthogonalConv1d | OrthogonalConv2d) -> None:
    """The layer keeps norms if it has enough outputs, otherwise its adjoint does."""
    sizes = [4 * step for step in layer.stride]
    inputs = torch.randn(1, layer.in_channels, *sizes, requires_grad=True)
    outputs = layer(inputs)
    if layer.bias is not None:
        outputs = outputs - layer.bias.view(-1, *[1] * layer.axes)
    if layer.out_channels >= layer.in_channels * math.prod(layer.stride):
        torch.testing.assert_close(outputs.norm(), inputs.norm(), rtol=1e-4, atol=0)
        return
    given = torch.randn_like(outputs)
    (back,) = torch.autograd.grad(outputs, inputs, given)
    torch.testing.assert_close(back.norm(), given.norm(), rtol=1e-4, atol=0)


@pytest.mark.parametrize(
    ("make", "size"),
    [(partial(ResNet, 20), 32), (four_block_resnet, 64)],
    ids=["rankscope", "torchvision"],
)
def test_all_convolutions_of_a_resnet_become_orthogonal(
    make: Callable[[], nn.Module], size: int
) -> None:
    model = make()
    changed = orthogonalize(model.eval(), steps=0)
    inputs = torch.randn(1, 3, size, size)
    assert changed(inputs).shape == model(inputs).shape
    old = [layer for layer in model.modules() if isinstance(layer, nn.Conv2d)]
    new = [layer for layer in changed.modules() if isinstance(layer, OrthogonalConv2d)]
    assert len(new) == len(old)
    assert not any(isinstance(layer, nn.Conv2d) for layer in changed.modules())
    for layer in new:
        assert_orthogonal(layer)


def similarity(first: Tensor, second: Tensor) -> float:
    return float((first * second).sum() / first.norm() / second.norm())


@settings(deadline=None, max_examples=20)
@given(
    channels=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    kernel=st.integers(1, 4),
    stride=st.integers(1, 3),
    groups=st.integers(1, 2),
    axes=st.integers(1, 2),
)
def test_every_shape_is_orthogonal_and_in_place(
    channels: tuple[int, int], kernel: int, stride: int, groups: int, axes: int
) -> None:
    torch.manual_seed(0)
    convolution = (nn.Conv1d, nn.Conv2d)[axes - 1]
    padding = (kernel - 1) // 2
    layer = convolution(
        channels[0] * groups, channels[1] * groups, kernel, stride, padding, groups=groups
    )
    if not kernel - stride <= 2 * padding:
        with pytest.raises(LayerError, match="changes sizes other than by the stride"):
            orthogonalize(layer)
        return
    changed = orthogonalize(layer, steps=2)
    assert isinstance(changed, OrthogonalConv1d | OrthogonalConv2d)
    assert_orthogonal(changed)
    inputs = torch.randn(2, layer.in_channels, *[4 * stride] * axes)
    assert changed(inputs).shape == layer(inputs).shape
    # With the new kernel the old layer gives the same values where it does not see an edge.
    if kernel >= stride:
        layer.weight.data.copy_(changed.weight())
        inside = (slice(None), slice(None), *[slice(1, 2)] * axes)
        inputs = torch.randn(2, layer.in_channels, *[12] * axes)
        if 12 % stride == 0 and padding <= stride * (kernel - 1):
            margin = 4 // stride
            inside = (slice(None), slice(None), *[slice(margin, 12 // stride - margin)] * axes)
        before = changed.margins[0][0]
        if before == padding:
            torch.testing.assert_close(
                changed(inputs)[inside], layer(inputs)[inside], rtol=1e-4, atol=1e-5
            )


def test_a_single_tap_becomes_its_polar_factor() -> None:
    layer = nn.Conv2d(5, 5, 1)
    left, _, right = torch.linalg.svd(layer.weight.detach()[:, :, 0, 0])
    changed = orthogonalize(layer)
    assert isinstance(changed, OrthogonalConv2d)
    torch.testing.assert_close(changed.weight()[:, :, 0, 0], left @ right, rtol=1e-3, atol=1e-4)


def test_an_orthogonal_kernel_is_nearly_kept_and_steps_come_nearer() -> None:
    torch.manual_seed(1)
    layer = nn.Conv2d(4, 4, 3, padding=1, bias=False)
    near = []
    for steps in (0, 10, 40):
        changed = orthogonalize(layer, steps=steps)
        assert isinstance(changed, OrthogonalConv2d)
        near.append(similarity(changed.weight().detach(), layer.weight.detach()))
    assert near[0] < near[1] <= near[2] + 1e-6
    shifted = nn.Conv2d(4, 4, 3, padding=1, bias=False)
    shifted.weight.data = torch.zeros(4, 4, 3, 3)
    shifted.weight.data[:, :, 1, 1] = torch.linalg.qr(torch.randn(4, 4))[0]
    changed = orthogonalize(shifted, steps=100)
    assert isinstance(changed, OrthogonalConv2d)
    assert similarity(changed.weight().detach(), shifted.weight.detach()) > 0.9


def test_the_model_is_left_alone_and_the_copy_can_be_trained() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3, padding="same"), nn.BatchNorm2d(4))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    changed = orthogonalize(model)
    for name, value in model.state_dict().items():
        torch.testing.assert_close(value, before[name])
    changed(torch.randn(2, 3, 8, 8)).square().sum().backward()
    for parameter in changed.parameters():
        assert parameter.grad is not None


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (nn.Linear(2, 2), "Linear has no convolution"),
        (nn.Sequential(nn.ConvTranspose2d(2, 2, 2)), "'0' is a ConvTranspose2d"),
        (nn.Sequential(nn.Conv3d(2, 2, 1)), "'0' is a Conv3d"),
        (nn.Sequential(nn.Conv2d(2, 2, 3)), r"'0' has kernel \(3, 3\).*padding \(0, 0\)"),
        (
            nn.Sequential(nn.Conv1d(2, 2, 3, stride=2, dilation=2, padding=2)),
            "'0' cannot be orthogonal. .*stride",
        ),
    ],
)
def test_what_cannot_be_orthogonal_is_refused_by_name(model: nn.Module, message: str) -> None:
    with pytest.raises(LayerError, match=message):
        orthogonalize(model)


def test_steps_below_zero_and_kernels_of_zero_are_refused() -> None:
    layer = nn.Conv2d(2, 2, 1)
    with pytest.raises(LayerError, match="at least 0, got -1"):
        orthogonalize(layer, steps=-1)
    layer.weight.data.zero_()
    with pytest.raises(LayerError, match="0 or not finite"):
        orthogonalize(layer)
