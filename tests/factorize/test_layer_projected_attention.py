"""Projections, masks and maps that every attention shares."""

from typing import TypedDict

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from rankscope.errors import LayerError
from rankscope.factorize import AttentionOptions, fresh_projections, split_projections
from rankscope.factorize.projected_attention import (
    Maps,
    attend,
    join_heads,
    join_projections,
    merged_mask,
    mix_values,
    split_heads,
)


def test_heads_are_neighbouring_features() -> None:
    tensor = torch.arange(2 * 3 * 6.0).reshape(2, 3, 6)
    heads = split_heads(tensor, 2)
    for head in range(2):
        assert torch.equal(heads[:, head], tensor[..., 3 * head : 3 * head + 3])
    assert torch.equal(join_heads(heads), tensor)


def test_the_fused_kernel_and_the_maps_agree(generator: torch.Generator) -> None:
    draw = [torch.randn(2, n, 6, generator=generator, dtype=torch.float64) for n in (4, 5, 5)]
    mask = torch.randn(2, 1, 1, 5, generator=generator, dtype=torch.float64)
    query, key, value = draw
    fused, none = attend(query, key, value, mask, num_heads=3, dropout=0.0, maps=Maps.NONE)
    plain, maps = attend(query, key, value, mask, num_heads=3, dropout=0.0, maps=Maps.EACH)
    averaged = attend(query, key, value, mask, num_heads=3, dropout=0.0, maps=Maps.AVERAGED)[1]
    assert none is None
    assert maps is not None
    assert averaged is not None
    torch.testing.assert_close(fused, plain)
    torch.testing.assert_close(maps.sum(-1), torch.ones(2, 3, 4, dtype=torch.float64))
    torch.testing.assert_close(averaged, maps.mean(1))


def test_channels_share_a_map_with_their_neighbours(generator: torch.Generator) -> None:
    scores = torch.randn(1, 2, 3, 4, generator=generator, dtype=torch.float64)
    value = torch.randn(1, 4, 6, generator=generator, dtype=torch.float64)
    mixed, _ = mix_values(scores, value, None, dropout=0.0, maps=Maps.NONE)
    for channel in range(6):
        weights = torch.softmax(scores[0, channel // 3], -1)
        torch.testing.assert_close(mixed[0, :, channel], weights @ value[0, :, channel])


def test_dropout_acts_on_the_maps_that_are_returned(generator: torch.Generator) -> None:
    scores = torch.zeros(1, 2, 50, 40, dtype=torch.float64)
    value = torch.randn(1, 40, 2, generator=generator, dtype=torch.float64)
    mixed, maps = mix_values(scores, value, None, dropout=0.5, maps=Maps.EACH)
    assert maps is not None
    # What is kept of equal weights is twice as large, what is not is zero.
    assert set(maps.flatten().tolist()) == {0.0, 2 / 40}
    torch.testing.assert_close(mixed, join_heads(maps @ split_heads(value, 2)))


BATCH, NUM_MAPS, NUM_QUERIES, NUM_KEYS = SCORES = (2, 6, 3, 5)


class Sizes(TypedDict):
    query: Tensor
    key: Tensor
    num_maps: int


def _sizes(dtype: torch.dtype) -> Sizes:
    query = torch.zeros(BATCH, NUM_QUERIES, 4, dtype=dtype)
    return {"query": query, "key": torch.zeros(BATCH, NUM_KEYS, 4), "num_maps": NUM_MAPS}


def test_no_masks_add_nothing() -> None:
    assert merged_mask(None, None, **_sizes(torch.float64)) is None


@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 2**16), groups=st.sampled_from([1, 2, 3, 6]))
def test_both_masks_meet_entry_by_entry(seed: int, groups: int) -> None:
    draw = torch.Generator().manual_seed(seed)
    padding = torch.randint(2, (BATCH, NUM_KEYS), generator=draw).bool()
    extra = torch.randn(BATCH * groups, NUM_QUERIES, NUM_KEYS, generator=draw, dtype=torch.float64)
    mask = merged_mask(padding, extra, **_sizes(torch.float64))
    assert mask is not None
    whole = mask.expand(SCORES)
    for sample in range(BATCH):
        for place in range(NUM_MAPS):
            # Map `place` belongs to the group that holds it, groups being of neighbours.
            wanted = extra[sample * groups + place * groups // NUM_MAPS].clone()
            wanted[:, padding[sample]] = float("-inf")
            assert torch.equal(whole[sample, place], wanted)


def test_a_boolean_matrix_is_shared_by_samples_and_maps() -> None:
    causal = torch.ones(3, 5).triu(1).bool()
    mask = merged_mask(None, causal, **_sizes(torch.float32))
    assert mask is not None
    assert mask.shape == (1, 1, 3, 5)
    assert torch.equal(mask[0, 0] == float("-inf"), causal)
    assert torch.equal(mask[0, 0][~causal], torch.zeros(int((~causal).sum())))


@pytest.mark.parametrize("shape", [(5,), (5, 3), (3, 3, 5), (2 * 4, 3, 5), (0, 3, 5), (4, 5, 3)])
def test_a_mask_of_another_shape_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(LayerError, match=r"shape \(3, 5\), or 2 times a divisor of 6 .* got \("):
        merged_mask(None, torch.zeros(shape), **_sizes(torch.float32))


def test_a_padding_mask_of_another_shape_is_refused() -> None:
    with pytest.raises(LayerError, match=r"must have shape \(2, 5\).* got \(5, 2\)"):
        merged_mask(torch.zeros(5, 2), None, **_sizes(torch.float32))


def test_a_mask_of_integers_is_refused() -> None:
    with pytest.raises(LayerError, match=r"boolean .* or floating-point .* got torch.int64"):
        merged_mask(torch.zeros(2, 5).long(), None, **_sizes(torch.float32))


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
