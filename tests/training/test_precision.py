"""Mixed precision where there is hardware for it."""

import pytest
import torch
from torch import Tensor, nn

from rankscope.errors import TrainingError
from rankscope.training.batches import Batch, TensorData
from rankscope.training.loop import fit
from rankscope.training.recipe import Bfloat16, FullPrecision, Recipe, has_bfloat16_units

CPU = torch.device("cpu")


class Watching:
    """A loss that notes in which numbers the model computes."""

    def __init__(self) -> None:
        self.seen: set[torch.dtype] = set()

    def __call__(self, model: nn.Module, batch: Batch) -> Tensor:
        outputs: Tensor = model(batch.inputs)
        self.seen.add(outputs.dtype)
        return outputs.float().square().mean()


def train(recipe: Recipe) -> tuple[nn.Linear, set[torch.dtype]]:
    torch.manual_seed(0)
    model, loss = nn.Linear(4, 2), Watching()
    fit(model, loss, TensorData(torch.ones(6, 4)), recipe)
    return model, loss.seen


def test_weights_stay_in_their_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rankscope.training.recipe.has_bfloat16_units", lambda device: True)
    model, seen = train(Recipe(precision=Bfloat16(), learning_rate=0.1))
    assert seen == {torch.bfloat16}
    assert model.weight.dtype == torch.float32
    exact, seen = train(Recipe(precision=FullPrecision(), learning_rate=0.1))
    assert seen == {torch.float32}
    # One step of Adam moves every weight by the learning rate, in the same direction.
    torch.testing.assert_close(model.weight, exact.weight, rtol=0.0, atol=0.01)


def test_a_device_without_units_is_refused_with_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("rankscope.training.recipe.has_bfloat16_units", lambda device: False)
    with pytest.raises(TrainingError, match="device 'cpu' has no bfloat16 units, so that mixed"):
        train(Recipe(precision=Bfloat16()))


@pytest.mark.parametrize("unit", ["avx512_bf16", "amx_bf16"])
def test_units_are_what_the_processor_says(unit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {unit: True}, raising=False)
    assert has_bfloat16_units(CPU)
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {unit: False}, raising=False)
    assert not has_bfloat16_units(CPU)
    assert not has_bfloat16_units(torch.device("meta"))
