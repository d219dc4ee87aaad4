"""What is planted is there."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.experiments.reshaping import Structure, planted_kernel
from rankscope.layers.formats.channel_factors import balanced_factors
from rankscope.layers.formats.format import WeightShape

CHANNELS = st.sampled_from([4, 6, 8, 9, 12, 16])


@settings(deadline=None, max_examples=20)
@given(out_size=CHANNELS, in_size=CHANNELS, seed=st.integers(0, 99))
def test_every_copy_of_a_tile_is_the_tile_times_one_number(
    out_size: int, in_size: int, seed: int
) -> None:
    shape = WeightShape(out_size, in_size, (3, 3))
    rows, columns = balanced_factors(out_size, 2)[1], balanced_factors(in_size, 2)[1]
    for structure in (Structure.PERIODIC, Structure.MODULATED):
        kernel = planted_kernel(structure, shape, seed=seed, noise=0.0)
        tiles = [
            kernel[at : at + rows, to : to + columns].flatten()
            for at in range(0, out_size, rows)
            for to in range(0, in_size, columns)
        ]
        assert torch.linalg.matrix_rank(torch.stack(tiles)) == 1
        if structure is Structure.PERIODIC:
            assert all(torch.equal(tile, tiles[0]) for tile in tiles)


def test_low_rank_is_low_in_every_direction_and_random_is_not() -> None:
    shape = WeightShape(12, 10, (3, 3))
    for structure, wanted in ((Structure.LOW_RANK, (3, 3)), (Structure.RANDOM, (12, 10))):
        kernel = planted_kernel(structure, shape, noise=0.0)
        ranks = [
            int(torch.linalg.matrix_rank(kernel.movedim(place, 0).flatten(1))) for place in (0, 1)
        ]
        assert tuple(ranks) == wanted


def test_noise_is_relative_to_the_kernel() -> None:
    shape = WeightShape(8, 8, (3, 3))
    clean, noisy = (
        planted_kernel(Structure.MODULATED, shape, seed=4, noise=noise) for noise in (0.0, 0.1)
    )
    torch.testing.assert_close((noisy - clean).norm(), 0.1 * clean.norm())
