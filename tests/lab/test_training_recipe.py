import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from rankscope.compression import (
    Bfloat16,
    Constant,
    Cosine,
    FullPrecision,
    MixedPrecision,
    PiecewiseLinear,
    Recipe,
    Spent,
    TimedCosine,
    fit,
)
from rankscope.compression.training.recipe import has_bfloat16_units
from rankscope.errors import TrainingError
from rankscope.networks import Batch, TensorData

# Mixed precision where there is hardware for it.


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
    monkeypatch.setattr(
        "rankscope.compression.training.recipe.has_bfloat16_units", lambda device: True
    )
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
    monkeypatch.setattr(
        "rankscope.compression.training.recipe.has_bfloat16_units", lambda device: False
    )
    with pytest.raises(TrainingError, match="device 'cpu' has no bfloat16 units, so that mixed"):
        train(Recipe(precision=Bfloat16()))


@pytest.mark.parametrize(("has_units", "dtype"), [(True, torch.bfloat16), (False, torch.float32)])
def test_mixed_precision_is_short_where_the_device_has_units_for_it(
    has_units: bool, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "rankscope.compression.training.recipe.has_bfloat16_units", lambda device: has_units
    )
    _, seen = train(Recipe(precision=MixedPrecision()))
    assert seen == {dtype}


@pytest.mark.parametrize("unit", ["avx512_bf16", "amx_bf16"])
def test_units_are_what_the_processor_says(unit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {unit: True}, raising=False)
    assert has_bfloat16_units(CPU)
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {unit: False}, raising=False)
    assert not has_bfloat16_units(CPU)
    assert not has_bfloat16_units(torch.device("meta"))


# Recipes: schedules at their ends, and numbers that are refused.


@given(share=st.floats(0, 1), seconds=st.floats(0, 1))
def test_schedules_lie_between_zero_and_one(share: float, seconds: float) -> None:
    spent = Spent(epoch=0, steps=share, seconds=seconds)
    for schedule in (Constant(), Cosine(), TimedCosine()):
        assert 0 <= schedule.factor(spent) <= 1
    assert TimedCosine().factor(spent) <= Cosine().factor(spent)


def test_a_cosine_begins_at_one_and_ends_at_zero() -> None:
    assert Cosine().factor(Spent(0, 0.0, 0.0)) == 1
    assert Cosine().factor(Spent(9, 1.0, 0.0)) == 0
    assert TimedCosine().factor(Spent(0, 0.1, 1.0)) == 0


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"epochs": 0}, "epochs must be finite and above 0, got 0"),
        ({"batch_size": -1}, "batch_size .* got -1"),
        ({"learning_rate": math.nan}, "learning_rate .* got nan"),
        ({"clip_norm": 0.0}, "clip_norm .* got 0"),
        ({"max_seconds": math.inf}, "max_seconds .* got inf"),
        ({"max_samples": 0}, "max_samples .* got 0"),
        ({"weight_decay": -0.5}, "weight_decay must be finite and not negative, got -0.5"),
        ({"seed": -1}, r"seed must lie in 0..2\^63 - 1, got -1"),
    ],
)
def test_numbers_that_make_no_recipe_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(TrainingError, match=message):
        Recipe(**fields)


# Piecewise schedule.


@pytest.mark.parametrize(
    ("share", "factor"),
    [(0.0, 0.0), (0.1, 0.25), (0.4, 1.0), (0.6, 0.525), (0.8, 0.05), (0.9, 0.025), (1.0, 0.0)],
)
def test_the_published_schedule_rises_falls_and_ends_at_nothing(
    share: float, factor: float
) -> None:
    at = Spent(epoch=3, steps=share, seconds=0.9)
    assert PiecewiseLinear().factor(at) == pytest.approx(factor)


def test_a_share_past_the_end_is_the_end() -> None:
    schedule = PiecewiseLinear(((0.0, 1.0), (1.0, 0.5)))
    assert schedule.factor(Spent(epoch=9, steps=1.1, seconds=0.0)) == 0.5


@pytest.mark.parametrize("shares", [(), (0.0, 0.5), (0.1, 1.0), (0.0, 0.5, 0.5, 1.0)])
def test_shares_that_do_not_rise_from_0_to_1_are_refused(shares: tuple[float, ...]) -> None:
    with pytest.raises(TrainingError, match=r"must rise from 0 to 1, got \["):
        PiecewiseLinear(tuple((share, 1.0) for share in shares))
