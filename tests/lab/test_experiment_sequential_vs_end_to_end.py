"""Both protocols process the samples they are told to."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from rankscope.errors import ExperimentError
from rankscope.lab import find_experiment
from rankscope.lab.experiments import Protocol, RunContext, SamplesEntry, ScratchEntry
from rankscope.lab.experiments.image_workloads import DIGITS, SOURCE_RECIPE

SEQUENTIAL_VS_END_TO_END = find_experiment("sequential-vs-end-to-end")

pytest.importorskip("sklearn")


def number(value: object) -> float:
    assert isinstance(value, int | float)
    return float(value)


@pytest.mark.parametrize("protocol", list(Protocol))
def test_samples_are_counted_over_all_stages(tmp_path: Path, protocol: Protocol) -> None:
    recipe = replace(SOURCE_RECIPE, batch_size=50)
    entry = SamplesEntry(DIGITS, "tensor-train", protocol, 2000, recipe)
    row = entry.run(RunContext(tmp_path, None, 60.0))
    # 1000 in each of two stages; end to end 28 batches of 50, one of 37, then 12 of 50.
    assert row["samples"] == (2000 if protocol is Protocol.SEQUENTIAL else 2037)
    assert row["accuracy"] != row["accuracy before"]
    assert entry.name == f"tensor-train-{protocol}-2000"


def test_from_scratch_nothing_comes_from_the_trained_network(tmp_path: Path) -> None:
    recipe = replace(SOURCE_RECIPE, batch_size=50)
    entry = ScratchEntry(DIGITS, "tensor-train", samples=500, recipe=recipe)
    row = entry.run(RunContext(tmp_path, None, 60.0))
    assert entry.name == "tensor-train-from-scratch-500"
    assert number(row["accuracy before"]) < 30  # chance is 10
    reference = DIGITS.build(None)
    started = DIGITS.convolutions(entry.start(reference))
    for name, trained in DIGITS.convolutions(reference).items():
        assert not torch.equal(started[name].weight, trained.weight)


def test_seeds_draw_the_samples_and_not_the_decomposition(tmp_path: Path) -> None:
    recipe = replace(SOURCE_RECIPE, batch_size=50)
    rows = [
        replace(
            SamplesEntry(DIGITS, "tensor-train", Protocol.END_TO_END, 500, recipe), seed=seed
        ).run(RunContext(tmp_path / f"{place}", None, 60.0))
        for place, seed in enumerate((0, 0, 1, 2))
    ]
    first, again, *others = (number(row["accuracy"]) for row in rows)
    assert first == again
    assert {first} != {first, *others}
    assert len({row["accuracy before"] for row in rows}) == 1


def test_stages_cannot_be_fitted_from_scratch() -> None:
    with pytest.raises(ExperimentError, match="end to end, not by the protocol sequential"):
        ScratchEntry(DIGITS, "tensor-train", Protocol.SEQUENTIAL, 500)


def test_the_two_cells_that_the_source_lacks_are_there() -> None:
    names = {entry.name for entry in SEQUENTIAL_VS_END_TO_END.entries}
    assert len([name for name in names if not name.startswith("baseline-")]) == 18
    assert {"tensor-train-sequential-10000", "r-tensor-train-end-to-end-100000"} <= names
