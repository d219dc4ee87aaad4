import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import dropout as torch_dropout

from rankscope.constructions.blocks import (
    EarlyStopping,
    dropout,
    l2_penalty,
    soft_threshold,
)
from rankscope.errors import ConstructionError

seeds = st.integers(0, 2**16)


def random(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_penalties_are_sums_over_all_parameters() -> None:
    parameters = [torch.tensor([[3.0, -4.0]]), torch.tensor([1.0])]
    assert l2_penalty(parameters) == 13.0


@settings(deadline=None, max_examples=40)
@given(seed=seeds, threshold=st.floats(0.0, 2.0))
def test_soft_thresholding_minimizes_distance_and_l1_penalty(seed: int, threshold: float) -> None:
    values = random(seed, 6)
    best = soft_threshold(values, threshold)

    def objective(point: torch.Tensor) -> float:
        return float((point - values).square().sum() / 2 + threshold * point.abs().sum())

    for other in range(20):
        near = best + 0.1 * random(seed + other, 6)
        assert objective(best) <= objective(near) + 1e-12
    assert bool((best[values.abs() <= threshold] == 0).all())


@settings(deadline=None, max_examples=25)
@given(seed=seeds, rate=st.floats(0.01, 0.5), decay=st.floats(0.0, 1.0))
def test_decay_is_the_l2_penalty_and_torchs_weight_decay(
    seed: int, rate: float, decay: float
) -> None:
    target = random(seed + 1, 5)
    theirs, penalized = random(seed, 5).requires_grad_(), random(seed, 5).requires_grad_()
    ours = random(seed, 5)
    optimizer = torch.optim.SGD([theirs], lr=rate, weight_decay=decay)
    plain = torch.optim.SGD([penalized], lr=rate)
    for _ in range(5):
        ours = (1 - rate * decay) * ours - rate * (ours - target)
        optimizer.zero_grad()
        torch.autograd.backward((theirs - target).square().sum() / 2)
        optimizer.step()
        plain.zero_grad()
        loss = (penalized - target).square().sum() / 2 + decay * l2_penalty([penalized])
        torch.autograd.backward(loss)
        plain.step()
    torch.testing.assert_close(ours, theirs.detach())
    torch.testing.assert_close(ours, penalized.detach())


def test_with_adam_decay_and_penalty_go_different_ways() -> None:
    target = random(1, 5)
    ends = []
    for make in (torch.optim.Adam, torch.optim.AdamW):
        theta = random(0, 5).requires_grad_()
        optimizer = make([theta], lr=0.1, weight_decay=0.5)
        for _ in range(10):
            optimizer.zero_grad()
            torch.autograd.backward((theta - target).square().sum() / 2)
            optimizer.step()
        ends.append(theta.detach())
    assert (ends[0] - ends[1]).abs().max() > 0.01


@settings(deadline=None, max_examples=25)
@given(seed=seeds, probability=st.floats(0.0, 0.9))
def test_dropout_is_torchs_with_the_same_choices(seed: int, probability: float) -> None:
    values = random(seed, 4, 5)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        theirs = torch_dropout(values, probability)
        torch.manual_seed(seed)
        is_kept = torch_dropout(torch.ones_like(values), probability) > 0
    torch.testing.assert_close(dropout(values, is_kept, probability=probability), theirs)


@pytest.mark.parametrize("probability", [0.0, 0.3, 0.5])
def test_the_mean_over_all_choices_is_the_value(probability: float) -> None:
    values = random(0, 4)
    mean = torch.zeros_like(values)
    for choice in itertools.product([True, False], repeat=4):
        chance = (1 - probability) ** sum(choice) * probability ** (4 - sum(choice))
        mean += chance * dropout(values, torch.tensor(choice), probability=probability)
    torch.testing.assert_close(mean, values)


@settings(deadline=None)
@given(losses=st.lists(st.floats(-5.0, 5.0), min_size=1, max_size=12), patience=st.integers(1, 12))
def test_early_stopping_takes_the_best_loss_it_saw(losses: list[float], patience: int) -> None:
    best = EarlyStopping(patience).best_step(losses)
    assert losses[best] == min(losses[: best + patience + 1])
    assert EarlyStopping(len(losses)).best_step(losses) == losses.index(min(losses))


def test_wrong_probabilities_shapes_and_patience_are_refused() -> None:
    with pytest.raises(ConstructionError, match="below 1, got 1"):
        dropout(torch.zeros(2), torch.ones(2).bool(), probability=1.0)
    with pytest.raises(ConstructionError, match=r"got shapes \(3,\) and \(2,\)"):
        dropout(torch.zeros(2), torch.ones(3).bool(), probability=0.5)
    with pytest.raises(ConstructionError, match="1 or more, got 0"):
        EarlyStopping(0)
    with pytest.raises(ConstructionError, match="1 or more losses, got 0"):
        EarlyStopping(1).best_step([])
