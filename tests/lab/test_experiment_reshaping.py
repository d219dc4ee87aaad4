from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.factorize import FORMATS, WeightShape, balanced_factors
from rankscope.lab import find_experiment
from rankscope.lab.experiments import PlantedKernelEntry, RunContext, Structure, planted_kernel
from rankscope.lab.experiments.reshaping import error_within, winner

RESHAPING = find_experiment("reshaping")

# What is planted is there.


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


# Reshaped forms win where they must, and do not where they must not.


SMALL = WeightShape(16, 16, (3, 3))
KEEP = 0.06  # 138 of 2304; tiles of 4 x 4 kernels need 2 (16 + 16 + 9) of them reshaped


@pytest.mark.parametrize(
    ("structure", "winners"),
    [
        (Structure.PERIODIC, {"reshaped"}),
        (Structure.MODULATED, {"reshaped"}),
        (Structure.LOW_RANK, {"plain"}),
        (Structure.RANDOM, {"plain", "neither"}),
    ],
)
def test_who_wins_follows_from_what_was_planted(
    tmp_path: Path, structure: Structure, winners: set[str]
) -> None:
    row = PlantedKernelEntry(structure, SMALL, KEEP).run(RunContext(tmp_path, None, 60.0))
    assert row["winner"] in winners
    assert row["parameters"] == 138
    errors = [row[name] for name in FORMATS]
    assert all(isinstance(error, float) and 0 <= error <= 1 for error in errors)


def test_the_error_is_none_where_nothing_fits() -> None:
    kernel = planted_kernel(Structure.RANDOM, SMALL)
    assert error_within(kernel, FORMATS["svd"], 5) is None
    # 37 is a prime: such channels cannot be cut.
    prime = torch.randn(37, 37, 3, 3, generator=torch.Generator().manual_seed(0))
    assert FORMATS["r-tensor-train"].refusal(WeightShape.of(prime)) is not None
    assert error_within(prime, FORMATS["r-tensor-train"], 5000) is None


def test_nothing_but_a_clear_difference_is_a_win() -> None:
    assert winner(1.0, 0.94) == "reshaped"
    assert winner(1.0, 0.96) == winner(0.96, 1.0) == "neither"
    assert winner(0.94, 1.0) == "plain"


def test_the_experiment_has_all_structures_at_every_shape_and_share() -> None:
    assert len(RESHAPING.entries) == 4 * 2 * 3
    assert RESHAPING.entries[0].name == "periodic-64-to-64-at-1.2"
