import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from rankscope.constructions.attention import MultiHeadAttention, attention_operations
from rankscope.errors import ConstructionError


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
    found = MultiHeadAttention.of(module)(queries, keys, values)
    torch.testing.assert_close(found, module(queries, keys, values)[0])


def test_shared_projections_are_read_too() -> None:
    module = nn.MultiheadAttention(6, 2, dtype=torch.float64)
    inputs = torch.randn(5, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = MultiHeadAttention.of(module)(inputs, inputs, inputs)
    torch.testing.assert_close(found, module(inputs, inputs, inputs)[0])


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
    found = attention_operations(length, features=features, heads=heads)
    assert found <= count(length, features)


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
