import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from rankscope.diagrams import to_module
from rankscope.errors import LayerError
from rankscope.factorize import AttentionOptions, SoftmaxFreeAttention, fresh_projections

BATCH_FIRST = AttentionOptions(batch_first=True)


def layer(heads: int = 2, head_size: int = 3, width: int = 5) -> SoftmaxFreeAttention:
    torch.manual_seed(0)
    return SoftmaxFreeAttention(
        fresh_projections(width, heads * head_size), heads, BATCH_FIRST
    ).double()


def definition(own: SoftmaxFreeAttention, inputs: Tensor, seen: Tensor) -> Tensor:
    """Head by head and query by query; `seen` (queries, keys) says which keys count."""
    size = own.query.out_features // own.num_heads
    outputs = torch.zeros(*inputs.shape[:2], own.query.out_features, dtype=torch.float64)
    for head in range(own.num_heads):
        part = slice(head * size, (head + 1) * size)
        q, k, v = (each(inputs)[..., part] for each in (own.query, own.key, own.value))
        for n in range(inputs.shape[1]):
            keys = [m for m in range(inputs.shape[1]) if seen[n, m]]
            for m in keys:
                score = (q[:, n] * k[:, m]).sum(-1, keepdim=True) / math.sqrt(size)
                outputs[:, n, part] += score * v[:, m] / len(keys)
    mixed: Tensor = own.out(outputs)
    return mixed


@settings(deadline=None, max_examples=15)
@given(heads=st.integers(1, 3), head_size=st.integers(1, 3), length=st.integers(1, 4))
def test_it_is_the_average_of_scores_times_values_over_the_keys_in_sight(
    heads: int, head_size: int, length: int
) -> None:
    own = layer(heads, head_size)
    inputs = torch.randn(2, length, 5, dtype=torch.float64)
    hidden = torch.ones(length, length).triu(1).bool()
    everything = definition(own, inputs, torch.ones(length, length))
    torch.testing.assert_close(own(inputs, inputs, inputs)[0], everything)
    causal, _ = own(inputs, inputs, inputs, attn_mask=hidden)
    torch.testing.assert_close(causal, definition(own, inputs, ~hidden))


def test_a_query_that_sees_nothing_gets_nothing() -> None:
    own, inputs = layer(), torch.randn(1, 2, 5, dtype=torch.float64)
    _, weights = own(inputs, inputs, inputs, attn_mask=torch.ones(2, 2, dtype=torch.bool))
    assert not weights.any()


def test_maps_are_averaged_or_given_each() -> None:
    own, inputs = layer(), torch.randn(1, 4, 5, dtype=torch.float64)
    _, averaged = own(inputs, inputs, inputs)
    _, each = own(inputs, inputs, inputs, average_attn_weights=False)
    assert own(inputs, inputs, inputs, need_weights=False)[1] is None
    torch.testing.assert_close(each.mean(1), averaged)


def test_the_output_is_a_cubic_polynomial_of_its_inputs() -> None:
    """Without biases, doubling the inputs multiplies the output by eight."""
    own = SoftmaxFreeAttention(fresh_projections(5, 6, bias=False), 2, BATCH_FIRST).double()
    inputs = torch.randn(2, 3, 5, dtype=torch.float64)
    once, twice = (own(x, x, x)[0] for x in (inputs, 2 * inputs))
    torch.testing.assert_close(twice, 8 * once)


def test_its_diagram_computes_the_same() -> None:
    own = layer()
    query, key = torch.randn(3, 5, dtype=torch.float64), torch.randn(4, 5, dtype=torch.float64)
    drawn = to_module(own.diagram(num_queries=3, num_keys=4), dict(own.named_parameters()))
    torch.testing.assert_close(drawn(query, key, key), own(query, key, key)[0])


def test_other_masks_dropout_and_uneven_heads_are_refused() -> None:
    own, inputs = layer(), torch.randn(1, 2, 5, dtype=torch.float64)
    with pytest.raises(LayerError, match=r"such as 0\.5"):
        own(inputs, inputs, inputs, attn_mask=torch.full((2, 2), 0.5, dtype=torch.float64))
    with pytest.raises(LayerError, match=r"dropout=0\.1, add_zero_attn=False, bias_k=False"):
        SoftmaxFreeAttention(fresh_projections(4, 4), 2, AttentionOptions(dropout=0.1))
    with pytest.raises(LayerError, match="3 heads cannot share 4 channels"):
        SoftmaxFreeAttention(fresh_projections(4, 4), 3)
