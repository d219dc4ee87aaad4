from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from rankscope.compression import Recipe
from rankscope.generalize import Options
from rankscope.lab import find_experiment
from rankscope.lab.experiments import (
    BoundEntry,
    NonVacuousEntry,
    Row,
    RunContext,
    Statement,
    TrainingWorkload,
    Verdict,
    statements_of,
)
from rankscope.lab.experiments.generalization_bounds import NUM_SETTINGS, largest
from rankscope.networks import DataSet, load_data_set

pytestmark = pytest.mark.slow  # its rows are trained

BOUND_VS_TEST_ERROR = find_experiment("bound-vs-test-error")
NON_VACUOUS_BOUND = find_experiment("non-vacuous-bound")

# Bounds beside test errors, over the epochs of a run.

ENTRY = BoundEntry(
    "small",
    TrainingWorkload("digits", 20, width=2),
    Recipe(epochs=4, batch_size=10, learning_rate=1e-2),  # a correlation needs four
    every=1,
)


@pytest.fixture(scope="module")
def row(tmp_path_factory: pytest.TempPathFactory) -> Row:
    folder: Path = tmp_path_factory.mktemp("row")
    return {"setting": "small", "seed": 0, **ENTRY.run(RunContext(folder, None, 60.0))}


def test_a_row_has_the_last_measurement_and_all_curves(row: Row) -> None:
    assert row["epochs"] == [1.0, 2.0, 3.0, 4.0]
    for name in ("triangle", "exact", "measured", "test error"):
        curve = row[f"{name} curve"]
        assert isinstance(curve, list)
        assert len(curve) == 4
        assert row[name] == curve[-1]


class _Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Conv2d(1, 1, 3, padding=1)

    def forward(self, images: Tensor) -> Tensor:
        inner: Tensor = self.inner(images)
        return images + inner.relu()


@dataclass(frozen=True)
class _ResidualWorkload(TrainingWorkload):
    def network(self, data: DataSet, seed: int) -> nn.Module:
        torch.manual_seed(seed)
        return nn.Sequential(_Residual(), nn.Flatten(), nn.Linear(64, data.num_classes))


def test_bounds_for_chains_are_left_out_for_residual_networks(tmp_path: Path) -> None:
    entry = replace(ENTRY, workload=_ResidualWorkload("digits", 20))
    row = entry.run(RunContext(tmp_path, None, 60.0))
    assert "triangle correlation" in row
    assert not any("arora" in name for name in row)


def test_a_bound_follows_the_test_error_only_where_it_does_so_better_than_the_training_loss() -> (
    None
):
    claims = BOUND_VS_TEST_ERROR.claims
    assert claims is not None

    def judged(found: Sequence[float], loss: list[float]) -> list[Statement]:
        rows: list[Row] = [
            {
                "setting": "digits",
                "seed": seed,
                "triangle correlation": value,
                "margin loss curve": loss,
                "test error curve": [0.1, 0.2, 0.3, 0.4],
            }
            for seed, value in enumerate(found)
        ]
        return list(statements_of(claims, rows))

    statement, answer = judged([0.9, 0.91, 0.92], [2.0, 4.0, 1.0, 3.0])  # which has 0
    assert (statement.verdict, statement.is_as_claimed) == (Verdict.DECIDED, True)
    assert statement.subject == "Digits: correlation of our triangle bound with the test error"
    assert statement.detail == (
        "+0.91 ± 0.025 over 3 seeds; minus that of the training loss (+0.00): +0.91 ± 0.025"
    )
    assert answer.detail == "in 1 of 1 settings; against it in 0"
    statement, answer = judged([0.9, 0.91, 0.92], [1.0, 2.0, 3.0, 4.0])  # which has 1
    assert statement.verdict is Verdict.BELOW
    assert answer.detail == "in 0 of 1 settings; against it in 0"
    statement, answer = judged([-0.9, -0.91, -0.92], [4.0, 3.0, 2.0, 1.0])
    assert (statement.verdict, statement.is_as_claimed) == (Verdict.DECIDED, False)
    assert answer.detail == "in 0 of 1 settings; against it in 1"


