import pytest
import torch
from hypothesis import given, settings, strategies
from torch import Tensor, nn
from torch.nn import functional

from rankscope.errors import ConstructionError
from rankscope.lab.constructions import DeadUnits, LayerUnits
from rankscope.lab.constructions.dead_units import dead_units
from rankscope.networks import DigitsNetwork, build_trained


def numbers(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


class OneActivation(nn.Module):
    """One ReLU module after two maps, of different widths."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3, 4), nn.Linear(4, 6)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.relu(self.second(self.relu(self.first(inputs))))
        return outputs


class Recurrence(nn.Module):
    """The same map at each step."""

    def __init__(self) -> None:
        super().__init__()
        self.step = nn.Linear(5, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        state = torch.zeros(len(inputs), 3)
        for inputs_now in inputs.unbind(1):
            state = self.step(torch.cat([state, inputs_now], dim=1)).relu()
        return state


class Twice(nn.Module):
    """Both signs of one map."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(numbers(4, 3))

    def forward(self, inputs: Tensor) -> Tensor:
        values = functional.linear(inputs, 2 * self.weight)
        return torch.cat([torch.relu(values), functional.relu(-values)], dim=1)


@pytest.mark.slow
@settings(deadline=None, max_examples=15)
@given(strategies.integers(0, 999), strategies.integers(1, 30))
def test_shares_are_those_of_the_definition(seed: int, batch_size: int) -> None:
    network = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 5), nn.ReLU())
    inputs = numbers(17, 3, seed=seed)
    result = dead_units(network, inputs, batch_size=batch_size)
    with torch.no_grad():
        wanted = [network[:2](inputs) > 0, network(inputs) > 0]
    assert [layer.name for layer in result.layers] == ["0", "2"]
    for layer, active in zip(result.layers, wanted, strict=True):
        torch.testing.assert_close(torch.tensor(layer.activity), active.float().mean(dim=0))
        never = [unit for unit in range(active.shape[1]) if not active[:, unit].any()]
        assert list(layer.dead) == never


def test_a_dead_unit_gets_no_gradient_and_a_living_one_does() -> None:
    first = nn.Linear(2, 6)
    network = nn.Sequential(first, nn.ReLU(), nn.Linear(6, 1))
    with torch.no_grad():
        first.bias.copy_(torch.tensor([-99.0, 99.0]).repeat(3))
    inputs = numbers(9, 2)
    network(inputs).sum().backward()
    (layer,) = dead_units(network, inputs).layers
    assert layer.dead == (0, 2, 4)
    gradient = first.weight.grad
    assert isinstance(gradient, Tensor)
    assert torch.flatten((~gradient.any(dim=1)).nonzero()).tolist() == [0, 2, 4]


def test_units_of_the_embedded_network_are_channels() -> None:
    network, images = build_trained("digits"), numbers(11, 1, 8, 8).abs()
    assert isinstance(network, DigitsNetwork)
    result = dead_units(network, images, batch_size=4)
    active = (network.conv1(images) > 0).double().mean(dim=(0, 2, 3))
    assert [(each.name, len(each.activity)) for each in result.layers] == [
        ("conv1", 16),
        ("conv2", 32),
        ("conv3", 32),
    ]
    torch.testing.assert_close(torch.tensor(result.layers[0].activity).double(), active)


def test_a_channel_that_is_switched_off_is_found() -> None:
    network = DigitsNetwork()
    assert network.conv2.bias is not None
    network.conv2.weight.detach()[7] = 0.0
    network.conv2.bias.detach()[7] = -1.0
    result = dead_units(network, numbers(5, 1, 8, 8))
    assert 7 in result.layers[1].dead
    assert result.num_units == 80
    assert result.num_dead == sum(len(layer.dead) for layer in result.layers)


def test_one_module_used_after_two_maps_is_two_layers() -> None:
    result = dead_units(OneActivation(), numbers(7, 3))
    assert [(each.name, len(each.activity)) for each in result.layers] == [
        ("first", 4),
        ("second", 6),
    ]


def test_one_map_used_at_every_step_is_one_layer() -> None:
    network, inputs = Recurrence(), numbers(4, 6, 2)
    (layer,) = dead_units(network, inputs).layers
    states = torch.stack([network(inputs[:, : step + 1]) for step in range(6)])
    assert layer.name == "step"
    torch.testing.assert_close(torch.tensor(layer.activity), (states > 0).float().mean(dim=(0, 1)))


def test_two_relus_of_one_map_are_told_apart_and_computed_weights_are_numbered() -> None:
    first, second = dead_units(Twice(), numbers(8, 3), batch_size=3).layers
    assert (first.name, second.name) == ("map 1", "map 1, ReLU 2")
    for share, opposite in zip(first.activity, second.activity, strict=True):
        assert share + opposite == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("layers", "shape", "units"),
    [
        ((nn.Conv1d(2, 5, 3), nn.ReLU()), (3, 2, 9), 5),
        ((nn.ConvTranspose2d(1, 4, 2), nn.ReLU()), (3, 1, 4, 4), 4),
        ((nn.Linear(4, 6), nn.ReLU()), (3, 7, 4), 6),
        ((nn.Conv2d(1, 3, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.ReLU()), (3, 1, 4, 4), 3),
    ],
)
def test_units_are_found_on_their_axis(
    layers: tuple[nn.Module, ...], shape: tuple[int, ...], units: int
) -> None:
    (layer,) = dead_units(nn.Sequential(*layers), numbers(*shape)).layers
    assert len(layer.activity) == units


def test_a_transformer_layer_is_seen_though_it_has_a_fused_path() -> None:
    layer = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)
    (result,) = dead_units(layer, numbers(3, 5, 4)).layers
    assert (result.name, len(result.activity)) == ("linear1", 8)


def test_dropout_is_off_and_training_flags_are_put_back() -> None:
    first = nn.Linear(2, 3)
    network = nn.Sequential(first, nn.Dropout(0.99), nn.ReLU(), nn.Dropout(0.5).eval())
    nn.init.constant_(first.bias, 9.0)
    assert dead_units(network, numbers(2, 2)).num_dead == 0
    assert [part.training for part in network] == [True, True, True, False]


def test_it_prints_its_counts() -> None:
    result = DeadUnits((LayerUnits("first", (0.0, 0.5)), LayerUnits("second", (0.0,))), 12)
    assert str(result) == "2 of 3 units are dead on 12 examples"


def test_no_examples_are_refused() -> None:
    with pytest.raises(ConstructionError, match=r"first axis, got inputs \(0, 2\)"):
        dead_units(nn.Linear(2, 2), torch.zeros(0, 2))


def test_a_network_without_relu_is_refused() -> None:
    network = nn.Sequential(nn.Linear(2, 3), nn.GELU(), nn.Linear(3, 1))
    with pytest.raises(ConstructionError, match="Sequential called no ReLU in a pass of 2 linear"):
        dead_units(network, torch.zeros(1, 2))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["rnn_relu", "rnn_relu_cell"])
def test_a_fused_recurrence_is_refused_by_name(name: str) -> None:
    kind = nn.RNN if name == "rnn_relu" else nn.RNNCell
    with pytest.raises(ConstructionError, match=f"inside {name}, one call"):
        dead_units(kind(2, 3, nonlinearity="relu"), torch.zeros(4, 2))


def test_values_that_are_not_finite_are_refused() -> None:
    network = nn.Sequential(nn.Linear(2, 3), nn.ReLU())
    with pytest.raises(ConstructionError, match="3 of 6 outputs of the ReLU after 0 are not"):
        dead_units(network, torch.tensor([[0.0, 0.0], [torch.nan, 0.0]]))
