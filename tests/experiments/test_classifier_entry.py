import math
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch

from rankscope.architectures.classifiers.features import PatchFeatures
from rankscope.architectures.classifiers.shallow_classifier import ShallowClassifier
from rankscope.errors import ExperimentError
from rankscope.experiments.classifiers import (
    ClassifierEntry,
    odd_even_rank,
    percent_right,
)
from rankscope.experiments.experiment import Row, RunContext
from rankscope.training.batches import TensorData
from rankscope.training.recipe import Recipe

PATCHES = partial(PatchFeatures, image=(1, 8, 8), patch=4, num_features=4)
ENTRY = ClassifierEntry(
    "small",
    PATCHES,
    partial(ShallowClassifier, channels=3),
    "digits",
    Recipe(epochs=2, batch_size=32, learning_rate=1e-2),
    num_samples=96,
    published=(96.36, 95.32),
)


def run(entry: ClassifierEntry, folder: Path) -> Row:
    return entry.run(RunContext(folder, None, 60.0))


def test_a_row_has_accuracies_after_every_epoch_and_what_was_published(tmp_path: Path) -> None:
    row = run(ENTRY, tmp_path)
    accuracies, losses = row["test accuracies"], row["losses"]
    assert isinstance(accuracies, list)
    assert isinstance(losses, list)
    assert len(accuracies) == len(losses) == 2
    assert row["test accuracy"] == accuracies[-1]
    assert (row["published train"], row["published test"]) == (96.36, 95.32)
    # 3 x 16 + 3 of the features, 4 x 3 x 4 factors and 3 x 10 mixing weights.
    assert row["parameters"] == 3 * 16 + 3 + 4 * 3 * 4 + 3 * 10


def test_the_same_seed_gives_the_same_row_and_another_one_another(tmp_path: Path) -> None:
    rows = [
        run(replace(ENTRY, seed=seed), tmp_path / str(number))
        for number, seed in enumerate((0, 0, 1))
    ]
    losses = [row["losses"] for row in rows]
    assert losses[0] == losses[1] != losses[2]


def test_more_samples_than_there_are_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ExperimentError, match="digits has 1,437 training samples, but 1,438 are"):
        run(replace(ENTRY, num_samples=1438), tmp_path)


def test_the_rank_is_the_minimal_cut_between_odd_and_even_patches() -> None:
    assert odd_even_rank(ENTRY.build(10)) == pytest.approx(math.log10(3))


def test_percents_count_labels_with_the_largest_logit() -> None:
    data = TensorData(torch.eye(4), torch.tensor([0, 1, 2, 0]))
    assert percent_right(torch.nn.Identity(), data) == 75.0