def test_a_row_says_how_closely_its_bounds_follow(row: Row) -> None:
    claims = BOUND_VS_TEST_ERROR.claims
    assert claims is not None
    rows = [{**row, "seed": seed} for seed in (0, 1)]
    # Where a bound was infinite there is no correlation.
    less = {name: value for name, value in row.items() if name != "arora-order correlation"}
    ours, others, _ = statements_of(claims, [*rows, {**less, "seed": 2}])
    assert (ours.subject.split(": ")[0], others.subject.split(": ")[0]) == ("small", "small")
    assert (ours.seeds, others.seeds) == (3, 2)


def test_every_setting_has_a_panel_with_a_line_for_each_curve(row: Row) -> None:
    assert BOUND_VS_TEST_ERROR.figure is not None
    rows = [{**row, "setting": name} for name in ("digits", "other", "third")]
    figure = BOUND_VS_TEST_ERROR.figure(rows)
    assert isinstance(figure, Figure)
    assert [panel.get_title(loc="left") for panel in figure.axes] == ["Digits", "Other", "Third"]
    curves = [name for name in row if name.removesuffix(" curve") in _DRAWN and row[name]]
    assert len(figure.axes[0].lines) == len([name for name in curves if name.endswith(" curve")])


_DRAWN = ("test error", "margin loss", "triangle", "exact", "measured", "arora-order")


def test_noise_changes_what_is_learned_but_not_what_is_tested(tmp_path: Path) -> None:
    searches = {"triangle": Options(num_jacobians=2)}
    noisy = replace(ENTRY, noise=1.0, searches=searches)
    result = noisy.run(RunContext(tmp_path, None, 60.0))
    assert result["samples"] == 20
    assert isinstance(result["test error"], float)


# Bounds that hold, for networks in few bits.


QUANTIZED_ENTRY = NonVacuousEntry(
    "digits", 2, 2, Recipe(epochs=1, batch_size=64, learning_rate=5e-3)
)


@pytest.fixture(scope="module")
def quantized_row(tmp_path_factory: pytest.TempPathFactory) -> Row:
    return QUANTIZED_ENTRY.run(RunContext(tmp_path_factory.mktemp("row"), None, 60.0))


def number(quantized_row: Row, name: str) -> float:
    value = quantized_row[name]
    assert isinstance(value, float)
    return value


def test_the_bound_is_above_the_training_error_and_below_hoeffding(quantized_row: Row) -> None:
    assert (
        number(quantized_row, "train error")
        < number(quantized_row, "bound")
        < number(quantized_row, "bound (Hoeffding)")
    )


def test_a_weight_of_two_bits_costs_at_most_the_logarithm_of_three(quantized_row: Row) -> None:
    parameters = quantized_row["parameters"]
    assert isinstance(parameters, int)
    model = QUANTIZED_ENTRY.network(load_data_set("digits"))
    assert parameters == sum(weight.numel() for weight in model.parameters())
    assert number(quantized_row, "nats") < 1.0987 * parameters + 1


def test_more_settings_are_counted_than_were_run() -> None:
    assert len(NON_VACUOUS_BOUND.entries) * NON_VACUOUS_BOUND.seeds < NUM_SETTINGS


def test_the_same_seed_gives_the_same_row(quantized_row: Row, tmp_path: Path) -> None:
    assert QUANTIZED_ENTRY.run(RunContext(tmp_path, None, 60.0)) == quantized_row
    assert replace(QUANTIZED_ENTRY, seed=1).name == QUANTIZED_ENTRY.name == "digits-width-2-bits-2"


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
    (result,) = largest(rows)
    assert (result["largest below 0.5"], result["its parameters"]) == ("a", 10)
    assert result["largest bound of its seeds"] == 0.4
    assert result["largest test error"] == 0.2
    assert largest(rows[2:]) == [{"of": "made", "largest below 0.5": "none"}]
