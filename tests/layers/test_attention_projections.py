import pytest
import torch
from torch import nn

from rankscope.errors import LayerError
from rankscope.layers.projected_attention import (
    AttentionOptions,
    fresh_projections,
    join_projections,
    split_projections,
)


@pytest.mark.parametrize(
    ("bias", "extra", "key_size", "value_size"),
    [
        (True, False, None, None),
        (False, True, None, None),
        (True, True, 3, None),
        (False, False, 3, 5),
    ],
)
def test_joining_what_was_split_gives_the_same_state(
    bias: bool, extra: bool, key_size: int | None, value_size: int | None
) -> None:
    attention = nn.MultiheadAttention(
        6, 2, bias=bias, add_bias_kv=extra, kdim=key_size, vdim=value_size, dtype=torch.float64
    )
    for parameter in attention.parameters():
        nn.init.normal_(parameter)
    options = AttentionOptions.of(attention)
    again = join_projections(split_projections(attention), options, num_heads=2)
    wanted, got = attention.state_dict(), again.state_dict()
    assert wanted.keys() == got.keys()
    assert all(torch.equal(wanted[name], got[name]) for name in wanted)


def test_what_is_split_or_joined_shares_nothing_with_where_it_came_from() -> None:
    attention = nn.MultiheadAttention(6, 2, add_bias_kv=True)
    linears, options = split_projections(attention), AttentionOptions.of(attention)
    again = join_projections(linears, options, num_heads=2)
    assert options.bias_k is not None
    every = [*attention.parameters(), *again.parameters(), options.bias_k]
    every += [parameter for linear in linears.values() for parameter in linear.parameters()]
    assert len({tensor.data_ptr() for tensor in every}) == len(every)


def test_nothing_is_drawn_from_the_global_generator() -> None:
    attention = nn.MultiheadAttention(6, 2)
    before = torch.get_rng_state()
    join_projections(split_projections(attention), AttentionOptions(), num_heads=2)
    assert torch.equal(before, torch.get_rng_state())


def test_an_output_projection_of_another_kind_is_refused() -> None:
    attention = nn.MultiheadAttention(6, 2)
    attention.register_module("out_proj", nn.Identity())
    with pytest.raises(LayerError, match=r"must be an nn.Linear, got Identity"):
        split_projections(attention)


def test_fresh_projections_start_within_xavier_limits_and_without_bias() -> None:
    parts = fresh_projections(64, 16, kdim=32, vdim=48)
    # Xavier's uniform law: gain * sqrt(6 / (in + out)), and a maximum close to it.
    limits = {"query": 6 / 80 / 2, "key": 6 / 48 / 2, "value": 6 / 64 / 2, "out": 6 / 80}
    for name, squared in limits.items():
        largest = float(parts[name].weight.detach().abs().max())
        assert 0.9 * squared**0.5 < largest <= squared**0.5
        assert not parts[name].bias.any()
