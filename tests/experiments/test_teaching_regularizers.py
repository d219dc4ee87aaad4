import pytest
import torch

from rankscope.experiments.teaching_training import (
    L1,
    L2,
    NUM_POINTS,
    REGULARIZERS,
    Dropout,
    NoisyRegression,
    Regularizer,
    Stopping,
    WeightDecay,
    train,
)


def test_without_help_noise_is_learned_by_heart() -> None:
    found = train(Regularizer(), steps=300)
    assert found.train_losses[-1] < 0.01 < min(found.test_losses)
    assert found.kept == len(found.steps) - 1
    assert found.steps[-1] == 300


def test_weight_decay_is_the_l2_penalty() -> None:
    first, second = train(L2(0.05), steps=50), train(WeightDecay(0.05), steps=50)
    assert first.train_losses == pytest.approx(second.train_losses, rel=1e-9)
    assert first.test_losses == pytest.approx(second.test_losses, rel=1e-9)


def test_only_l1_makes_weights_exactly_zero() -> None:
    zeros = {each.name: train(each, steps=100).zeros for each in REGULARIZERS}
    assert zeros.pop("L1") > 0.05
    assert set(zeros.values()) == {0.0}


def test_a_stronger_penalty_leaves_a_larger_training_error() -> None:
    weak, strong = (train(L1(strength), steps=100).train_losses[-1] for strength in (0.001, 0.1))
    assert weak < strong


def test_early_stopping_keeps_an_earlier_network_of_the_same_run() -> None:
    plain, stopped = train(Regularizer(), steps=200), train(Stopping(3), steps=200)
    assert plain.test_losses == stopped.test_losses
    assert stopped.kept < plain.kept


def test_dropout_and_seeds_change_the_run() -> None:
    assert train(Dropout(0.5), steps=10) != train(Regularizer(), steps=10)
    assert train(Dropout(0.5), steps=10) == train(Dropout(0.5), steps=10)
    assert train(Dropout(0.5), steps=10, seed=1) != train(Dropout(0.5), steps=10)


def test_names_differ_and_the_noise_is_only_on_the_points_of_training() -> None:
    assert len({each.name for each in REGULARIZERS}) == 6
    problem = NoisyRegression.made(torch.Generator().manual_seed(0))

    def rule(inputs: torch.Tensor) -> torch.Tensor:
        return (inputs[:, 0].sin() + inputs[:, 1] * inputs[:, 2] / 2)[:, None]

    assert torch.equal(problem.test_goals, rule(problem.test_inputs))
    assert bool((problem.goals != rule(problem.inputs)).all())
    assert len(problem.goals) == NUM_POINTS
