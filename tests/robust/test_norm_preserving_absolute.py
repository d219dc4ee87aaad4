import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from rankscope.errors import LayerError
from rankscope.robust import BetaAbs, LipschitzNetwork, MaxMin, ResNet9, lipschitz_bound


def rotated(inputs: Tensor) -> Tensor:
    """Each pair (a, b) to ((a - b), (a + b)) over the root of two; channel c is paired as ever."""
    first, second = inputs.chunk(2, dim=1)
    return torch.cat([first - second, first + second], dim=1) / math.sqrt(2)


def rotated_back(inputs: Tensor) -> Tensor:
    first, second = inputs.chunk(2, dim=1)
    return torch.cat([second + first, second - first], dim=1) / math.sqrt(2)


@settings(deadline=None)
@given(half=st.integers(1, 5), seed=st.integers(0, 2**32))
def test_half_of_the_channels_between_rotations_is_max_min(half: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(3, 2 * half, 2, generator=generator, dtype=torch.float64)
    torch.testing.assert_close(rotated_back(BetaAbs()(rotated(inputs))), MaxMin()(inputs))


@settings(deadline=None)
@given(channels=st.integers(1, 9), beta=st.floats(0.01, 1.0), seed=st.integers(0, 2**32))
def test_so_many_channels_lose_their_signs(channels: int, beta: float, seed: int) -> None:
    count = math.floor(beta * channels)
    inputs = torch.randn(2, channels, 3, generator=torch.Generator().manual_seed(seed))
    if count == 0:
        with pytest.raises(LayerError, match="is no channel of inputs of shape"):
            BetaAbs(beta)(inputs)
        return
    outputs = BetaAbs(beta)(inputs)
    assert torch.equal(outputs[:, :count], inputs[:, :count].abs())
    assert torch.equal(outputs[:, count:], inputs[:, count:])


def test_gradients_pass_at_zero() -> None:
    inputs = torch.zeros(1, 4, requires_grad=True)
    BetaAbs()(inputs).sum().backward()
    assert inputs.grad is not None
    assert inputs.grad.tolist() == [[1.0] * 4]


@pytest.mark.parametrize("beta", [0.0, -0.5, 1.5, math.nan])
def test_shares_outside_of_zero_to_one_are_refused(beta: float) -> None:
    with pytest.raises(LayerError, match=f"above 0 and at most 1, got {beta}"):
        BetaAbs(beta)
    assert repr(BetaAbs(0.75)) == "BetaAbs(0.75)"


@pytest.mark.slow
def test_a_network_with_absolute_values_has_constant_one() -> None:
    network: LipschitzNetwork = ResNet9((3, 16, 16), width=2, activation=BetaAbs).double()
    assert network.lipschitz_constant == 1.0
    assert not any(isinstance(module, MaxMin) for module in network.modules())
    assert lipschitz_bound(network, (3, 16, 16)).value == pytest.approx(1.0, rel=1e-6)
