import pytest
import torch

from rankscope.errors import TrainingError
from rankscope.experiments.teaching_training import NUM_SPIRAL_POINTS, spirals, train_deep


def test_a_deep_network_learns_only_with_skips() -> None:
    without, within = (train_deep(depth=24, with_skips=skips, steps=40) for skips in (False, True))
    assert without.first_gradients[0] < 1e-6 < 1e-2 < within.first_gradients[0]
    assert without.losses[-1] > 0.6 > 0.3 > within.losses[-1]
    assert without.accuracy < within.accuracy
    assert len(within.losses) == 41
    assert len(within.first_gradients) == 24


def test_spirals_are_balanced_and_inside_a_circle() -> None:
    points, labels = spirals(torch.Generator().manual_seed(0))
    assert int(labels.sum()) == NUM_SPIRAL_POINTS // 2
    assert float(points.norm(dim=1).max()) <= 2.0


def test_no_step_is_refused() -> None:
    with pytest.raises(TrainingError, match="1 or more steps, got 0"):
        train_deep(depth=2, with_skips=True, steps=0)
