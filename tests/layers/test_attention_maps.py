import torch

from rankscope.layers.projected_attention import Maps, attend, join_heads, mix_values, split_heads


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
