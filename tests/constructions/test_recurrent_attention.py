import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.functional import scaled_dot_product_attention

from rankscope.constructions.attention import (
    Recurrence,
    RecurrentAttention,
    reversal_error_bound,
    reversing_network,
)
from rankscope.errors import ConstructionError

sizes = st.integers(1, 4)
seeds = st.integers(0, 2**16)


def random(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def read(cell: nn.RNN | nn.RNNCell, start: torch.Tensor) -> Recurrence:
    weight, state, bias, other = (parameter.detach() for parameter in cell.parameters())
    return Recurrence(weight, state, bias + other, start)


@settings(deadline=None, max_examples=25)
@given(inputs=sizes, width=sizes, length=sizes, seed=seeds)
def test_a_recurrence_is_torchs(inputs: int, width: int, length: int, seed: int) -> None:
    module = nn.RNN(inputs, width, dtype=torch.float64)
    sequence, start = random(seed, length, inputs), random(seed + 1, width)
    found = read(module, start).states(sequence)
    torch.testing.assert_close(found, module(sequence, start[None])[0])


@settings(deadline=None, max_examples=25)
@given(width=sizes, length=sizes, steps=sizes, seed=seeds)
def test_decoding_with_attention_is_the_loop_over_torchs_parts(
    width: int, length: int, steps: int, seed: int
) -> None:
    encoder, decoder = nn.RNN(2, 3, dtype=torch.float64), nn.RNNCell(2, width, dtype=torch.float64)
    query, key, value = (
        random(seed + number, *shape) for number, shape in enumerate([(2, width), (2, 3), (2, 3)])
    )
    sequence, state = random(seed + 3, length, 2), random(seed + 4, width)
    readout = random(seed + 5, 1, width)
    network = RecurrentAttention(
        read(encoder, sequence.new_zeros(3)), read(decoder, state), query, key, value, readout
    )
    found = network.decode(sequence, steps=steps)
    memory = encoder(sequence)[0]
    for step in range(steps):
        context = scaled_dot_product_attention(
            (query @ state)[None], memory @ key.T, memory @ value.T, scale=1.0
        )
        state = decoder(context, state[None])[0]
        torch.testing.assert_close(found.outputs[step], readout @ state)
    torch.testing.assert_close(found.weights.sum(dim=1), torch.ones(steps, dtype=torch.float64))


@settings(deadline=None, max_examples=40)
@given(length=st.integers(1, 8), size=sizes, sharpness=st.floats(0.5, 60.0), seed=seeds)
def test_the_reversing_network_reverses_every_sequence(
    length: int, size: int, sharpness: float, seed: int
) -> None:
    sequence = random(seed, length, size)
    found = reversing_network(length, size, sharpness=sharpness).decode(sequence, steps=length)
    bound = reversal_error_bound(length, largest=float(sequence.abs().max()), sharpness=sharpness)
    assert float((found.outputs - sequence.flip(0)).abs().max()) <= bound + 1e-12
    assert found.weights.argmax(dim=1).tolist() == list(range(length))[::-1]


def test_a_sequence_of_another_size_is_refused() -> None:
    network = reversing_network(3, 2, sharpness=5.0)
    with pytest.raises(ConstructionError, match=r"vectors of size 2, got shape \(3, 4\)"):
        network.decode(torch.zeros(3, 4, dtype=torch.float64), steps=3)


@pytest.mark.parametrize(("count", "steps"), [(0, 3), (3, 0)])
def test_nothing_to_read_or_write_is_refused(count: int, steps: int) -> None:
    network = reversing_network(3, 2, sharpness=5.0)
    with pytest.raises(ConstructionError, match=f"vectors and steps, got {count} and {steps}"):
        network.decode(torch.zeros(count, 2, dtype=torch.float64), steps=steps)


def test_the_states_of_no_inputs_are_none() -> None:
    encoder = reversing_network(3, 2, sharpness=5.0).encoder
    assert encoder.states(torch.zeros(0, 2, dtype=torch.float64)).shape == (0, 7)


def test_sizes_that_are_not_positive_are_refused() -> None:
    with pytest.raises(ConstructionError, match="got 0, 2 and 1"):
        reversing_network(0, 2, sharpness=1.0)
    with pytest.raises(ConstructionError, match="got 3, 2 and -1"):
        reversing_network(3, 2, sharpness=-1.0)
