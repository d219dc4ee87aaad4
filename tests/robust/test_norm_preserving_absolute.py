import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from rankscope.errors import LayerError
from rankscope.robust import (
    BetaAbs,
    Intervals,
    LinearBounds,
    LipschitzNetwork,
    MaxMin,
    ResNet9,
    certify,
    lipschitz_bound,
)


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


@settings(deadline=None)
@given(channels=st.integers(2, 9), seed=st.integers(0, 2**32))
def test_gradients_keep_their_norms_away_from_zero(channels: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(2, channels, 3, generator=generator, dtype=torch.float64)
    inputs.requires_grad_()
    heights = torch.randn(inputs.shape, generator=generator, dtype=torch.float64)
    (BetaAbs()(inputs) * heights).sum().backward()
    assert inputs.grad is not None
    torch.testing.assert_close(inputs.grad.abs(), heights.abs())


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
    images = torch.rand(2, 3, 16, 16, generator=torch.Generator().manual_seed(0)).double()
    labels = network(images).argmax(1)
    for method in (Intervals(), LinearBounds()):
        (row,) = certify(network, images, labels, [1e-7], method=method).radii
        assert row.certified == 1.0
