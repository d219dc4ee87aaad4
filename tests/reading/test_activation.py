from collections.abc import Callable

import pytest
from torch import Tensor, nn
from torch.nn import functional as F

from rankscope.diagrams import Network, diagrams_of

Check = Callable[..., Network]


@pytest.mark.parametrize(
    "layer",
    [
        nn.ReLU(),
        nn.ReLU6(),
        nn.LeakyReLU(0.2),
        nn.ELU(0.5),
        nn.GELU(),
        nn.GELU("tanh"),
        nn.SiLU(),
        nn.Tanh(),
        nn.Sigmoid(),
        nn.Softplus(2.0, 0.5),
        nn.Softmax(0),
        nn.Softmax(dim=-1),
        nn.LogSoftmax(1),
    ],
    ids=str,
)
def test_an_activation_equals_that_of_pytorch(layer: nn.Module, assert_reads: Check) -> None:
    network = assert_reads(nn.Sequential(nn.Linear(4, 3, bias=False), layer), (5, 4))
    (diagram,) = diagrams_of(network)
    (region,) = diagram.regions
    assert region.members == ("X", "W")


class Functions(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        x = F.leaky_relu(x, 0.3) + F.elu(x, alpha=2.0) + F.softplus(x, 3.0, 0.2) + x.sigmoid()
        x = x + F.gelu(x, approximate="tanh") + F.silu(x) + x.tanh() + F.relu6(x) + (-x).exp()
        return F.log_softmax(x.softmax(0), dim=-1)


@pytest.mark.slow
def test_activations_as_functions_and_methods_are_read(assert_reads: Check) -> None:
    assert_reads(Functions(), (3, 4))
