import copy
import itertools
import math

import pytest
import torch
from torch import nn

from rankscope.diagrams import to_module
from rankscope.errors import LayerError
from rankscope.factorize import (
    AttentionOptions,
    CPAttention,
    IdentityCore,
    TunableAttention,
    linear_of,
)


def test_it_is_multi_head_attention_with_heads_of_size_one() -> None:
    torch.manual_seed(0)
    dense = nn.MultiheadAttention(6, 6, dtype=torch.float64, batch_first=True)
    layer = CPAttention.from_multihead(dense)
    query, key = torch.randn(2, 5, 6).double(), torch.randn(2, 4, 6).double()
    masks = (None, torch.ones(5, 4).triu(1).bool(), torch.randn(12, 5, 4, dtype=torch.float64))
    for mask, averaged in itertools.product(masks, (True, False)):
        call = {"attn_mask": mask, "average_attn_weights": averaged}
        wanted = dense(query, key, key, **call)
        torch.testing.assert_close(layer(query, key, key, **call), wanted)


def test_it_is_tunable_attention_with_the_identity_as_core() -> None:
    torch.manual_seed(0)
    layer = CPAttention.from_sizes(6, 4, kdim=3, vdim=5).double()
    twin = TunableAttention(
        layer.projections, IdentityCore(4).double(), scale=1.0, options=layer.options
    )
    query = torch.randn(5, 2, 6, dtype=torch.float64)
    key, value = (torch.randn(4, 2, size, dtype=torch.float64) for size in (3, 5))
    for needed in (True, False):
        torch.testing.assert_close(
            layer(query, key, value, need_weights=needed),
            twin(query, key, value, need_weights=needed),
        )


@pytest.mark.parametrize(
    ("features", "channels", "count"), [(512, 8, 16_384), (256, 8, 8_192), (1024, 16, 65_536)]
)
def test_parameters_are_those_of_the_specification(
    features: int, channels: int, count: int
) -> None:
    with torch.device("meta"):
        layer = CPAttention.from_sizes(features, channels, bias=False)
    assert layer.num_parameters == 4 * features * channels == count


def test_a_head_of_size_one_prefers_at_most_two_keys_and_one_of_size_two_can_take_all() -> None:
    """Why no claim is made that the CP form contains multi-head attention."""
    angles = 2 * math.pi * torch.arange(8, dtype=torch.float64) / 8
    tokens = torch.stack([angles.cos(), angles.sin()], 1)[None]
    eye = linear_of(torch.eye(2, dtype=torch.float64), None)
    dense = nn.MultiheadAttention(2, 1, bias=False, batch_first=True, dtype=torch.float64)
    dense.load_state_dict(
        {"in_proj_weight": eye.weight.repeat(3, 1), "out_proj.weight": eye.weight}
    )
    of_size_two = dense(tokens, tokens, tokens)[1][0]
    assert len(set(of_size_two.argmax(-1).tolist())) == 8
    options = AttentionOptions(batch_first=True)
    for seed in range(20):
        torch.manual_seed(seed)
        layer = CPAttention.from_sizes(2, 16, options=options).double()
        maps = layer(tokens, tokens, tokens, average_attn_weights=False)[1][0]
        for of_size_one in maps:
            assert len(set(of_size_one.argmax(-1).tolist())) <= 2


def test_larger_heads_are_refused() -> None:
    with pytest.raises(LayerError, match="cannot compute 2 heads of size 3"):
        CPAttention.from_multihead(nn.MultiheadAttention(6, 2))


def test_its_diagram_computes_the_same() -> None:
    layer = CPAttention.from_sizes(6, 4, bias=False).double()
    drawn = to_module(layer.diagram(num_queries=5, num_keys=3), dict(layer.named_parameters()))
    query, key = torch.randn(5, 6).double(), torch.randn(3, 6).double()
    torch.testing.assert_close(drawn(query, key, key), layer(query, key, key)[0])


def test_dropout_is_for_training_only() -> None:
    layer = CPAttention.from_sizes(6, 4, options=AttentionOptions(dropout=0.5))
    inputs = torch.randn(8, 2, 6)
    assert (layer(inputs, inputs, inputs, average_attn_weights=False)[1] == 0).any()
    layer.eval()
    assert torch.equal(layer(inputs, inputs, inputs)[0], layer(inputs, inputs, inputs)[0])


def test_state_and_copies() -> None:
    layer = CPAttention.from_sizes(6, 4)
    twin = copy.deepcopy(layer)
    for parameter in twin.parameters():
        nn.init.zeros_(parameter)
    twin.load_state_dict(layer.state_dict())
    inputs = torch.randn(5, 2, 6)
    assert torch.equal(twin(inputs, inputs, inputs)[0], layer(inputs, inputs, inputs)[0])


@pytest.mark.slow
@torch.no_grad()  # type checks of the test run break graphs, and then gradients warn
def test_it_exports_and_compiles() -> None:
    torch.compiler.reset()  # else sizes that changed since other tests are no integers
    layer = CPAttention.from_sizes(6, 4).eval()
    inputs = torch.randn(5, 2, 6)
    wanted = layer(inputs, inputs, inputs)
    exported = torch.export.export(layer, (inputs, inputs, inputs)).module()
    torch.testing.assert_close(exported(inputs, inputs, inputs), wanted)
    compiled = torch.compile(layer, backend="aot_eager")
    torch.testing.assert_close(compiled(inputs, inputs, inputs), wanted)
