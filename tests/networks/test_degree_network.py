"""Degree networks: trained and measured are one function, deep ones train, widths fit budgets."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from rankscope.errors import FunctionError, SizeError
from rankscope.networks import DegreeNetwork, widest_network
from rankscope.rank import Partition, measure_rank

DEGREES = st.lists(st.sampled_from([1.0, 2.0, 2.5, math.e, 3.0]), min_size=1, max_size=3)


def drawn(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@settings(deadline=None, max_examples=20)
@given(degrees=DEGREES.map(tuple), seed=st.integers(0, 99))
def test_each_output_at_inference_is_its_polynomial(degrees: tuple[float, ...], seed: int) -> None:
    network = DegreeNetwork(
        num_inputs=3, width=5, degrees=degrees, num_outputs=2, generator=drawn(seed)
    ).double()
    for _ in range(3):
        network(torch.randn(8, 3, generator=drawn(seed), dtype=torch.float64))
    network.eval()
    inputs = torch.randn(4, 3, generator=drawn(seed + 1), dtype=torch.float64)
    for output in range(2):
        found = network.polynomial(output)(inputs[..., None])
        torch.testing.assert_close(found, network(inputs)[:, output])


def test_trained_weights_have_an_exact_rank() -> None:
    network = DegreeNetwork(num_inputs=4, width=6, degrees=(3.0, 2.0), generator=drawn())
    network(torch.randn(8, 4, generator=drawn()))
    polynomial = network.polynomial()
    measured = measure_rank(
        polynomial, Partition.left_right(4), weights=dict(polynomial.named_parameters())
    )
    assert measured.is_exact
    assert measured.has_given_weights


@pytest.mark.parametrize("degrees", [(2.0,) * 8, (3.0,) * 6, (math.e,) * 6])
def test_deep_networks_start_at_a_sane_scale_and_learn(degrees: tuple[float, ...]) -> None:
    """Degree 256 or 729: without normalization outputs and gradients would leave float32."""
    network = DegreeNetwork(num_inputs=4, width=12, degrees=degrees, generator=drawn())
    inputs = 2 * torch.rand(128, 4, generator=drawn()) - 1
    wanted = inputs.prod(dim=1, keepdim=True) * 10
    outputs = network(inputs)
    # The readout of 12 features of mean square 1 with weights of variance 1 / 12.
    assert 0.1 < float(outputs.detach().square().mean()) < 10
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-2)
    losses = []
    for _ in range(40):
        loss = (network(inputs) - wanted).square().mean()
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < losses[0] / 2


@given(degrees=DEGREES.map(tuple), budget=st.integers(200, 2000), num_outputs=st.integers(1, 3))
@settings(deadline=None, max_examples=20)
def test_the_widest_network_fits_its_budget_and_no_wider_one_does(
    degrees: tuple[float, ...], budget: int, num_outputs: int
) -> None:
    width = widest_network(
        num_inputs=4, degrees=degrees, num_outputs=num_outputs, num_parameters=budget
    )
    counts = []
    for chosen in (width, width + 1):
        network = DegreeNetwork(
            num_inputs=4, width=chosen, degrees=degrees, num_outputs=num_outputs
        )
        counts.append(sum(parameter.numel() for parameter in network.parameters()))
    assert counts[0] <= budget < counts[1]


def test_an_activation_follows_every_normalization() -> None:
    network = DegreeNetwork(
        num_inputs=3, width=4, degrees=(2.0, 3.0), generator=drawn(), activation=nn.Tanh()
    ).eval()
    inputs = torch.randn(5, 3, generator=drawn(1))
    values = inputs
    for layer, scale in zip(network.layers, network.scales, strict=True):
        values = torch.tanh(scale(layer(values)))
    torch.testing.assert_close(network(inputs), network.readout(values))
    with pytest.raises(FunctionError, match="the activation Tanh it is no polynomial"):
        network.polynomial()


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(SizeError, match="number_of_layers must be at least 1, got 0"):
        DegreeNetwork(num_inputs=2, width=2, degrees=())
    network = DegreeNetwork(num_inputs=2, width=2, degrees=(2.0,), num_outputs=3)
    with pytest.raises(SizeError, match=r"the output must lie in 0\.\.2, got 3"):
        network.polynomial(3)
    with pytest.raises(SizeError, match="width 1 has 12 parameters, more than the 11 allowed"):
        widest_network(num_inputs=4, degrees=(2.0,), num_outputs=1, num_parameters=11)
