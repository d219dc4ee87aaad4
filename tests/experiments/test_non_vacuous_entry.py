"""Bounds that hold, for networks in few bits."""

from dataclasses import replace
from pathlib import Path

import pytest

from rankscope.experiments.experiment import Row, RunContext
from rankscope.experiments.generalization_bounds import (
    NON_VACUOUS_BOUND,
    NUM_SETTINGS,
    NonVacuousEntry,
    largest,
)
from rankscope.training.datasets import load_data_set
from rankscope.training.recipe import Recipe

ENTRY = NonVacuousEntry("digits", 2, 2, Recipe(epochs=1, batch_size=64, learning_rate=5e-3))


@pytest.fixture(scope="module")
def row(tmp_path_factory: pytest.TempPathFactory) -> Row:
    return ENTRY.run(RunContext(tmp_path_factory.mktemp("row"), None, 60.0))


def number(row: Row, name: str) -> float:
    value = row[name]
    assert isinstance(value, float)
    return value


def test_the_bound_is_above_the_training_error_and_below_hoeffding(row: Row) -> None:
    assert number(row, "train error") < number(row, "bound") < number(row, "bound (Hoeffding)")


def test_a_weight_of_two_bits_costs_at_most_the_logarithm_of_three(row: Row) -> None:
    parameters = row["parameters"]
    assert isinstance(parameters, int)
    model = ENTRY.network(load_data_set("digits"))
    assert parameters == sum(weight.numel() for weight in model.parameters())
    assert number(row, "nats") < 1.0987 * parameters + 1


def test_more_settings_are_counted_than_were_run() -> None:
    assert len(NON_VACUOUS_BOUND.entries) * NON_VACUOUS_BOUND.seeds < NUM_SETTINGS


def test_the_same_seed_gives_the_same_row(row: Row, tmp_path: Path) -> None:
    assert ENTRY.run(RunContext(tmp_path, None, 60.0)) == row
    assert replace(ENTRY, seed=1).name == ENTRY.name == "digits-width-2-bits-2"


def made(setting: str, parameters: int, bound: float) -> Row:
    return {
        "setting": setting,
        "data": "made",
        "parameters": parameters,
        "bound": bound,
        "test error": bound / 2,
    }


def test_the_largest_setting_counts_only_if_all_its_seeds_are_below() -> None:
    rows = [made("a", 10, 0.2), made("a", 10, 0.4), made("b", 20, 0.3), made("b", 20, 0.6)]
    (found,) = largest(rows)
    assert (found["largest below 0.5"], found["its parameters"]) == ("a", 10)
    assert found["largest bound of its seeds"] == 0.4
    assert found["largest test error"] == 0.2
    assert largest(rows[2:]) == [{"of": "made", "largest below 0.5": "none"}]
