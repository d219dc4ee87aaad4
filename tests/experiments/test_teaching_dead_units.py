import pytest

from rankscope.errors import TrainingError
from rankscope.experiments.teaching_training import DYING_WIDTH, train_until_dead


def test_long_steps_kill_units_and_short_ones_learn() -> None:
    calm, wild = (train_until_dead(rate=rate, steps=100) for rate in (1.0, 30.0))
    assert calm.before == wild.before
    assert calm.after.num_dead < wild.after.num_dead
    assert wild.after.num_dead > DYING_WIDTH // 2
    assert calm.accuracy > max(0.8, wild.accuracy)


def test_a_rate_that_is_not_positive_is_refused() -> None:
    with pytest.raises(TrainingError, match="positive rate, got -1"):
        train_until_dead(rate=-1.0)
