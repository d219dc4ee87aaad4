"""Polynomial mixers: their equations, their ranks, and the diagram of both activations."""

import pytest
import torch
from torch import Tensor

from rankscope.diagrams import to_module
from rankscope.errors import SizeError
from rankscope.rank import (
    Gelu,
    MixerSizes,
    Partition,
    PolynomialMixer,
    Power,
    certify_rank,
    measure_rank,
    mixer_diagram,
    verify,
)

SIZES = MixerSizes(3, 2, 4, token_hidden=5, channel_hidden=2, depth=2)


def built(depth: int = 2, degree: int = 2) -> PolynomialMixer:
    network = PolynomialMixer(
        num_tokens=3,
        input_size=2,
        width=4,
        token_hidden=5,
        channel_hidden=2,
        depth=depth,
        degree=degree,
        generator=torch.Generator().manual_seed(0),
    ).double()
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            if "bias" in name or name == "constant":
                parameter.uniform_(-1, 1, generator=torch.Generator().manual_seed(1))
    return network


def by_hand(network: PolynomialMixer, inputs: Tensor, activation: Power | Gelu) -> Tensor:
    """The published equations, block by block."""

    def act(values: Tensor) -> Tensor:
        if isinstance(activation, Power):
            return values**activation.degree
        return torch.nn.functional.gelu(values)

    tokens = inputs @ network.embedding.T
    for block in network.blocks:
        weights = dict(block.named_parameters())
        hidden = act(weights["token_in"] @ tokens + weights["token_bias"][:, None])
        tokens = tokens + weights["token_out"] @ hidden
        hidden = act(tokens @ weights["channel_in"].T + weights["channel_bias"])
        tokens = tokens + hidden @ weights["channel_out"].T
    return (tokens @ network.readout).sum(dim=1) + network.constant


def drawn_inputs() -> Tensor:
    return torch.randn(6, 3, 2, generator=torch.Generator().manual_seed(2), dtype=torch.float64)


@pytest.mark.parametrize(("depth", "degree"), [(1, 1), (1, 3), (2, 2)])
def test_a_mixer_is_its_published_equations(depth: int, degree: int) -> None:
    network = built(depth, degree)
    wanted = by_hand(network, drawn_inputs(), Power(degree))
    torch.testing.assert_close(network(drawn_inputs()), wanted)
    assert network.input_degree == degree ** (2 * depth)


@pytest.mark.parametrize("activation", [Power(2), Power(1), Gelu()])
def test_the_diagram_computes_the_network(activation: Power | Gelu) -> None:
    network = built()
    arrays = dict(network.named_parameters())
    run = to_module(mixer_diagram(SIZES, activation), arrays=arrays, dtype=torch.float64)
    outputs = torch.stack([run(sample) for sample in drawn_inputs()])
    torch.testing.assert_close(outputs.flatten(), by_hand(network, drawn_inputs(), activation))
    assert network.diagram() == mixer_diagram(SIZES, Power(2))


def test_a_linear_mixer_has_rank_two() -> None:
    """One function of each side and constants."""
    measured = measure_rank(built(degree=1), Partition.of([0], order=3))
    assert measured.lower == 2


def test_ranks_stay_below_the_bound_and_are_certified() -> None:
    network = PolynomialMixer(
        num_tokens=4, input_size=1, width=3, token_hidden=6, channel_hidden=6, depth=1
    )
    halves = Partition.left_right(4)
    measured = measure_rank(network, halves)
    assert network.upper_bound(halves).holds_for(measured.lower)
    verdict = verify(certify_rank(network, halves, measured))
    assert verdict.is_proved, verdict


def test_sizes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(SizeError, match="num_tokens must be at least 2, got 1"):
        MixerSizes(1, 2, 4, token_hidden=5, channel_hidden=2, depth=2)
    with pytest.raises(SizeError, match="depth must be at least 1, got 0"):
        built(depth=0)
    with pytest.raises(SizeError, match="degree must be at least 1, got 0"):
        built(degree=0)
    with pytest.raises(SizeError, match="Power: degree must be at least 1, got 0"):
        Power(0)
