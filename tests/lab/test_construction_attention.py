import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.functional import scaled_dot_product_attention

from rankscope.errors import ConstructionError
from rankscope.lab.constructions import (
    MultiHeadAttention,
    Recurrence,
    RecurrentAttention,
    attend,
    attention_operations,
    lookup,
    reversal_error_bound,
    reversing_network,
    transformer_scale,
    worked_example,
)

# Lookup attention.


sizes = st.integers(1, 5)
seeds = st.integers(0, 2**16)


def random(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_basis_keys_look_up_exactly_one_value() -> None:
    values, keys = random(0, 5, 3), torch.eye(5, dtype=torch.float64)
    assert torch.equal(lookup(keys[2], keys, values), values[2])
    both = lookup(keys[2] + 2 * keys[4], keys, values)
    torch.testing.assert_close(both, values[2] + 2 * values[4])


@settings(deadline=None, max_examples=30)
@given(seed=seeds, factor=st.floats(-3.0, 3.0))
def test_lookup_is_linear_in_each_argument(seed: int, factor: float) -> None:
    parts = [random(seed + number, 4, 4) for number in range(3)]
    others = [random(seed + 10 + number, 4, 4) for number in range(3)]
    for place in range(3):
        mixed = [*parts]
        mixed[place] = parts[place] + factor * others[place]
        other = [*parts]
        other[place] = others[place]
        torch.testing.assert_close(lookup(*mixed), lookup(*parts) + factor * lookup(*other))


@settings(deadline=None, max_examples=30)
@given(queries=sizes, keys=sizes, features=sizes, outputs=sizes, seed=seeds)
def test_attention_is_torchs(
    queries: int, keys: int, features: int, outputs: int, seed: int
) -> None:
    arrays = (
        random(seed, queries, features),
        random(seed + 1, keys, features),
        random(seed + 2, keys, outputs),
    )
    result = attend(*arrays, scale=transformer_scale(features)).outputs
    torch.testing.assert_close(result, scaled_dot_product_attention(*arrays))


@settings(deadline=None, max_examples=30)
@given(seed=seeds, count=st.integers(2, 6), sharpness=st.floats(1.0, 40.0))
def test_a_sharp_query_looks_up_one_value(seed: int, count: int, sharpness: float) -> None:
    keys, values = torch.eye(count, dtype=torch.float64), random(seed, count, 3)
    result = attend(sharpness * keys, keys, values).outputs
    wrong = (count - 1) * torch.tensor(-sharpness, dtype=torch.float64).exp()
    assert (result - values).abs().max() <= 2 * values.abs().max() * wrong + 1e-14


def test_outputs_are_between_the_values() -> None:
    values = random(1, 6, 2)
    result = attend(random(2, 4, 3), random(3, 6, 3), values).outputs
    assert bool((result >= values.amin(dim=0)).all())
    assert bool((result <= values.amax(dim=0)).all())


def test_the_worked_example_has_the_printed_numbers() -> None:
    result = worked_example()
    assert result.scores.tolist() == [[112.0, 96.0]]
    assert result.scaled.tolist() == [[14.0, 12.0]]
    assert [round(weight, 2) for weight in result.weights[0].tolist()] == [0.88, 0.12]
    torch.testing.assert_close(result.outputs, result.weights)


def test_shapes_that_do_not_fit_are_refused() -> None:
    zeros = torch.zeros
    with pytest.raises(ConstructionError, match=r"same features.*\(1, 2\), \(3, 4\), \(3, 5\)"):
        attend(zeros(1, 2), zeros(3, 4), zeros(3, 5))
    with pytest.raises(ConstructionError, match=r"same count.*\(3, 4\), \(2, 5\)"):
        lookup(zeros(4), zeros(3, 4), zeros(2, 5))
    with pytest.raises(ConstructionError, match=r"takes matrices.*\(3,\)"):
        attend(zeros(1, 2), zeros(3, 2), zeros(3))


def test_a_scale_that_is_not_positive_is_refused() -> None:
    with pytest.raises(ConstructionError, match="positive scale, got -2"):
        attend(torch.zeros(1, 1), torch.zeros(1, 1), torch.zeros(1, 1), scale=-2.0)


# Multi head.


@settings(deadline=None, max_examples=25)
@given(
    heads=st.integers(1, 3),
    head_size=st.integers(1, 4),
    key_features=st.integers(1, 4),
    lengths=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    seed=st.integers(0, 2**16),
)
def test_the_definition_is_torchs_module(
    heads: int, head_size: int, key_features: int, lengths: tuple[int, int], seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    module = nn.MultiheadAttention(
        heads * head_size, heads, kdim=key_features, vdim=key_features + 1, dtype=torch.float64
    )
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if name != "in_proj_bias":
                parameter.normal_(generator=generator)
    queries = torch.randn(lengths[0], heads * head_size, generator=generator, dtype=torch.float64)
    keys = torch.randn(lengths[1], key_features, generator=generator, dtype=torch.float64)
    values = torch.randn(lengths[1], key_features + 1, generator=generator, dtype=torch.float64)
    result = MultiHeadAttention.of(module)(queries, keys, values)
    torch.testing.assert_close(result, module(queries, keys, values)[0])


def test_shared_projections_are_read_too() -> None:
    module = nn.MultiheadAttention(6, 2, dtype=torch.float64)
    inputs = torch.randn(5, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    result = MultiHeadAttention.of(module)(inputs, inputs, inputs)
    torch.testing.assert_close(result, module(inputs, inputs, inputs)[0])


def count(length: int, features: int) -> int:
    """Four projections, then scores and the mix of values for each pair and head."""
    return 2 * (4 * length * features**2 + 2 * length**2 * features)


@pytest.mark.parametrize("length", [16, 64, 256, 1024])
def test_the_cost_is_a_square_in_the_length(length: int) -> None:
    assert attention_operations(length, features=32, heads=4) == count(length, 32)


@settings(deadline=None, max_examples=10)
@given(length=st.integers(2, 50), heads=st.integers(1, 3), head_size=st.integers(1, 4))
def test_no_order_costs_more_than_the_usual_one(length: int, heads: int, head_size: int) -> None:
    features = heads * head_size
    result = attention_operations(length, features=features, heads=heads)
    assert result <= count(length, features)


def test_biases_of_the_projections_in_are_refused() -> None:
    module = nn.MultiheadAttention(4, 2)
    nn.init.ones_(module.in_proj_bias)
    with pytest.raises(ConstructionError, match="no bias of queries"):
        MultiHeadAttention.of(module)


@pytest.mark.parametrize("option", ["add_bias_kv", "add_zero_attn"])
def test_added_keys_are_refused(option: str) -> None:
    module = nn.MultiheadAttention(4, 2, **{option: True})
    with pytest.raises(ConstructionError, match="no added key and no zero key"):
        MultiHeadAttention.of(module)


def test_a_projection_without_bias_is_refused() -> None:
    with pytest.raises(ConstructionError, match="has no bias; build it with bias=True"):
        MultiHeadAttention.of(nn.MultiheadAttention(4, 2, bias=False))


@pytest.mark.parametrize("heads", [0, 3])
def test_heads_that_do_not_divide_are_refused(heads: int) -> None:
    with pytest.raises(ConstructionError, match=f"{heads} heads do not divide 4 features"):
        attention_operations(8, features=4, heads=heads)


# Recurrent attention.


recurrent_sizes = st.integers(1, 4)


def read(cell: nn.RNN | nn.RNNCell, start: torch.Tensor) -> Recurrence:
    weight, state, bias, other = (parameter.detach() for parameter in cell.parameters())
    return Recurrence(weight, state, bias + other, start)


@settings(deadline=None, max_examples=25)
@given(inputs=recurrent_sizes, width=recurrent_sizes, length=recurrent_sizes, seed=seeds)
def test_a_recurrence_is_torchs(inputs: int, width: int, length: int, seed: int) -> None:
    module = nn.RNN(inputs, width, dtype=torch.float64)
    sequence, start = random(seed, length, inputs), random(seed + 1, width)
    result = read(module, start).states(sequence)
    torch.testing.assert_close(result, module(sequence, start[None])[0])


@settings(deadline=None, max_examples=25)
@given(width=recurrent_sizes, length=recurrent_sizes, steps=recurrent_sizes, seed=seeds)
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
    result = network.decode(sequence, steps=steps)
    memory = encoder(sequence)[0]
    for step in range(steps):
        context = scaled_dot_product_attention(
            (query @ state)[None], memory @ key.T, memory @ value.T, scale=1.0
        )
        state = decoder(context, state[None])[0]
        torch.testing.assert_close(result.outputs[step], readout @ state)
    torch.testing.assert_close(result.weights.sum(dim=1), torch.ones(steps, dtype=torch.float64))


@settings(deadline=None, max_examples=40)
@given(length=st.integers(1, 8), size=recurrent_sizes, sharpness=st.floats(0.5, 60.0), seed=seeds)
def test_the_reversing_network_reverses_every_sequence(
    length: int, size: int, sharpness: float, seed: int
) -> None:
    sequence = random(seed, length, size)
    result = reversing_network(length, size, sharpness=sharpness).decode(sequence, steps=length)
    bound = reversal_error_bound(length, largest=float(sequence.abs().max()), sharpness=sharpness)
    assert float((result.outputs - sequence.flip(0)).abs().max()) <= bound + 1e-12
    assert result.weights.argmax(dim=1).tolist() == list(range(length))[::-1]


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
