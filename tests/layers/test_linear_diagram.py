import pytest
import torch
from torch import nn

from rankscope.diagrams.module import to_module
from rankscope.diagrams.network import Network
from rankscope.diagrams.parts import Index
from rankscope.layers.formats.catalogue import FORMATS
from rankscope.layers.formats.format import WeightShape
from rankscope.layers.linear import FactorizedLinear, LinearLayer, linear_steps

SHAPE = WeightShape(8, 6)
NAMES = [name for name, each in FORMATS.items() if each.refusal(SHAPE) is None]


@pytest.mark.parametrize("name", [None, *NAMES])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("num_rows", [None, 5])
def test_the_steps_of_a_linear_layer_compute_it(
    name: str | None, bias: bool, num_rows: int | None
) -> None:
    layer: LinearLayer = nn.Linear(6, 8, bias=bias)
    if name is not None:
        ranks = FORMATS[name].largest_ranks(SHAPE, 48)
        assert ranks is not None
        layer = FactorizedLinear(6, 8, FORMATS[name], ranks, bias=bias)
    layer = layer.double()
    rows = () if num_rows is None else (Index("n", num_rows),)
    network = Network("linear", linear_steps("y", layer, "x", prefix="own.", rows=rows))
    arrays = {f"own.{key}": value for key, value in layer.named_parameters()}
    drawn = to_module(network, arrays)
    inputs = torch.randn(*(() if num_rows is None else (num_rows,)), 6, dtype=torch.float64)
    torch.testing.assert_close(drawn(inputs), layer(inputs))
    assert sum(p.numel() for p in drawn.parameters()) == sum(p.numel() for p in layer.parameters())
