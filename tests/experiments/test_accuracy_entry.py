"""Accuracy with CP layers."""

from dataclasses import replace
from pathlib import Path

from rankscope.experiments.cp_networks import CP_LAYERS_ACCURACY, AccuracyEntry, TrainingWorkload
from rankscope.experiments.experiment import Row, RunContext
from rankscope.training.recipe import Recipe

ENTRY = AccuracyEntry(
    TrainingWorkload("digits", 60, width=4), Recipe(epochs=3, batch_size=20, learning_rate=1e-2)
)


def run(entry: AccuracyEntry, folder: Path) -> Row:
    return entry.run(RunContext(folder, None, 60.0))


def test_a_row_follows_from_its_seed(tmp_path: Path) -> None:
    rows = [run(replace(ENTRY, seed=seed), tmp_path / str(at)) for at, seed in enumerate((0, 0, 1))]
    assert rows[0] == rows[1]
    assert rows[0]["losses"] != rows[2]["losses"]
    train, test = rows[0]["train accuracy"], rows[0]["test accuracy"]
    assert isinstance(train, float)
    assert isinstance(test, float)
    assert rows[0]["gap"] == train - test


def test_every_network_is_compared_with_its_plain_twin() -> None:
    for entries in (CP_LAYERS_ACCURACY.entries, CP_LAYERS_ACCURACY.quick):
        for plain, factorized in zip(entries[::2], entries[1::2], strict=True):
            assert isinstance(plain, AccuracyEntry)
            assert isinstance(factorized, AccuracyEntry)
            twin = replace(plain.workload, is_cp=True)
            assert replace(plain, workload=twin) == factorized
