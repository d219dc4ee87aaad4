import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from rankscope.compression import Recipe, cross_entropy, fit
from rankscope.errors import TrainingError
from rankscope.lab.data import AdversarialLoss, MarginLoss, OffsetCrossEntropy
from rankscope.networks import Batch, TensorData
from rankscope.robust import L2, Linf, Threat

# Margin loss.


@settings(deadline=None)
@given(seed=st.integers(0, 2**32), margin=st.floats(0.1, 3.0))
def test_it_is_its_formula(seed: int, margin: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(3, 5, dtype=torch.float64, generator=generator)
    labels = torch.randint(5, (3,), generator=generator)
    lacking = sum(
        max(0.0, margin - float(logits[row, label] - logits[row, other])) / 5
        for row, label in enumerate(labels.tolist())
        for other in range(5)
        if other != label
    )
    result = MarginLoss(margin)(nn.Identity(), Batch(logits, labels))
    torch.testing.assert_close(result, torch.tensor(lacking / 3, dtype=torch.float64))


def test_a_network_trained_with_it_is_right_by_the_margin() -> None:
    inputs = torch.tensor([[2.0, 0.0], [0.0, 2.0]])
    model = nn.Linear(2, 2)
    data = TensorData(inputs, torch.tensor([0, 1]))
    fit(model, MarginLoss(1.0), data, Recipe(epochs=200, learning_rate=0.05))
    logits = model(inputs).detach()
    assert float((logits.diagonal() - logits.flip(1).diagonal()).min()) > 0.99


def test_margins_that_are_none_are_refused() -> None:
    for margin in (0.0, -1.0, math.inf):
        with pytest.raises(TrainingError, match=f"finite and above 0, got {margin}"):
            MarginLoss(margin)


# Cross-entropy with an offset.


@settings(deadline=None)
@given(
    seed=st.integers(0, 2**32),
    offset=st.floats(0.0, 2.0),
    temperature=st.floats(0.05, 2.0),
    annealing=st.sampled_from((0.0, 1.0, 2.5)),
)
def test_the_right_logit_is_an_offset_behind(
    seed: int, offset: float, temperature: float, annealing: float
) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(3, 5, generator=generator)
    labels = torch.randint(5, (3,), generator=generator)
    wanted = 0.0
    for row, label in enumerate(labels.tolist()):
        values = [float(value) for value in logits[row]]
        values[label] -= offset
        largest = max(values)
        parts = [math.exp((value - largest) / temperature) for value in values]
        wrong = (sum(parts) - parts[label]) / sum(parts)
        loss = (largest - values[label]) + temperature * math.log(sum(parts))
        wanted += loss * wrong**annealing
    loss_of = OffsetCrossEntropy(offset, temperature, annealing)
    result = loss_of(nn.Identity(), Batch(logits, labels))
    assert float(result) == pytest.approx(wanted / 3, rel=1e-4, abs=1e-5)


@pytest.mark.parametrize(
    ("offset", "temperature", "annealing"),
    [(-1.0, 1.0, 0.0), (math.inf, 1.0, 0.0), (0.5, 0.0, 0.0), (0.5, 1.0, -1.0)],
)
def test_offsets_and_temperatures_are_checked(
    offset: float, temperature: float, annealing: float
) -> None:
    with pytest.raises(TrainingError, match=f"got {offset}, {annealing} and {temperature}"):
        OffsetCrossEntropy(offset, temperature, annealing)


# Adversarial.


def linear_model() -> nn.Linear:
    model = nn.Linear(4, 2)
    nn.init.normal_(model.weight, generator=torch.Generator().manual_seed(3))
    return model


def batch_of(count: int) -> Batch:
    generator = torch.Generator().manual_seed(1)
    inputs = torch.rand(count, 4, generator=generator)
    return Batch(inputs, torch.randint(2, (count,), generator=generator))


@pytest.mark.parametrize(("norm", "order"), [(L2(), 2.0), (Linf(), float("inf"))])
def test_on_a_linear_model_the_worst_point_is_found(norm: L2 | Linf, order: float) -> None:
    model, batch = linear_model(), batch_of(6)
    assert batch.targets is not None
    game = AdversarialLoss(Threat(0.3, norm, pixels=None), steps=20)
    perturbed = game.perturbed(model, batch)
    # The margin of class 0 falls by the radius times the dual norm of the rows' difference.
    rows = model.weight[0] - model.weight[1]
    fall = 0.3 * rows.norm(p=2.0 if order == 2.0 else 1.0)
    signs = 1 - 2 * batch.targets.float()
    before, after = (
        signs * (model(points) @ torch.tensor([1.0, -1.0])) for points in (batch.inputs, perturbed)
    )
    torch.testing.assert_close(after, before - fall, rtol=1e-3, atol=1e-3)
    lengths = (perturbed - batch.inputs).norm(p=order, dim=1)
    assert float(lengths.max()) <= 0.3 * (1 + 1e-5)


def test_perturbed_pixels_stay_in_their_range() -> None:
    game = AdversarialLoss(Threat(2.0, L2()), steps=3)
    perturbed = game.perturbed(linear_model(), batch_of(5))
    assert 0 <= float(perturbed.min()) <= float(perturbed.max()) <= 1


def test_the_loss_is_at_least_that_of_the_samples_and_leaves_no_gradient_behind() -> None:
    model, batch = linear_model(), batch_of(8)
    for loss in (cross_entropy, MarginLoss(2.0)):
        assert AdversarialLoss(Threat(0.2, L2()), loss)(model, batch) > loss(model, batch)
    assert all(parameter.grad is None for parameter in model.parameters())


def test_a_network_trained_with_it_withstands_what_breaks_the_usual_one() -> None:
    # One strong feature with a wide gap, and eight that are right but so weak that the radius
    # turns all of them round: the usual loss uses them, the game must not.
    labels = torch.arange(64) % 2
    signs = (2 * labels - 1).float()[:, None]
    inputs = torch.cat([0.4 * signs, (0.02 * signs).expand(-1, 8)], dim=1)
    data, threat = TensorData(inputs, labels), Threat(0.1, Linf(), pixels=None)
    recipe = Recipe(epochs=60, batch_size=64, learning_rate=0.05)
    weak = []
    for loss in (cross_entropy, AdversarialLoss(threat, steps=3, step=0.5)):
        model = nn.Linear(9, 2, bias=False)
        nn.init.zeros_(model.weight)
        fit(model, loss, data, recipe)
        rows = (model.weight[1] - model.weight[0]).detach()
        weak.append(float(rows[1:].sum() / rows.abs().sum()))
    assert weak[1] < 0.2 < weak[0]


def test_a_run_is_repeated_to_the_bit() -> None:
    data = TensorData(batch_of(8).inputs, batch_of(8).targets)
    results = []
    for _ in range(2):
        model = linear_model()
        nn.init.zeros_(model.bias)
        fit(model, AdversarialLoss(Threat(0.1, L2()), steps=2), data, Recipe(epochs=2))
        results.append(model.weight.detach())
    assert torch.equal(*results)


def test_no_steps_are_refused() -> None:
    with pytest.raises(TrainingError, match=r"at least 1 step .*, got 0 of 0\.25"):
        AdversarialLoss(Threat(0.1, L2()), steps=0)
    with pytest.raises(TrainingError, match=r"got 10 of 0\.0"):
        AdversarialLoss(Threat(0.1, L2()), step=0.0)
