"""What a checkpoint holds, and what it refuses to hold."""

from pathlib import Path

import pytest
import torch
from torch import nn

from rankscope.compression import Checkpoint, Position
from rankscope.errors import CheckpointError, OutputError


class Stateful(nn.Linear):
    """A module whose state is more than tensors."""

    def get_extra_state(self) -> str:
        return "words"

    def set_extra_state(self, state: str) -> None:
        del state


def test_tied_weights_and_channels_last_survive(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Conv2d(3, 3, 3), nn.Conv2d(3, 3, 3))
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    model[1].weight = model[0].weight
    names = dict(model.named_parameters())
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 3, 5, 5)).sum().backward()
    optimizer.step()
    checkpoint = Checkpoint(tmp_path, {"recipe": "one"})
    position = Position(epoch=1, samples=3, loss_sum=0.1)
    checkpoint.write(model, optimizer, names, position)
    fresh = torch.optim.Adam(model.parameters())
    assert checkpoint.restore(model, fresh, names) == position
    for parameter in model.parameters():
        for key, value in optimizer.state[parameter].items():
            assert torch.equal(value, fresh.state[parameter][key])
            assert value.stride() == fresh.state[parameter][key].stride()


def test_an_empty_folder_gives_nothing(tmp_path: Path) -> None:
    model = nn.Linear(1, 1)
    optimizer = torch.optim.Adam(model.parameters())
    checkpoint = Checkpoint(tmp_path / "new" / "folder", {})
    assert checkpoint.restore(model, optimizer, dict(model.named_parameters())) is None


def test_state_that_is_no_tensor_is_refused_by_name(tmp_path: Path) -> None:
    model = nn.Sequential(Stateful(1, 1))
    optimizer = torch.optim.Adam(model.parameters())
    with pytest.raises(CheckpointError, match=r"0\._extra_state of the model's state is a str"):
        Checkpoint(tmp_path, {}).write(model, optimizer, {}, Position())


def test_a_folder_that_cannot_be_made_is_an_output_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(OutputError, match="Cannot make the folder"):
        Checkpoint(tmp_path / "file", {})
