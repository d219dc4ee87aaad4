"""Runs that end, go on, and refuse."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from rankscope.compression import (
    SGD,
    Adam,
    Constant,
    Cosine,
    Recipe,
    Schedule,
    Spent,
    cross_entropy,
    fit,
)
from rankscope.compression.training.checkpoint import FILE, METRICS
from rankscope.errors import CheckpointError, TrainingError
from rankscope.networks import Batch, TensorData
from rankscope.progress import Progress


class Interruption(Exception):
    """What a test raises where Ctrl-C would."""


def small_network(seed: int = 0) -> nn.Sequential:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Sequential(
            nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 3)
        )


def small_data(count: int = 10) -> TensorData:
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(count, 4, generator=generator)
    return TensorData(inputs, torch.randint(3, (count,), generator=generator))


def squared_output(model: nn.Module, batch: Batch) -> Tensor:
    outputs: Tensor = model(batch.inputs)
    return outputs.square().mean()


def interrupt_after(num_steps: int) -> Callable[[Progress], None]:
    seen = []

    def report(progress: Progress) -> None:
        seen.append(progress)
        if len(seen) == num_steps:
            raise Interruption

    return report


@dataclass(frozen=True)
class Halved(Schedule):
    """Half the learning rate from the second epoch on."""

    def factor(self, spent: Spent) -> float:
        return 1.0 if spent.epoch == 0 else 0.5


def assert_same_state(first: nn.Module, second: nn.Module) -> None:
    for name, value in first.state_dict().items():
        assert torch.equal(value, second.state_dict()[name]), name


@pytest.mark.slow
@settings(deadline=None, max_examples=8)
@given(
    optimizer=st.sampled_from([Adam(), SGD(0.9, nesterov=True), SGD(0.0)]),
    schedule=st.sampled_from([Constant(), Cosine(), Halved()]),
    interrupted_at=st.integers(1, 11),
    clip_norm=st.sampled_from([None, 0.5]),
)
def test_an_interrupted_run_goes_on_to_the_same_bits(
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch_module: pytest.MonkeyPatch,
    optimizer: Adam | SGD,
    schedule: Schedule,
    interrupted_at: int,
    clip_norm: float | None,
) -> None:
    # Checkpoints after every step, so that runs go on in the middle of an epoch too.
    monkeypatch_module.setattr("rankscope.compression.training.loop.CHECKPOINT_SECONDS", -1.0)
    folder = tmp_path_factory.mktemp("run")
    recipe = Recipe(
        epochs=4,
        batch_size=4,
        learning_rate=0.05,
        optimizer=optimizer,
        schedule=schedule,
        weight_decay=0.01,
        clip_norm=clip_norm,
        seed=3,
    )
    straight, broken, resumed = small_network(), small_network(), small_network(seed=9)
    whole = fit(straight, cross_entropy, small_data(), recipe)
    with pytest.raises(Interruption):
        fit(
            broken,
            cross_entropy,
            small_data(),
            recipe,
            folder=folder,
            progress=interrupt_after(interrupted_at + 1),
        )
    # Another initialisation: everything must come from the folder.
    history = fit(resumed, cross_entropy, small_data(), recipe, folder=folder)
    assert_same_state(straight, resumed)
    assert history.is_complete
    assert history.samples == whole.samples == 40
    assert [record.loss for record in history.records] == [record.loss for record in whole.records]


@pytest.fixture(scope="module")
def monkeypatch_module() -> pytest.MonkeyPatch:
    """Hypothesis wants fixtures that live as long as all of its examples."""
    return pytest.MonkeyPatch()


def test_a_run_out_of_seconds_ends_after_a_step_and_can_go_on(tmp_path: Path) -> None:
    straight, resumed = small_network(), small_network()
    fit(straight, cross_entropy, small_data(), Recipe(epochs=2, batch_size=4))
    hurried = Recipe(epochs=2, batch_size=4, max_seconds=1e-9)
    for _ in range(2):  # the second time there is no second left at all
        history = fit(resumed, cross_entropy, small_data(), hurried, folder=tmp_path)
        assert (history.samples, history.is_complete, len(history.records)) == (4, False, 1)
    recipe = Recipe(epochs=2, batch_size=4)
    history = fit(resumed, cross_entropy, small_data(), recipe, folder=tmp_path)
    assert_same_state(straight, resumed)
    assert [(record.epoch, record.samples) for record in history.records] == [(1, 10), (2, 20)]


def test_a_run_ends_with_the_step_that_reaches_its_samples() -> None:
    recipe = Recipe(epochs=9, batch_size=4, max_samples=13)
    history = fit(small_network(), cross_entropy, small_data(), recipe)
    # 4 + 4 + 2 in the first epoch, then one more batch.
    assert (history.samples, history.is_complete) == (14, True)
    assert [record.samples for record in history.records] == [10, 14]


def test_metrics_are_one_line_of_json_for_each_epoch(tmp_path: Path) -> None:
    def evaluate(model: nn.Module) -> dict[str, float]:
        assert not model.training
        return {"accuracy": 0.5, "undefined": float("nan")}

    recipe = Recipe(epochs=3, batch_size=4)
    model = small_network()
    fit(model, cross_entropy, small_data(), recipe, folder=tmp_path, evaluate=evaluate)
    lines = [json.loads(line) for line in (tmp_path / METRICS).read_text().splitlines()]
    assert [line["epoch"] for line in lines] == [1, 2, 3]
    assert lines[0]["accuracy"] == 0.5
    assert lines[0]["undefined"] is None


def test_the_learning_rate_follows_the_schedule_and_the_gradient_its_limit() -> None:
    rates: list[float] = []
    model = nn.Linear(1, 1, bias=False)
    nn.init.zeros_(model.weight)
    data = TensorData(torch.ones(4, 1), torch.full((4, 1), 100.0))

    def loss(module: nn.Module, batch: Batch) -> Tensor:
        assert batch.targets is not None
        rates.append(float(model.weight.detach()))
        outputs: Tensor = module(batch.inputs)
        return (batch.targets - outputs).mean()  # the gradient is -1 throughout

    recipe = Recipe(
        epochs=2,
        batch_size=2,
        learning_rate=1.0,
        optimizer=SGD(0.0),
        schedule=Halved(),
        clip_norm=0.25,
    )
    fit(model, loss, data, recipe)
    # Steps of a quarter in the first epoch, of an eighth in the second.
    # PyTorch divides by the norm plus 1e-6.
    torch.testing.assert_close(rates, [0.0, 0.25, 0.5, 0.625], rtol=2e-6, atol=0.0)


def test_only_the_parameters_given_change_and_modes_are_as_before() -> None:
    model = small_network()
    model[4].weight.requires_grad_(False)
    model.train()
    model[1].eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    recipe = Recipe(epochs=1, batch_size=4)
    fit(model, cross_entropy, small_data(), recipe, parameters=list(model[0].parameters()))
    changed = {
        name for name, value in model.named_parameters() if not torch.equal(before[name], value)
    }
    assert changed == {"0.weight", "0.bias"}
    assert [module.training for module in model] == [True, False, True, True, True]
    assert [value.requires_grad for value in model.parameters()] == [True] * 4 + [False, True]
    assert all(value.grad is None for value in model.parameters())


def test_frozen_batch_normalization_keeps_its_statistics_and_uses_them() -> None:
    model = small_network()
    before = {name: value.clone() for name, value in model[1].named_buffers()}
    recipe = Recipe(epochs=1, batch_size=4)
    fit(model, cross_entropy, small_data(), recipe, batch_norm_frozen=True)
    for name, value in model[1].named_buffers():
        assert torch.equal(before[name], value), name
    fit(model, cross_entropy, small_data(), recipe)
    assert not torch.equal(before["running_mean"], model[1].get_buffer("running_mean"))


def test_training_draws_nothing_from_the_randomness_of_its_caller() -> None:
    torch.manual_seed(5)
    wanted = torch.rand(3)
    torch.manual_seed(5)
    fit(small_network(), cross_entropy, small_data(), Recipe(batch_size=4))
    assert torch.equal(torch.rand(3), wanted)


def test_a_loss_that_is_not_finite_is_refused_with_its_place() -> None:
    calls = []

    def loss(model: nn.Module, batch: Batch) -> Tensor:
        calls.append(batch)
        return squared_output(model, batch) * (float("nan") if len(calls) == 5 else 1.0)

    with pytest.raises(TrainingError, match="loss is nan in epoch 2, batch 2"):
        fit(small_network(), loss, small_data(), Recipe(epochs=2, batch_size=4))


def test_a_model_learns_what_can_be_learned() -> None:
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(64, 4, generator=generator)
    data = TensorData(inputs, (inputs[:, 0] > 0).long())
    recipe = Recipe(epochs=60, batch_size=16, learning_rate=0.05, schedule=Cosine())
    model = nn.Linear(4, 2)
    history = fit(model, cross_entropy, data, recipe)
    assert history.records[-1].loss < history.records[0].loss / 2
    assert float((model(inputs).argmax(dim=1) == data.targets).float().mean()) > 0.95


def test_strangers_and_nothing_are_not_trained() -> None:
    with pytest.raises(TrainingError, match="1 of the 1 parameters given are not"):
        fit(
            small_network(),
            cross_entropy,
            small_data(),
            Recipe(),
            parameters=[nn.Parameter(torch.zeros(1))],
        )
    model = small_network()
    model.requires_grad_(False)
    with pytest.raises(TrainingError, match="none of the model's 6 parameters"):
        fit(model, cross_entropy, small_data(), Recipe())


def test_a_folder_of_another_run_is_refused(tmp_path: Path) -> None:
    fit(small_network(), cross_entropy, small_data(), Recipe(batch_size=4), folder=tmp_path)
    with pytest.raises(CheckpointError, match=r"its recipe is .*batch_size=4.*not .*batch_size=5"):
        fit(small_network(), cross_entropy, small_data(), Recipe(batch_size=5), folder=tmp_path)
    with pytest.raises(CheckpointError, match="number of samples is 10, not 11"):
        fit(small_network(), cross_entropy, small_data(11), Recipe(batch_size=4), folder=tmp_path)


@pytest.mark.parametrize("keep", [0, 7, 100, -1])
def test_a_damaged_checkpoint_is_refused_with_what_to_do(tmp_path: Path, keep: int) -> None:
    recipe = Recipe(batch_size=4)
    fit(small_network(), cross_entropy, small_data(), recipe, folder=tmp_path)
    path = tmp_path / FILE
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(CheckpointError, match=r"cannot be read.*Delete it to start afresh"):
        fit(small_network(), cross_entropy, small_data(), recipe, folder=tmp_path)
