"""Reading networks: what is folded, what is walked through, what is refused by name."""

from typing import Any

import pytest
import torch
from tests.generalize.strategies import IMAGE, drawn, random_network
from torch import Tensor, nn

from rankscope.errors import RobustnessError, UnsupportedModuleError
from rankscope.factorize import CPConv2d, CPLinear, FactorizedConv2d, SVDFormat
from rankscope.generalize import trace_layers
from rankscope.networks import WideResNet, build, in_cp_form


def test_running_a_walk_gives_what_the_model_gives() -> None:
    found = drawn(random_network(0, is_residual=True, has_normalization=True), 0)
    *_, (value, outputs) = found.trace.run(found.sample.inputs)
    assert value == found.trace.graph.output
    torch.testing.assert_close(outputs, found.model(found.sample.inputs))


def test_a_normalization_right_behind_a_layer_is_a_part_of_it() -> None:
    found = drawn(random_network(1, has_normalization=True), 1)
    layer = found.trace.layers[0]
    model: Any = found.model
    norm = model[1]
    scale = norm.weight / (norm.running_var + norm.eps).sqrt()
    expected = model[0].to_dense().weight * scale.detach()[:, None, None, None]
    torch.testing.assert_close(layer.components.to_dense(), expected.detach())
    weights = layer.components.weights
    assert (weights[:-1] >= weights[1:]).all()
    both = model[1](model[0](found.sample.inputs))
    linear = nn.functional.conv2d(found.sample.inputs, expected, padding=1)
    torch.testing.assert_close(linear + layer.constant(), both)


@pytest.mark.slow
def test_a_normalization_before_an_activation_is_walked_through_with_its_scale() -> None:
    """Pre-activation blocks: nothing to fold it into, so that its largest scale counts."""
    model = in_cp_form(WideResNet(10, 1, in_channels=1)).double().eval()
    trace = trace_layers(model, (1, 8, 8))
    assert len(trace.layers) == 1 + 3 * 2 + 2 + 1
    folded = [layer.name for layer in trace.layers if layer.normalization is not None]
    assert folded == ["stage1.0.conv1", "stage2.0.conv1", "stage3.0.conv1"]


@pytest.mark.slow
def test_residual_networks_are_read_in_the_order_in_which_they_run() -> None:
    trace = trace_layers(in_cp_form(build("resnet20")), (3, 16, 16))
    names = [layer.name for layer in trace.layers]
    assert names[:3] == ["conv1", "layer1.0.conv1", "layer1.0.conv2"]
    assert names[-1] == "linear"
    assert len(names) == 20


def test_layers_that_are_no_cp_count_with_their_norms() -> None:
    dense = nn.Conv2d(2, 2, 3, padding=1)
    other = FactorizedConv2d.from_dense(dense, SVDFormat(), (2,))
    grouped = nn.Conv2d(2, 4, 3, padding=1, groups=2)
    model = nn.Sequential(dense, other, grouped, nn.Flatten(), CPLinear(64, 3, rank=2)).double()
    trace = trace_layers(model, (2, 4, 4))
    assert [layer.name for layer in trace.layers] == ["4"]
    assert sum(growths[0] > 0 for growths in trace.growths.values()) == 4


def test_a_layer_alone_is_a_network() -> None:
    trace = trace_layers(CPLinear(4, 3, rank=2).double(), (4,))
    assert [(layer.name, layer.rank) for layer in trace.layers] == [("FactorizedLinear", 2)]
    assert trace.num_classes == 3


def test_networks_without_cp_layers_are_refused() -> None:
    with pytest.raises(UnsupportedModuleError, match="Linear has no layer in CP form"):
        trace_layers(nn.Linear(3, 2), (3,))


def test_a_layer_that_runs_twice_is_refused_by_name() -> None:
    layer = CPLinear(3, 3, rank=2)
    with pytest.raises(UnsupportedModuleError, match="0: runs 2 times"):
        trace_layers(nn.Sequential(layer, nn.ReLU(), layer), (3,))


class Product(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = CPLinear(3, 3, rank=2)

    def forward(self, inputs: Tensor) -> Tensor:
        made: Tensor = self.first(inputs)
        return made * inputs


def test_what_nothing_bounds_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedModuleError, match="mul"):
        trace_layers(Product(), (3,))


def test_padding_that_repeats_entries_is_refused_by_name() -> None:
    layer = CPConv2d(2, 2, 3, rank=2, padding=1, padding_mode="reflect")
    with pytest.raises(UnsupportedModuleError, match="'reflect'"):
        trace_layers(nn.Sequential(layer, nn.Flatten()), (2, 4, 4))


def test_circular_padding_of_another_width_is_refused_by_name() -> None:
    layer = CPConv2d(2, 2, 3, rank=2, padding=2, padding_mode="circular")
    with pytest.raises(
        UnsupportedModuleError, match=r"\(in 0\): .*shape \(2, 6, 6\) for \(2, 4, 4\)"
    ):
        trace_layers(nn.Sequential(layer, nn.Flatten()), (2, 4, 4))


def test_weights_that_are_not_finite_are_refused_by_name() -> None:
    model = random_network(2)
    with torch.no_grad():
        next(model.parameters())[0] = float("nan")
    with pytest.raises(RobustnessError, match=r"numbers in 0\."):
        trace_layers(model, IMAGE)
