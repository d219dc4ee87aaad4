"""What every norm-preserving part promises: nothing is stretched, and gradients stay."""

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from rankscope.robust import (
    BetaAbs,
    ConcatenativeSkip,
    ConvexSkip,
    GroupSort,
    HouseholderActivation,
    InputScaling,
    MaxMin,
    NormPreservingPool,
    OrthogonalConv2d,
    OrthogonalLinear,
)

SHAPE = (4, 4, 6)


def turned() -> nn.Module:
    layer = HouseholderActivation(4)
    nn.init.uniform_(layer.angles, -math.pi, math.pi)
    return layer


def flat(in_features: int, out_features: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), OrthogonalLinear(in_features, out_features, bias=False))


def mixed(channels: int) -> nn.Module:
    return OrthogonalConv2d(channels, channels, 3, bias=False)


MAKERS: dict[str, Callable[[], nn.Module]] = {
    "MaxMin": MaxMin,
    "GroupSort": lambda: GroupSort(4),
    "BetaAbs": lambda: BetaAbs(0.75),
    "HouseholderActivation": turned,
    "ConcatenativeSkip": lambda: ConcatenativeSkip(nn.Sequential(mixed(2), MaxMin())),
    "wider linear": lambda: flat(96, 100),
    "InputScaling": lambda: InputScaling((0.0,) * 4),
    "NormPreservingPool": lambda: NormPreservingPool((2, 3)),
    "narrower linear": lambda: flat(96, 7),
    "ConvexSkip": lambda: ConvexSkip(nn.Sequential(mixed(4), MaxMin()), mixed(4)),
}
KEEP_NORMS = [
    "MaxMin",
    "GroupSort",
    "BetaAbs",
    "HouseholderActivation",
    "ConcatenativeSkip",
    "wider linear",
]
# torch has 0 for the derivative of an absolute value at 0.
KEEP_GRADIENTS = [name for name in MAKERS if name not in ("BetaAbs", "wider linear", "ConvexSkip")]


def build(name: str, seed: int) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return MAKERS[name]().double().requires_grad_(requires_grad=False)


def images(seed: int, count: int = 2) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    # Rounded, so that equal entries, where sorting is not differentiable, come up as well.
    drawn = torch.randn(count, *SHAPE, dtype=torch.float64, generator=generator)
    return drawn.mul(2).round()


@pytest.mark.parametrize("name", MAKERS)
@settings(deadline=None, max_examples=10)
@given(seed=st.integers(0, 2**32))
def test_two_inputs_never_come_apart(name: str, seed: int) -> None:
    layer, pair = build(name, seed), images(seed)
    outputs = layer(pair)
    assert (outputs[0] - outputs[1]).norm() <= (pair[0] - pair[1]).norm() * (1 + 1e-12)


@pytest.mark.parametrize("name", MAKERS)
@settings(deadline=None, max_examples=5)
@given(seed=st.integers(0, 2**32))
def test_no_jacobian_has_a_norm_above_one(name: str, seed: int) -> None:
    layer, inputs = build(name, seed), images(seed, count=1)
    jacobian = torch.func.jacrev(layer)(inputs).flatten(0, 1).reshape(-1, inputs.numel())
    assert torch.linalg.matrix_norm(jacobian, 2) <= 1 + 1e-12


@pytest.mark.parametrize("name", MAKERS)
@settings(deadline=None, max_examples=5)
@given(seed=st.integers(0, 2**32), factor=st.floats(0.1, 10.0))
def test_a_longer_input_gives_a_longer_output(name: str, seed: int, factor: float) -> None:
    layer, inputs = build(name, seed), images(seed)
    torch.testing.assert_close(layer(factor * inputs), factor * layer(inputs))


@pytest.mark.parametrize("name", KEEP_NORMS)
@settings(deadline=None, max_examples=10)
@given(seed=st.integers(0, 2**32))
def test_norms_stay(name: str, seed: int) -> None:
    layer, inputs = build(name, seed), images(seed)
    torch.testing.assert_close(layer(inputs).flatten(1).norm(dim=1), inputs.flatten(1).norm(dim=1))


@pytest.mark.parametrize("name", KEEP_GRADIENTS)
@settings(deadline=None, max_examples=10)
@given(seed=st.integers(0, 2**32))
def test_gradients_keep_their_norms_also_where_entries_are_equal(name: str, seed: int) -> None:
    layer, inputs = build(name, seed), images(seed)
    outputs, pull_back = torch.func.vjp(layer, inputs)[:2]
    upstream = torch.randn(outputs.shape, dtype=torch.float64)
    (gradient,) = pull_back(upstream)
    torch.testing.assert_close(gradient.norm(), upstream.norm())


@pytest.mark.parametrize("name", MAKERS)
def test_a_saved_state_is_the_whole_layer(name: str) -> None:
    layer, other, inputs = build(name, 0), build(name, 1), images(0)
    other.load_state_dict(layer.state_dict())
    torch.testing.assert_close(other(inputs), layer(inputs))
