"""Reshaped forms win where they must, and do not where they must not."""

from pathlib import Path

import pytest
import torch

from rankscope.experiments.experiment import RunContext
from rankscope.experiments.reshaping import (
    RESHAPING,
    PlantedKernelEntry,
    Structure,
    error_within,
    planted_kernel,
    winner,
)
from rankscope.layers.formats.catalogue import FORMATS
from rankscope.layers.formats.format import WeightShape

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
