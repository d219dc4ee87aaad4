from collections.abc import Callable

import pytest
import torch
from torch import Tensor, fx, nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations

from rankscope.diagrams import Network
from rankscope.reading import from_module

Check = Callable[..., Network]


@fx.wrap
def add(x: Tensor) -> Tensor:
    return x - 1


class Wrapped(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return add(x)


class Branch(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x if x.sum() > 0 else -x


class Loop(nn.Module):
    """Control flow over shapes is ordinary Python."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4) for _ in range(3)])
        self.scale = nn.ParameterList([nn.Parameter(torch.ones(4))])

    def forward(self, x: Tensor, depth: int | None = None) -> Tensor:
        assert x.ndim == 2
        batch, _ = x.shape
        for layer in self.layers[:depth]:
            x = layer(x) if batch > 1 else x
            x = x / x.size(0) * self.scale[0]
        return x


class OwnLinear(nn.Linear):
    """A subclass with a forward of its own is traced, not taken for its parent."""

    def forward(self, input: Tensor) -> Tensor:
        return F.linear(input, self.weight * 2, self.bias)


class KeptLinear(nn.Linear):
    """A subclass that keeps its parent's forward is read as its parent."""


class InPlace(nn.Module):
    """Whatever changes in place changes for everyone who holds the tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.relu, self.drop = nn.ReLU(inplace=True), nn.Dropout()

    def forward(self, x: Tensor) -> Tensor:
        y = x * 2 + 1
        same: Tensor = self.drop(y)
        y += x
        other = y.clone()
        other -= 3
        other *= y
        other /= 2
        self.relu(other)
        z = y - 1
        F.relu(z, True)
        z.tanh_()
        twice = x * 2
        twice += z
        return same * y + other * z - x * twice


@pytest.mark.parametrize(
    ("module", "shape"),
    [
        (Loop(), (2, 4)),
        (Loop(), (1, 4)),
        (OwnLinear(4, 3), (2, 4)),
        (nn.Sequential(KeptLinear(4, 3)), (2, 4)),
        (InPlace(), (2, 3)),
    ],
    ids=str,
)
def test_ordinary_python_is_traced(
    module: nn.Module, shape: tuple[int, ...], assert_reads: Check
) -> None:
    assert_reads(module, shape)


class Aliased(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        y = x * 2 + 1
        view = y.view(-1)
        y.relu_()
        return view


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.pool, self.recurrent = nn.MaxPool1d(2), nn.LSTM(4, 4)
        self.norm, self.loss = nn.BatchNorm1d(2), nn.MSELoss()

    def forward(self, x: Tensor) -> Tensor:
        hidden, _ = self.recurrent(x)
        return self.norm(self.pool(x)) + hidden.reshape(hidden.shape[0])  # type: ignore[no-any-return]


class Truth(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * float(x.sum())


class Assigning(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        x[0] = 1.0
        return x


class Named(nn.Module):
    def forward(self, x: Tensor) -> dict[str, Tensor]:
        return {"x": x}


class Pair(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x, x


class Empty(nn.Module):
    """Has no forward at all."""


class Normed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = parametrizations.weight_norm(nn.Linear(4, 3))

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)  # type: ignore[no-any-return]


def test_the_module_is_left_as_it_was() -> None:
    module = Loop()
    before = (dict(module.__dict__), list(module.state_dict()), module.training)
    from_module(module, (2, 4))
    assert (dict(module.__dict__), list(module.state_dict()), module.training) == before
