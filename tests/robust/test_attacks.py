"""Attacks: within their radius, never better than exact distances, never worse with restarts."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from rankscope.errors import RobustnessError
from rankscope.progress import Progress
from rankscope.robust import (
    L2,
    Attack,
    Attacked,
    AttackLoss,
    AutoProjectedDescent,
    CrossEntropy,
    Linf,
    LogitsRatio,
    Margin,
    Norm,
    ProjectedDescent,
    Threat,
    attack,
)

ATTACKS: list[Attack] = [ProjectedDescent(), AutoProjectedDescent(steps=20)]
LOSSES: list[AttackLoss] = [CrossEntropy(), Margin(), LogitsRatio()]


def network(seed: int, classes: int = 4) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Flatten(), nn.Linear(12, 16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, classes)
    )


def samples(model: nn.Module, seed: int, count: int = 20) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.rand(count, 3, 2, 2, generator=generator)
    with torch.no_grad():
        return inputs, model.eval()(inputs).argmax(dim=1)


@settings(deadline=None, max_examples=25)
@given(
    seed=st.integers(0, 2**16),
    norm=st.sampled_from([L2(), Linf()]),
    by=st.sampled_from(ATTACKS),
    radius=st.sampled_from([0.0, 1e-7, 0.05, 0.5]),
)
def test_perturbations_stay_within_the_radius_and_the_pixels(
    seed: int, norm: Norm, by: Attack, radius: float
) -> None:
    model = network(seed)
    inputs, labels = samples(model, seed)
    labels[:3] = (labels[:3] + 1) % 4  # some that are wrong already
    found = attack(model, inputs, labels, Threat(radius, norm), by=by)
    distances = norm.lengths(found.inputs.double() - inputs.double())
    assert float(distances.max()) <= radius
    assert torch.equal(distances, found.distances)
    assert (found.inputs >= 0).all()
    assert (found.inputs <= 1).all()
    with torch.no_grad():
        predictions = model(found.inputs).argmax(dim=1)
    assert torch.equal(predictions != labels, found.is_broken)
    assert found.is_broken[:3].all()
    assert torch.equal(found.inputs[~found.is_broken], inputs[~found.is_broken])
    assert found.accuracy == pytest.approx(float((predictions == labels).float().mean()))
    if radius == 0:
        assert found.accuracy == pytest.approx(17 / 20)


@pytest.mark.parametrize("by", ATTACKS)
@pytest.mark.parametrize("norm", [L2(), Linf()])
def test_linear_classifiers_break_exactly_beyond_their_distance(by: Attack, norm: Norm) -> None:
    torch.manual_seed(0)
    model = nn.Linear(3, 2).double()
    inputs = torch.randn(8, 3, dtype=torch.float64)
    with torch.no_grad():
        outputs = model(inputs)
    labels = outputs.argmax(dim=1)
    row = (model.weight[0] - model.weight[1]).detach()
    distances = outputs.diff(dim=1).abs().flatten() / norm.dual_lengths(row, axes=1)
    for factor, is_broken in ((0.98, False), (1.1, True)):
        for number, distance in enumerate(distances.tolist()):
            chosen = slice(number, number + 1)
            threat = Threat(factor * distance, norm, pixels=None)
            found = attack(model, inputs[chosen], labels[chosen], threat, by=by)
            assert found.is_broken.tolist() == [is_broken]


@settings(deadline=None, max_examples=10)
@given(seed=st.integers(0, 2**16), by=st.sampled_from([ProjectedDescent, AutoProjectedDescent]))
def test_more_restarts_are_never_worse(seed: int, by: type[Attack]) -> None:
    model = network(seed)
    inputs, labels = samples(model, seed)
    threat = Threat(0.2, L2())
    before = torch.zeros(20, dtype=torch.bool)
    for restarts in (1, 2, 4):
        method = by(steps=3, restarts=restarts, loss=CrossEntropy(), seed=1)
        found = attack(model, inputs, labels, threat, by=method, batch_size=8)
        assert (found.is_broken | ~before).all()
        before = found.is_broken


@pytest.mark.parametrize("loss", LOSSES)
def test_losses_rise_towards_another_label(loss: AttackLoss) -> None:
    labels = torch.tensor([0, 0])
    low, high = loss(torch.tensor([[3.0, 1.0, 0.0], [1.0, 1.5, 0.0]]), labels)
    assert float(low) < float(high)


def test_the_ratio_of_logits_has_no_scale_and_its_sign_tells_who_wins() -> None:
    outputs, labels = (
        torch.tensor([[3.0, 1.0, 0.0, -1.0], [1.0, 4.0, 0.0, 3.0]]),
        torch.tensor([0, 0]),
    )
    found = LogitsRatio()(outputs, labels)
    torch.testing.assert_close(found, torch.tensor([-2 / 3, 3 / 3]))
    torch.testing.assert_close(LogitsRatio()(100 * outputs, labels), found)
    assert Margin()(outputs, labels).tolist() == [-2.0, 3.0]


def test_a_seed_gives_the_same_attack_again_and_the_mode_stays() -> None:
    model = network(0).train()
    inputs, labels = samples(network(0), 0)
    threat, by = Threat(0.1, L2()), ProjectedDescent(seed=3)
    found = [attack(model, inputs, labels, threat, by=by).inputs for _ in range(2)]
    assert torch.equal(*found)
    assert model.training
    assert all(parameter.grad is None for parameter in model.parameters())


def test_progress_counts_searches() -> None:
    seen: list[Progress] = []
    model = network(0)
    inputs, labels = samples(model, 0)
    by = ProjectedDescent(restarts=2)
    attack(model, inputs, labels, Threat(0.1, L2()), by=by, batch_size=8, report=seen.append)
    assert [(step.done, step.total) for step in seen] == [(n, 6) for n in range(1, 7)]


def test_apgd_is_stronger_than_one_long_step() -> None:
    """With steps that are halved it settles where PGD with steps as long as the ball jumps."""
    model = network(4)
    inputs, labels = samples(model, 4, count=60)
    threat = Threat(0.25, L2())
    coarse = attack(model, inputs, labels, threat, by=ProjectedDescent(steps=30, step=2.0))
    fine = attack(model, inputs, labels, threat, by=AutoProjectedDescent(steps=30))
    assert fine.is_broken.sum() >= coarse.is_broken.sum()


@pytest.mark.parametrize("steps", [1, 2, 7, 50, 100])
def test_apgd_looks_back_less_and_less_far(steps: int) -> None:
    found = AutoProjectedDescent(steps=steps).checkpoints()
    assert list(found) == sorted(set(found))
    assert all(1 <= step <= steps for step in found)


def test_refusals_name_the_numbers() -> None:
    model = network(0, classes=2)
    inputs, labels = samples(model, 0)
    threat = Threat(0.1, L2())
    with pytest.raises(RobustnessError, match=r"0 or more, and finite, got -0\.5"):
        Threat(-0.5, L2())
    with pytest.raises(RobustnessError, match="finite, got inf"):
        Threat(math.inf, L2())
    with pytest.raises(RobustnessError, match="at least 1, got 0 and 1"):
        ProjectedDescent(steps=0)
    with pytest.raises(RobustnessError, match=r"within 0.0 to 1.0, got -?\d.* to \d"):
        attack(model, inputs * 3, labels, threat, by=ProjectedDescent())
    with pytest.raises(RobustnessError, match="at least one sample, got 0"):
        attack(model, inputs[:0], labels[:0], threat, by=ProjectedDescent())
    with pytest.raises(RobustnessError, match="needs at least 3 classes, got 2"):
        attack(model, inputs, labels, threat, by=ProjectedDescent(loss=LogitsRatio()))


def test_what_was_found_says_its_accuracy() -> None:
    found = Attacked(torch.zeros(4, 1), torch.tensor([True, False, False, False]), torch.zeros(4))
    assert found.accuracy == 0.75
