"""Mixers to be trained: exact ranks with powers, ranks on data with GELU."""

import pytest
import torch

from rankscope.errors import SizeError, UnsupportedModuleError
from rankscope.networks import MlpMixer
from rankscope.rank import (
    FunctionOptions,
    Gelu,
    MixerSizes,
    Partition,
    Power,
    measure_rank,
    normal_inputs,
    separation_rank,
)

SIZES = MixerSizes(4, 1, 2, token_hidden=3, channel_hidden=3, depth=1)
HALVES = Partition.left_right(4)


def trained(mixer: MlpMixer) -> MlpMixer:
    """In float64, with statistics of three batches, at inference."""
    mixer.double()
    for seed in range(3):
        mixer(normal_inputs(8, 4, 1, seed=seed))
    return mixer.eval()


@pytest.mark.parametrize("degree", [1, 2, 3])
def test_each_output_with_a_power_is_its_polynomial(degree: int) -> None:
    generator = torch.Generator().manual_seed(0)
    mixer = MlpMixer(SIZES, num_outputs=2, activation=Power(degree), generator=generator)
    trained(mixer)
    inputs = normal_inputs(5, 4, 1, seed=9)
    for output in range(2):
        torch.testing.assert_close(mixer.polynomial(output)(inputs), mixer(inputs)[:, output])


def test_the_exact_rank_is_that_of_the_spectrum_on_samples() -> None:
    """Degree 4 in two inputs on each side: ranks are small enough for floating point to see."""
    mixer = trained(
        MlpMixer(SIZES, activation=Power(2), generator=torch.Generator().manual_seed(0))
    )
    polynomial = mixer.polynomial()
    exact = measure_rank(polynomial, HALVES, weights=dict(polynomial.named_parameters()))
    found = separation_rank(
        mixer, HALVES, inputs=normal_inputs(24, 4, 1, seed=0), options=FunctionOptions(output=0)
    )
    assert found.is_saturated
    assert found.numeric.value == exact.lower
    bound = polynomial.upper_bound(HALVES)
    assert bound.holds_for(exact.lower)


def test_gelu_has_no_finite_rank_but_a_spectrum_on_data() -> None:
    mixer = trained(MlpMixer(SIZES, generator=torch.Generator().manual_seed(0)))
    found = separation_rank(
        mixer,
        HALVES,
        inputs=normal_inputs(24, 4, 1, seed=0),
        epsilon=1e-3,
        options=FunctionOptions(output=0),
    )
    assert found.upper is not None
    assert 1 <= found.upper < found.numeric.value
    with pytest.raises(UnsupportedModuleError, match=r"Power\(degree\), got Gelu\(\)"):
        mixer.polynomial()


@pytest.mark.parametrize("activation", [Power(2), Gelu()])
def test_deep_mixers_learn(activation: Power | Gelu) -> None:
    sizes = MixerSizes(4, 2, 8, token_hidden=8, channel_hidden=8, depth=4)
    mixer = MlpMixer(sizes, activation=activation, generator=torch.Generator().manual_seed(0))
    inputs = normal_inputs(64, 4, 2, seed=0).float()
    wanted = inputs[:, :1, 0] * inputs[:, 1:2, 1]
    optimizer = torch.optim.Adam(mixer.parameters(), lr=1e-2)
    losses = []
    for _ in range(40):
        loss = (mixer(inputs) - wanted).square().mean()
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(mixer.parameters(), 1.0)
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < losses[0] / 2


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(SizeError, match="num_outputs must be at least 1, got 0"):
        MlpMixer(SIZES, num_outputs=0)
    with pytest.raises(SizeError, match=r"the output must lie in 0\.\.0, got 1"):
        MlpMixer(SIZES).polynomial(1)
