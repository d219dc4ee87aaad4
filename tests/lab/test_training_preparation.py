"""Scores that are not wanted after every epoch."""

from pathlib import Path

import pytest
import torch
from torch import nn

from rankscope.compression import EveryFewEpochs, Recipe, cross_entropy, fit
from rankscope.errors import TrainingError
from rankscope.networks import TensorData

DATA = TensorData(torch.eye(6), torch.arange(6) % 2)


def count(model: nn.Module) -> dict[str, float]:
    assert not model.training
    return {"first weight": float(next(model.parameters()).flatten()[0])}


def trained(epochs: int, folder: Path | None = None) -> list[dict[str, float]]:
    torch.manual_seed(0)
    model = nn.Linear(6, 2)
    few = EveryFewEpochs(count, 3)
    recipe = Recipe(epochs=epochs, batch_size=4)
    history = fit(model, cross_entropy, DATA, recipe, folder=folder, evaluate=few)
    return [dict(record.metrics) for record in history.records]


def test_scores_are_taken_after_every_third_epoch_and_the_last() -> None:
    results = [number for number, scores in enumerate(trained(8), start=1) if scores]
    assert results == [3, 6, 8]


def test_a_run_that_goes_on_scores_the_same_epochs(tmp_path: Path) -> None:
    whole = trained(8)

    seen: list[int] = []

    def interrupted(model: nn.Module) -> dict[str, float]:
        seen.append(1)
        if len(seen) == 2:
            raise KeyboardInterrupt
        return count(model)

    torch.manual_seed(0)
    recipe, few = Recipe(epochs=8, batch_size=4), EveryFewEpochs(interrupted, 3)
    with pytest.raises(KeyboardInterrupt):
        fit(nn.Linear(6, 2), cross_entropy, DATA, recipe, folder=tmp_path, evaluate=few)
    assert trained(8, tmp_path) == whole


def test_no_epochs_between_scores_are_refused() -> None:
    with pytest.raises(TrainingError, match="epochs must be at least 1, got 0"):
        EveryFewEpochs(count, 0)
