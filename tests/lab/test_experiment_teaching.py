from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.errors import TrainingError
from rankscope.lab import find_experiment
from rankscope.lab.constructions import dense_layers, depth_separation
from rankscope.lab.experiments import (
    L1,
    L2,
    Dropout,
    NoisyRegression,
    Regularizer,
    RunContext,
    SawtoothRival,
    Stopping,
    TrainedRegions,
    WeightDecay,
    spirals,
    train_deep,
    train_until_dead,
)
from rankscope.lab.experiments.teaching_training import (
    DYING_WIDTH,
    NUM_POINTS,
    NUM_SPIRAL_POINTS,
    REGULARIZERS,
    add_spread_copies,
    train,
    train_moved,
)
from rankscope.progress import Progress

SAWTOOTH_RIVALS = find_experiment("sawtooth-rivals")
TRAINED_REGIONS = find_experiment("trained-regions")

# Teaching dead units.


@pytest.mark.slow
def test_long_steps_kill_units_and_short_ones_learn() -> None:
    calm, wild = (train_until_dead(rate=rate, steps=100) for rate in (1.0, 30.0))
    assert calm.before == wild.before
    assert calm.after.num_dead < wild.after.num_dead
    assert wild.after.num_dead > DYING_WIDTH // 2
    assert calm.accuracy > max(0.8, wild.accuracy)


def test_a_rate_that_is_not_positive_is_refused() -> None:
    with pytest.raises(TrainingError, match="positive rate, got -1"):
        train_until_dead(rate=-1.0)


# Teaching regions.


def test_the_regions_of_a_trained_network_are_counted_and_drawn(tmp_path: Path) -> None:
    row = TrainedRegions((6, 4), 0, 60).run(RunContext(tmp_path, None, 60.0))
    patterns, pieces, most = row["patterns"], row["affine pieces"], row["at most"]
    assert isinstance(patterns, int)
    assert isinstance(pieces, int)
    assert isinstance(most, int)
    assert 1 <= pieces <= patterns <= most == 22 * 11
    assert (tmp_path / str(row["picture"])).stat().st_size > 0


def test_training_learns_the_circle(tmp_path: Path) -> None:
    context = RunContext(tmp_path, None, 60.0)
    (network, before), (_, after) = (
        TrainedRegions((12,), 1, steps).train(context) for steps in (0, 300)
    )
    assert after > max(before, 0.85)
    assert [len(layer.bias) for layer in dense_layers(network)] == [12, 1]


def test_rows_have_different_names() -> None:
    assert len({entry.name for entry in TRAINED_REGIONS.entries}) == 3


# Teaching regularizers.


def test_without_help_noise_is_learned_by_heart() -> None:
    result = train(Regularizer(), steps=300)
    assert result.train_losses[-1] < 0.01 < min(result.test_losses)
    assert result.kept == len(result.steps) - 1
    assert result.steps[-1] == 300


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


# Teaching sawtooth.


@pytest.mark.parametrize("seed", [0, 1])
def test_trained_rivals_stay_above_the_proved_distance(tmp_path: Path, seed: int) -> None:
    seen: list[Progress] = []
    rival = SawtoothRival(2, seed, steps=150)
    row = rival.run(RunContext(tmp_path, None, 60.0, seen.append))
    distance, bound = row["distance"], row["least for its pieces"]
    assert isinstance(distance, float)
    assert isinstance(bound, float)
    assert distance >= bound >= float(depth_separation(2).distance)
    assert len(seen) == 150


def test_training_brings_a_rival_nearer(tmp_path: Path) -> None:
    context = RunContext(tmp_path, None, 60.0)
    before, after = (
        SawtoothRival(2, 0, steps=steps).run(context)["distance"] for steps in (0, 200)
    )
    assert isinstance(before, float)
    assert isinstance(after, float)
    assert after < before


def test_rivals_have_the_layers_and_units_of_the_theorem(tmp_path: Path) -> None:
    network = SawtoothRival(3, 0, steps=0).train(RunContext(tmp_path, None, 60.0))
    assert [len(layer.bias) for layer in dense_layers(network)] == [3, 3, 2, 1]


def test_the_experiment_has_a_row_for_each_seed() -> None:
    assert len({entry.name for entry in SAWTOOTH_RIVALS.entries}) == 6


# Teaching skip connections.


@pytest.mark.slow
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


@settings(deadline=None, max_examples=10)
@given(examples=st.integers(6, 12), size=st.integers(1, 5), seed=st.integers(0, 99))
def test_copies_spread_along_the_axes_are_ridge_regression(
    examples: int, size: int, seed: int
) -> None:
    """The loss on the copies is that on the examples, plus the spread squared times |w|²."""
    drawn = torch.Generator().manual_seed(seed)
    inputs = torch.randn(examples, size, generator=drawn, dtype=torch.float64)
    goals = torch.randn(examples, generator=drawn, dtype=torch.float64)
    weights = torch.randn(size, generator=drawn, dtype=torch.float64)
    copies, repeated = add_spread_copies(inputs, goals, 0.7)
    loss = (copies @ weights - repeated).square().mean()
    penalized = (inputs @ weights - goals).square().mean() + 0.49 * weights.square().sum()
    torch.testing.assert_close(loss, penalized)


def test_moved_examples_teach_moved_patterns() -> None:
    """Without moves the network is near chance, one of four, on patterns four places off."""
    plain, moved = (train_moved(farthest=farthest, steps=100) for farthest in (0, 4))
    assert plain.moves == tuple(range(-4, 5))
    far = [0, -1]
    assert max(plain.accuracies[n] for n in far) < min(moved.accuracies[n] for n in far)
    assert plain.accuracies[4] > 0.9


def test_moves_below_zero_are_refused() -> None:
    with pytest.raises(TrainingError, match="got 1, -1"):
        train_moved(farthest=-1, steps=1)
