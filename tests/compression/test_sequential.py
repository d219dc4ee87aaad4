"""Stage by stage: what trains, what stays, and that an interrupted run goes on to the bit."""

import copy
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from rankscope.compression import Recipe, fit_stages, split_into_stages
from rankscope.compression.repair import keep_outputs
from rankscope.compression.stages import input_of_stage
from rankscope.errors import CheckpointError, CompressionError, OutputError
from rankscope.networks import TensorData
from rankscope.progress import Progress

STAGES = ("layer1", "layer2")
RECIPE = Recipe(epochs=4, batch_size=8, learning_rate=1e-2)


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 4, 3, padding=1)
        self.layer1 = nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU())
        self.layer2 = nn.Sequential(nn.Conv2d(4, 6, 3), nn.BatchNorm2d(6), nn.Dropout(0.5))
        self.linear = nn.Linear(6, 2)

    def forward(self, images: Tensor) -> Tensor:
        features = self.layer2(self.layer1(self.conv1(images)))
        logits: Tensor = self.linear(features.mean(dim=(2, 3)))
        return logits


def pair() -> tuple[Small, Small]:
    """A model with statistics of its own, and one whose weights have been damaged."""
    torch.manual_seed(0)
    reference = Small()
    reference(torch.randn(16, 3, 6, 6))
    damaged = copy.deepcopy(reference)
    with torch.no_grad():
        for parameter in damaged.parameters():
            parameter.mul_(0.7)
    return reference, damaged


def images() -> TensorData:
    return TensorData(torch.randn(24, 3, 6, 6, generator=torch.Generator().manual_seed(1)))


def changed(before: nn.Module, after: nn.Module) -> set[str]:
    old = before.state_dict()
    return {
        name.split(".")[0] for name, new in after.state_dict().items() if (new != old[name]).any()
    }


def distance(one: nn.Module, other: nn.Module) -> float:
    inputs = images().inputs
    with torch.no_grad():
        return float((one.eval()(inputs) - other.eval()(inputs)).square().mean())


def test_every_stage_comes_closer_to_the_reference() -> None:
    reference, damaged = pair()
    before = distance(reference, damaged)
    fits = fit_stages(reference, damaged, images(), stages=STAGES, recipe=RECIPE)
    assert [fit.stage for fit in fits] == list(STAGES)
    assert all(fit.history.records[-1].loss < fit.history.records[0].loss for fit in fits)
    assert distance(reference, damaged) < before


def test_a_stage_trains_alone_with_what_comes_before_the_first() -> None:
    reference, damaged = pair()
    start = copy.deepcopy(damaged)
    fit_stages(reference, damaged, images(), stages=STAGES[:1], recipe=RECIPE)
    assert changed(start, damaged) == {"conv1", "layer1"}
    after_first = copy.deepcopy(damaged)
    snapshots = []

    def look(step: Progress) -> None:
        if step.what.startswith("layer2"):
            snapshots.append(changed(after_first, damaged))

    reference, damaged = pair()
    fit_stages(reference, damaged, images(), stages=STAGES, recipe=RECIPE, progress=look)
    assert snapshots
    assert all(snapshot == {"layer2"} for snapshot in snapshots)


def test_buffers_modes_gradients_and_the_reference_stay_as_they_were() -> None:
    reference, damaged = pair()
    damaged.layer1.eval()
    damaged.linear.weight.requires_grad = False
    buffers = {name: buffer.clone() for name, buffer in damaged.named_buffers()}
    before = copy.deepcopy(reference.state_dict())
    fit_stages(reference, damaged, images(), stages=STAGES, recipe=RECIPE)
    for name, buffer in damaged.named_buffers():
        assert torch.equal(buffer, buffers[name]), name
    for name, value in reference.state_dict().items():
        assert torch.equal(value, before[name]), name
    assert reference.training
    assert (damaged.training, damaged.layer1.training) == (True, False)
    asking = {name for name, part in damaged.named_parameters() if not part.requires_grad}
    assert asking == {"linear.weight"}


def test_a_perfect_copy_is_left_as_it_is() -> None:
    reference, _ = pair()
    twin = copy.deepcopy(reference)
    # Dropout would make a difference, and with it a gradient.
    fits = fit_stages(reference, twin, images(), stages=STAGES, recipe=RECIPE)
    assert all(record.loss == 0.0 for fit in fits for record in fit.history.records)
    assert changed(reference, twin) == set()


def test_an_interrupted_run_goes_on_to_the_same_bits(tmp_path: Path) -> None:
    reference, whole = pair()
    fit_stages(reference, whole, images(), stages=STAGES, recipe=RECIPE)

    class Interrupted(Exception):
        pass

    def interrupt(step: Progress) -> None:
        if step.what.startswith("layer2, epoch 2"):
            raise Interrupted

    _, stopped = pair()
    with pytest.raises(Interrupted):
        fit_stages(
            reference,
            stopped,
            images(),
            stages=STAGES,
            recipe=RECIPE,
            folder=tmp_path / "run",
            progress=interrupt,
        )
    _, resumed = pair()
    folder = tmp_path / "run"
    fits = fit_stages(reference, resumed, images(), stages=STAGES, recipe=RECIPE, folder=folder)
    assert all(fit.history.is_complete for fit in fits)
    for name, value in resumed.state_dict().items():
        assert torch.equal(value, whole.state_dict()[name]), name


