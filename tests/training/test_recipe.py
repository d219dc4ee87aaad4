"""Recipes: schedules at their ends, and numbers that are refused."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankscope.errors import TrainingError
from rankscope.training.recipe import Constant, Cosine, Recipe, Spent, TimedCosine


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
