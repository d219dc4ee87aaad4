"""A folded model computes what the model computed."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from rankscope.compression import compress, fold_normalizations
from rankscope.errors import CompressionError
from rankscope.factorize import FORMATS, FactorizedConv2d, WeightShape
from rankscope.networks import ResNet

PLAIN = ("svd", "cp", "tucker", "tensor-train", "tensor-ring")


def scrambled(model: nn.Module) -> nn.Module:
    """In inference mode, with statistics, factors and shifts that are not 0 or 1."""
    for module in model.modules():
        if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d):
            module.running_mean = torch.randn(module.num_features)
            module.running_var = torch.rand(module.num_features) + 0.5
            nn.init.normal_(module.weight)
            nn.init.normal_(module.bias)
    return model.double().eval()


@pytest.mark.slow
@settings(deadline=None, max_examples=15)
@given(name=st.sampled_from(PLAIN), groups=st.integers(1, 2), bias=st.booleans())
def test_a_factorized_convolution_takes_over_its_normalization(
    name: str, groups: int, *, bias: bool
) -> None:
    dense = nn.Conv2d(3 * groups, 4 * groups, 3, padding=1, groups=groups, bias=bias)
    format, shape = FORMATS[name], WeightShape(4, 3, (3, 3))
    layer = FactorizedConv2d.from_dense(dense, format, (2,) * len(format.max_ranks(shape)))
    model = scrambled(nn.Sequential(layer, nn.BatchNorm2d(4 * groups), nn.ReLU()))
    images = torch.randn(2, 3 * groups, 5, 5, dtype=torch.float64)
    found = fold_normalizations(model, images)
    assert (found.folded, found.left) == ({"1": "0"}, {})
    torch.testing.assert_close(found.model(images), model(images))


@pytest.mark.slow
def test_a_whole_network_is_folded_dense_and_compressed() -> None:
    torch.manual_seed(0)
    dense = scrambled(ResNet(8))
    images = torch.randn(2, 3, 16, 16, dtype=torch.float64)
    for model in (dense, compress(dense, 0.3).model.eval()):
        found = fold_normalizations(model, images)
        assert len(found.folded) == 7
        assert not found.left
        assert not any(isinstance(module, nn.BatchNorm2d) for module in found.model.modules())
        torch.testing.assert_close(found.model(images), model(images))
    assert isinstance(dense.get_submodule("bn1"), nn.BatchNorm2d)


def test_a_linear_layer_takes_over_its_normalization() -> None:
    model = scrambled(nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5)))
    inputs = torch.randn(3, 6, dtype=torch.float64)
    found = fold_normalizations(model, inputs)
    assert found.folded == {"1": "0"}
    torch.testing.assert_close(found.model(inputs), model(inputs))


def test_channels_of_a_normalization_that_are_not_outputs_of_the_layer_are_left() -> None:
    model = scrambled(nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(4)))
    found = fold_normalizations(model, (3, 4, 6))
    assert found.left == {"1": "its channels are not the outputs of 0"}


class Twice(nn.Module):
    """The convolution's outputs are used twice; one normalization is never run."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(2, 2, 1), nn.BatchNorm2d(2)
        self.idle = nn.BatchNorm2d(2)

    def forward(self, inputs: Tensor) -> Tensor:
        found: Tensor = self.conv(inputs)
        summed: Tensor = found + self.norm(found)
        return summed


@pytest.mark.slow
def test_what_cannot_be_folded_stays_with_the_reason() -> None:
    reshaped = FactorizedConv2d.from_dense(nn.Conv2d(4, 4, 3), FORMATS["r-cp"], (2,))
    quantized = FactorizedConv2d.from_dense(nn.Conv2d(4, 4, 3), FORMATS["svd"], (2,))
    quantized.quantize(8)
    shared = nn.Conv2d(2, 2, 1)
    cases: list[tuple[nn.Module, dict[str, str]]] = [
        (
            nn.Sequential(shared, nn.BatchNorm2d(2), shared, nn.BatchNorm2d(2)),
            dict.fromkeys(("1", "3"), "no layer alone feeds it"),
        ),
        (Twice(), {"norm": "no layer alone feeds it", "idle": "it is not run"}),
        (nn.Sequential(nn.ReLU(), nn.BatchNorm2d(2)), {"1": "0 before it is a ReLU"}),
        (
            nn.Sequential(nn.Conv2d(2, 2, 1), nn.BatchNorm2d(2, track_running_stats=False)),
            {"1": "it has no fixed statistics"},
        ),
        (
            nn.Sequential(reshaped, nn.BatchNorm2d(4)),
            {"1": "r-cp has no core that alone makes the channels of 0"},
        ),
        (
            nn.Sequential(quantized, nn.BatchNorm2d(4)),
            {"1": "the cores of 0 are stored in 8 bits"},
        ),
    ]
    for model, reasons in cases:
        width = 4 if isinstance(model, nn.Sequential) and model[0] in (reshaped, quantized) else 2
        found = fold_normalizations(model, (2, width, 5, 5))
        assert (found.folded, found.left) == ({}, reasons)


class Branching(nn.Module):
    """Which way it goes depends on the numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(2)

    def forward(self, inputs: Tensor) -> Tensor:
        found: Tensor = self.norm(inputs) if inputs.sum() > 0 else inputs
        return found


def test_a_model_that_cannot_be_traced_is_refused_by_name() -> None:
    with pytest.raises(CompressionError, match="Branching cannot be traced"):
        fold_normalizations(Branching(), (3, 2))