def test_a_folder_of_another_run_is_refused(tmp_path: Path) -> None:
    reference, damaged = pair()
    quick = Recipe(epochs=1, batch_size=24)
    fit_stages(reference, damaged, images(), stages=STAGES, recipe=quick, folder=tmp_path)
    with torch.no_grad():
        reference.linear.bias.add_(1)
    with pytest.raises(CheckpointError, match=r"another repair: its reference is .*, not "):
        fit_stages(reference, damaged, images(), stages=STAGES, recipe=quick, folder=tmp_path)
    (tmp_path / "stages.json").write_text("{")
    with pytest.raises(CheckpointError, match=r"stages.json is not usable JSON.* Delete"):
        fit_stages(reference, damaged, images(), stages=STAGES, recipe=quick, folder=tmp_path)


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    reference, damaged = pair()
    (tmp_path / "file").touch()
    inside = tmp_path / "file" / "run"
    with pytest.raises(OutputError, match="Cannot make the folder"):
        fit_stages(reference, damaged, images(), stages=STAGES, recipe=RECIPE, folder=inside)


def test_outputs_of_different_shapes_are_refused() -> None:
    reference, other = pair()
    other.layer2[0].padding = (1, 1)  # type: ignore[assignment]
    with pytest.raises(CompressionError, match=r"\(2, 6, 4, 4\) in the ref.*\(2, 6, 6, 6\) in"):
        fit_stages(reference, other, images(), stages=STAGES, recipe=RECIPE)


def test_keeping_outputs_changes_only_the_order_of_the_samples() -> None:
    recipe = replace(RECIPE, epochs=1, batch_size=24)  # one step: the order does not matter
    found = []
    for keep in (None, 24):
        reference, damaged = pair()
        fits = fit_stages(reference, damaged, images(), stages=STAGES, recipe=recipe, keep=keep)
        assert [fit.keeping_seconds > 0 for fit in fits] == [True, True]
        found.append(damaged)
    for one, other in zip(found[0].parameters(), found[1].parameters(), strict=True):
        torch.testing.assert_close(one, other)


def test_an_interrupted_run_with_kept_outputs_goes_on_to_the_same_bits(tmp_path: Path) -> None:
    reference, whole = pair()
    run = partial(fit_stages, stages=STAGES, recipe=RECIPE, keep=16)
    run(reference, whole, images())
    _, broken = pair()
    steps = 0

    def stop(step: Progress) -> None:
        nonlocal steps
        steps += 1
        if steps == 11:
            raise KeyboardInterrupt

    folder = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        run(reference, broken, images(), folder=folder, progress=stop)
    _, resumed = pair()
    run(reference, resumed, images(), folder=folder)
    for one, other in zip(whole.parameters(), resumed.parameters(), strict=True):
        assert torch.equal(one, other)


def test_kept_outputs_are_what_the_stages_are_given_and_should_give() -> None:
    reference, damaged = pair()
    data = images()
    stage = split_into_stages(damaged, STAGES, data.inputs[:2])[1]
    kept = keep_outputs((reference, damaged), stage, data, 10, seed=3, is_first=False)
    batch = next(iter(data.epoch(0, 128, seed=3)))
    reference.eval()
    damaged.eval()
    features = damaged.layer1(damaged.conv1(batch.inputs[:10]))
    wanted = reference.layer2(reference.layer1(reference.conv1(batch.inputs[:10])))
    torch.testing.assert_close(kept.inputs, features)
    torch.testing.assert_close(kept.targets, wanted)


def test_what_cannot_be_kept_is_said() -> None:
    reference, damaged = pair()
    data = images()
    first, second = split_into_stages(damaged, STAGES, data.inputs[:2])
    with pytest.raises(CompressionError, match="at least 1 sample to keep, got 0"):
        keep_outputs((reference, damaged), second, data, 0, seed=0, is_first=False)
    with pytest.raises(CompressionError, match=r"'layer1' also trains 2 .* such as 'conv1.weight'"):
        keep_outputs((reference, damaged), first, data, 4, seed=0, is_first=False)
    hasty = replace(RECIPE, max_seconds=1e-9)
    with pytest.raises(CompressionError, match="were spent on keeping outputs"):
        fit_stages(reference, damaged, data, stages=("layer2",), recipe=hasty, keep=4)


class Recurrent(nn.Module):
    """The second part is given two things."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.idle = nn.GRU(3, 4), nn.GRU(4, 4), nn.Linear(1, 1)

    def forward(self, inputs: Tensor) -> Tensor:
        outputs, state = self.first(inputs)
        found: Tensor = self.second(outputs, state)[0]
        return found


def test_a_module_that_is_given_two_things_is_not_run_alone() -> None:
    with pytest.raises(
        CompressionError, match=r"'second' must be called with one tensor .* given 2"
    ):
        input_of_stage(Recurrent(), "second", torch.zeros(5, 2, 3))
    with pytest.raises(CompressionError, match="'idle' is not reached"):
        input_of_stage(Recurrent(), "idle", torch.zeros(5, 2, 3))
