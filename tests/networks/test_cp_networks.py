"""Networks with CP layers: as many parameters, or the same function."""

from typing import Any

import pytest
import torch
from torch import nn

from rankscope.factorize import FactorizedConv2d, FactorizedLinear
from rankscope.networks import VGG16, ResNet, WideResNet, build, in_cp_form, with_cp_layers


def saved(module: nn.Conv2d | nn.Linear) -> int:
    """Parameters of the dense layer less those of the CP layer of matched rank."""
    out_size, in_size, *kernel = module.weight.shape
    places = kernel[0] * kernel[1] if kernel and kernel != [1, 1] else 0
    unit = out_size + in_size + places
    rank = max(1, round(module.weight.numel() / (unit + 1)))
    return module.weight.numel() - rank * unit


@pytest.mark.parametrize(
    ("model", "name"),
    [
        (ResNet(20), "cp-resnet20"),
        (VGG16(), "cp-vgg16-bn"),
        (WideResNet(28, 10), "cp-wide-resnet-28-10"),
    ],
)
def test_cp_networks_have_nearly_as_many_parameters(model: nn.Module, name: str) -> None:
    """All layers but the first and the last, each rounded to the nearest rank."""
    layers = [m for m in model.modules() if isinstance(m, nn.Conv2d | nn.Linear)]
    count = sum(weight.numel() for weight in model.parameters())
    expected = count - sum(map(saved, layers[1:-1]))
    found = sum(weight.numel() for weight in build(name).parameters())
    assert found == expected
    assert abs(found - count) < 0.02 * count


def test_the_first_and_the_last_layer_stay_unless_asked() -> None:
    model: Any = nn.Sequential(
        nn.Conv2d(2, 4, 3), nn.ReLU(), nn.Conv2d(4, 4, 3), nn.Flatten(), nn.Linear(16, 3)
    )
    twin: Any = with_cp_layers(model)
    every: Any = with_cp_layers(model, keep_ends=False)
    kinds = [type(part) for part in twin if part not in (twin[1], twin[3])]
    assert kinds == [nn.Conv2d, FactorizedConv2d, nn.Linear]
    assert torch.equal(twin[0].weight, model[0].weight)
    assert isinstance(every[0], FactorizedConv2d)
    assert isinstance(every[4], FactorizedLinear)
    assert isinstance(model[2], nn.Conv2d)


def test_ranks_settings_and_seeds_are_those_asked_for() -> None:
    dense = nn.Conv2d(3, 4, (3, 5), stride=2, padding="valid", dilation=(1, 2), bias=False)
    model = nn.Sequential(dense)
    twin: Any = with_cp_layers(model, rank=lambda shape: shape.in_size, seed=1, keep_ends=False)
    layer = twin[0]
    assert isinstance(layer, FactorizedConv2d)
    assert layer.ranks == (3,)
    assert layer.bias is None
    images = torch.randn(2, 3, 11, 17)
    assert layer(images).shape == dense(images).shape
    again: Any = with_cp_layers(model, rank=lambda shape: shape.in_size, seed=1, keep_ends=False)
    other: Any = with_cp_layers(model, rank=lambda shape: shape.in_size, seed=2, keep_ends=False)
    assert torch.equal(layer.to_dense().weight, again[0].to_dense().weight)
    assert not torch.equal(layer.to_dense().weight, other[0].to_dense().weight)


def test_the_cp_form_computes_the_same() -> None:
    model = build("digits").double()
    images = torch.rand(3, 1, 8, 8, dtype=torch.float64)
    twin = in_cp_form(model)
    assert not any(type(part) in (nn.Conv2d, nn.Linear) for part in twin.modules())
    torch.testing.assert_close(twin(images), model(images))


def test_groups_stay_dense_and_a_layer_alone_is_replaced() -> None:
    grouped = nn.Sequential(nn.Conv2d(4, 4, 3, groups=2), nn.Conv2d(4, 4, 3))
    twin: Any = in_cp_form(grouped)
    assert [type(part) for part in twin] == [nn.Conv2d, FactorizedConv2d]
    alone = nn.Linear(4, 3)
    assert isinstance(in_cp_form(alone), FactorizedLinear)
    assert isinstance(with_cp_layers(alone), nn.Linear)
