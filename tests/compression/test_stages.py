"""Stages: how they are proposed, what belongs to them, and where a forward pass is left."""

import pytest
import torch
from torch import Tensor, nn

from rankscope.compression import split_into_stages, stages_of
from rankscope.compression.stages import output_of_stage
from rankscope.errors import CompressionError


def block(size: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(size, size), nn.Tanh(), nn.Linear(size, size))


class Residual(nn.Module):
    """Stages with something before, between and after them."""

    def __init__(self) -> None:
        super().__init__()
        self.before = nn.Linear(3, 4)
        self.layer1 = block(4)
        self.between = nn.Linear(4, 5)
        self.layer2 = block(5)
        self.after = nn.Linear(5, 2)
        self.unused = nn.Linear(7, 7)

    def forward(self, inputs: Tensor) -> Tensor:
        first = self.layer1(self.before(inputs))
        outputs: Tensor = self.after(self.layer2(self.between(first)))
        return outputs


class Blocks(nn.Module):
    def __init__(self, blocks: nn.ModuleList) -> None:
        super().__init__()
        self.embedding = nn.Linear(4, 4)
        self.blocks = blocks

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.embedding(inputs)
        for part in self.blocks:
            outputs = part(outputs)
        return outputs


def test_modules_numbered_in_one_parent_are_proposed() -> None:
    assert stages_of(Residual()) == ("layer1", "layer2")
    assert stages_of(Blocks(nn.ModuleList([block(4) for _ in range(3)]))) == (
        "blocks.0",
        "blocks.1",
        "blocks.2",
    )


def test_the_row_with_most_parameters_is_proposed() -> None:
    model = Blocks(nn.ModuleList([nn.Sequential(block(9), block(9)), nn.Identity()]))
    assert stages_of(model) == ("blocks.0.0", "blocks.0.1")


def test_a_model_without_a_row_has_to_name_its_stages() -> None:
    with pytest.raises(CompressionError, match=r"Linear has no row .* name its stages"):
        stages_of(nn.Linear(2, 2))


def test_a_stage_holds_all_that_runs_since_the_one_before() -> None:
    model = Residual()
    first, second = split_into_stages(model, ["layer1", "layer2"], torch.zeros(1, 3))
    owners = {name.split(".")[0] for name in first.parameters}
    assert owners == {"before", "layer1"}
    assert {name.split(".")[0] for name in second.parameters} == {"between", "layer2"}
    assert first.parameters["before.weight"] is model.before.weight


def test_a_parent_that_ends_in_a_later_stage_gives_only_what_is_left() -> None:
    inner = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    model = nn.Sequential(inner, nn.Linear(3, 2))
    first, second = split_into_stages(model, ["0.0", "1"], torch.zeros(1, 3))
    assert set(first.parameters) == {"0.0.weight", "0.0.bias"}
    assert set(second.parameters) == {"0.1.weight", "0.1.bias", "1.weight", "1.bias"}


def test_a_forward_pass_is_left_at_the_end_of_the_stage() -> None:
    model = Residual()
    model.after.register_forward_hook(lambda *_: pytest.fail("what comes after was run"))
    inputs = torch.randn(2, 3)
    torch.testing.assert_close(
        output_of_stage(model, "layer1", inputs), model.layer1(model.before(inputs))
    )
    assert not model.layer1._forward_hooks


def test_of_several_outputs_the_first_is_taken() -> None:
    model = nn.Sequential(nn.LSTM(3, 4))
    inputs = torch.randn(5, 2, 3)
    torch.testing.assert_close(output_of_stage(model, "0", inputs), model[0](inputs)[0])


def test_an_output_that_is_no_tensor_is_refused() -> None:
    class Words(nn.Module):
        def forward(self, inputs: Tensor) -> str:
            return "no tensor"

    with pytest.raises(CompressionError, match=r"stage '0' must give a tensor.* got a str"):
        output_of_stage(nn.Sequential(Words()), "0", torch.zeros(1))


def test_a_stage_that_is_not_reached_is_refused() -> None:
    with pytest.raises(CompressionError, match=r"'unused' is not reached .* shape \(1, 3\)"):
        output_of_stage(Residual(), "unused", torch.zeros(1, 3))
    with pytest.raises(CompressionError, match=r"'unused' must be run once .* run 0 times"):
        split_into_stages(Residual(), ["unused"], torch.zeros(1, 3))


def test_a_stage_that_is_run_twice_is_refused() -> None:
    shared = nn.Linear(4, 4)
    model = Blocks(nn.ModuleList([shared, nn.Tanh(), shared]))
    with pytest.raises(CompressionError, match=r"'blocks.0' must be run once .* run 2 times"):
        split_into_stages(model, ["blocks.0"], torch.zeros(1, 4))


def test_stages_that_do_not_exist_or_are_out_of_order_are_refused() -> None:
    with pytest.raises(CompressionError, match=r"no module 'layer9'.* built of before, layer1"):
        split_into_stages(Residual(), ["layer9"], torch.zeros(1, 3))
    with pytest.raises(CompressionError, match=r"'layer1' ends before .* is layer1, layer2"):
        split_into_stages(Residual(), ["layer2", "layer1"], torch.zeros(1, 3))
    with pytest.raises(CompressionError, match="at least 1 stage, got 0"):
        split_into_stages(Residual(), [], torch.zeros(1, 3))


def test_a_stage_with_nothing_to_train_is_refused() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Tanh())
    with pytest.raises(CompressionError, match="'1' has 0 parameters, of which 0 can be trained"):
        split_into_stages(model, ["0", "1"], torch.zeros(1, 3))
