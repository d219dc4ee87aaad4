"""End to end: the losses by their definitions, and that runs go on to the bit."""

import copy
from pathlib import Path

import pytest
import torch
from torch import nn

from rankscope.compression import (
    Distillation,
    Imitation,
    KeptDistillation,
    Labels,
    Recipe,
    fine_tune,
    keep_predictions,
)
from rankscope.errors import CompressionError
from rankscope.networks import Batch, PadCropFlip, TensorData
from rankscope.progress import Progress

RECIPE = Recipe(epochs=3, batch_size=10, learning_rate=1e-2)


def network(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 3))


def samples() -> TensorData:
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(30, 5, generator=generator)
    return TensorData(inputs, torch.randint(3, (30,), generator=generator))


def test_distillation_is_the_divergence_at_the_temperature() -> None:
    teacher, data = network(1).double().eval(), samples()
    batch = Batch(data.inputs.double(), data.targets)
    outputs = torch.randn(30, 3, dtype=torch.float64)
    with torch.no_grad():
        wanted = (teacher(batch.inputs) / 2).softmax(dim=1)
    found = (outputs / 2).softmax(dim=1)
    divergence = (wanted * (wanted.log() - found.log())).sum(dim=1).mean()
    torch.testing.assert_close(Distillation(teacher, 2.0).loss(outputs, batch), 4 * divergence)
    mixed = Distillation(teacher, 2.0, labels=0.25).loss(outputs, batch)
    torch.testing.assert_close(mixed, 3 * divergence + Labels().loss(outputs, batch) / 4)


def test_distillation_of_sequences_is_a_mean_over_all_predictions() -> None:
    class Logits(nn.Module):
        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            return inputs

    inputs, outputs = torch.randn(2, 3, 4), torch.randn(2, 3, 4)
    by_position = [
        Distillation(Logits()).loss(outputs[..., at], Batch(inputs[..., at], None))
        for at in range(4)
    ]
    whole = Distillation(Logits()).loss(outputs, Batch(inputs, None))
    torch.testing.assert_close(whole, torch.stack(by_position).mean())


def test_kept_predictions_give_the_loss_of_the_reference() -> None:
    teacher, data = network(1).eval(), samples()
    kept = keep_predictions(teacher, data, 2)
    assert len(kept) == 2 * len(data)
    outputs = torch.randn(len(data), 3)
    objective = Distillation(teacher, labels=0.25)
    (whole,) = data.batches(len(data))
    for batch in kept.batches(len(data)):
        torch.testing.assert_close(batch.inputs, whole.inputs)
        result = KeptDistillation(objective).loss(outputs, batch)
        torch.testing.assert_close(result, objective.loss(outputs, whole))


def test_kept_samples_are_augmented_differently_and_stay_so() -> None:
    images = torch.randint(256, (4, 1, 8, 8), dtype=torch.uint8)
    data = TensorData(images, torch.tensor([0, 1, 2, 0]), augment=PadCropFlip())
    teacher = nn.Sequential(nn.Flatten(), nn.Linear(64, 3))

    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = teacher

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            logits: torch.Tensor = self.inner(inputs.float() / 255)
            return logits

    model = Scaled()
    kept = keep_predictions(model, data, 3)
    again = keep_predictions(model, data, 3)
    assert torch.equal(kept.inputs, again.inputs)
    assert torch.equal(data.inputs, images)
    copies = kept.inputs.view(3, 4, 1, 8, 8)
    assert not torch.equal(copies[0], copies[1])
    assert kept.augment is None
    assert kept.targets is not None
    torch.testing.assert_close(kept.targets[:, :-1], model(kept.inputs).detach())
    assert kept.targets[:, -1].tolist() == [0.0, 1.0, 2.0, 0.0] * 3


def test_predictions_are_kept_of_labelled_samples_only() -> None:
    with pytest.raises(CompressionError, match="got no labels and 2 copies"):
        keep_predictions(network(1), TensorData(samples().inputs), 2)
    with pytest.raises(CompressionError, match="got labels and 0 copies"):
        keep_predictions(network(1), samples(), 0)


@pytest.mark.parametrize("name", ["labels", "distillation", "imitation"])
def test_the_loss_falls_and_the_reference_is_not_touched(name: str) -> None:
    teacher, model = network(1), network(2)
    before = copy.deepcopy(teacher.state_dict())
    objective = {
        "labels": Labels(),
        "distillation": Distillation(teacher),
        "imitation": Imitation(teacher),
    }[name]
    history = fine_tune(model, objective, samples(), RECIPE)
    assert history.records[-1].loss < history.records[0].loss
    assert teacher.training
    for key, value in teacher.state_dict().items():
        assert torch.equal(value, before[key])


def test_an_interrupted_run_goes_on_to_the_same_bits(tmp_path: Path) -> None:
    teacher = network(1)

    class Interrupted(Exception):
        pass

    def interrupt(step: Progress) -> None:
        if step.what.startswith("epoch 2"):
            raise Interrupted

    whole, stopped, resumed = network(2), network(2), network(2)
    fine_tune(whole, Distillation(teacher), samples(), RECIPE)
    with pytest.raises(Interrupted):
        fine_tune(
            stopped,
            Distillation(teacher),
            samples(),
            RECIPE,
            folder=tmp_path,
            progress=interrupt,
        )
    fine_tune(resumed, Distillation(teacher), samples(), RECIPE, folder=tmp_path)
    for key, value in resumed.state_dict().items():
        assert torch.equal(value, whole.state_dict()[key]), key


def test_what_is_evaluated_is_recorded() -> None:
    history = fine_tune(
        network(0), Labels(), samples(), RECIPE, evaluate=lambda model: {"seen": 1.0}
    )
    assert [record.metrics for record in history.records] == [{"seen": 1.0}] * 3


def test_labels_that_are_missing_are_refused() -> None:
    unlabelled = TensorData(samples().inputs)
    with pytest.raises(CompressionError, match="Labels needs targets, but the 30 samples"):
        fine_tune(network(0), Labels(), unlabelled, RECIPE)
    with pytest.raises(CompressionError, match="Distillation needs targets, but the 30"):
        fine_tune(network(0), Distillation(network(1), labels=0.5), unlabelled, RECIPE)


@pytest.mark.parametrize(("temperature", "labels"), [(0.0, 0.0), (1.0, 1.5), (1.0, -0.5)])
def test_shares_and_temperatures_that_cannot_be_are_refused(
    temperature: float, labels: float
) -> None:
    with pytest.raises(CompressionError, match=f"got {temperature} and {labels}"):
        Distillation(network(0), temperature, labels)
