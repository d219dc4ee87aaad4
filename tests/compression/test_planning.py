"""Plans: every module has a row with a reason, and what cannot be is refused."""

import json
import math
from collections.abc import Collection

import pytest
import torch
from torch import nn

from rankscope.compression import (
    Budget,
    Costs,
    ErrorNorm,
    Plan,
    Scoring,
    Tolerance,
    Unit,
    plan_compression,
    state_bytes,
    with_replaced,
)
from rankscope.compression.choosing import allowance, replace_part
from rankscope.errors import CompressionError
from rankscope.factorize import FORMATS
from rankscope.progress import Progress, Report, ignore
from rankscope.workers import Workers

SVD = [FORMATS["svd"]]


def two_layers() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(32, 32), nn.LayerNorm(32), nn.Linear(32, 32), nn.Linear(2, 2))


class Counted(Scoring):
    """The error of one site counts a thousandfold, and another has seen no data."""

    name = "counted"

    def prepare(
        self, model: nn.Module, *, left: Collection[str] = (), report: Report = ignore
    ) -> None:
        del model, left, report

    def error_norm(self, site_name: str) -> ErrorNorm | None:
        return None if site_name == "3" else ErrorNorm(multiplier=1e3 if site_name == "2" else 1.0)


def test_every_module_with_parameters_has_a_row_and_a_reason() -> None:
    plan = plan_compression(two_layers(), Budget(0.5))
    assert [row.name for row in plan.rows] == ["0", "1", "2", "3"]
    assert all(row.reason for row in plan.rows)
    assert plan.rows[0].reason == "only svd fits"
    assert plan.rows[3].reason.startswith("no way to gain (svd: no smaller even at ranks of one;")


def test_the_solver_spends_ranks_where_errors_count() -> None:
    plan = plan_compression(two_layers(), Budget(0.6), formats=SVD, scores=Counted())
    assert plan.rows[2].kept > plan.rows[0].kept
    assert plan.scoring == "counted"
    assert any("scored by their weights alone: 3." in note for note in plan.notes)


def test_a_tolerance_takes_the_smallest_candidate_within_it(generator: torch.Generator) -> None:
    model = nn.Linear(40, 40, bias=False)
    fading = torch.randn(40, 40, generator=generator) * torch.logspace(0, -2, 40)
    model.weight = nn.Parameter(fading)
    values = torch.linalg.svdvals(fading.double()).square()
    lost = [math.sqrt(float(values[rank:].sum() / values.sum())) for rank in range(20)]
    smallest = next(rank for rank, error in enumerate(lost) if error <= 0.2)
    (row,) = plan_compression(model, Tolerance(0.2), formats=SVD).rows
    assert row.ranks == (smallest,)
    assert row.error == pytest.approx(lost[smallest])
    assert plan_compression(model, Tolerance(0.0), formats=SVD).rows[0].format is None


def test_keep_one_keeps_everything_dense() -> None:
    plan = plan_compression(two_layers(), Budget(1.0))
    assert plan.kept == plan.dense
    assert {row.format for row in plan.rows} == {None}


def test_a_model_without_sites_has_rows_all_the_same() -> None:
    plan = plan_compression(nn.LayerNorm(4), Budget(1.0))
    assert [row.kind for row in plan.rows] == ["LayerNorm"]
    with pytest.raises(CompressionError, match=r"keep=0\.5 allows 4 of 8 parameters, .* is 8 "):
        plan_compression(nn.LayerNorm(4), Budget(0.5))


def test_a_plan_is_plain_data_with_the_names_that_machines_read() -> None:
    plan = plan_compression(two_layers(), Budget(0.5), formats=SVD)
    document = json.loads(json.dumps(plan.to_dict(), allow_nan=False))
    assert document["dense_parameters"] == plan.dense.parameters == 2182
    assert document["kept_parameters"] == plan.kept.parameters <= 1091
    names = {"name", "format", "ranks", "kept", "error", "reason"}
    assert all(names <= set(layer) for layer in document["layers"])
    chosen = [row for row in plan.rows if row.format == "svd"]
    assert plan.rank_pattern() == {row.name: row.ranks[0] for row in chosen}


def test_progress_is_told_weight_by_weight() -> None:
    seen: list[Progress] = []
    plan_compression(two_layers(), Budget(0.5), formats=SVD, report=seen.append)
    assert [progress.done for progress in seen] == [1, 2, 3]
    assert {progress.total for progress in seen} == {3}


@pytest.mark.parametrize("keep", [0.0, -0.1, 1.5])
def test_shares_that_are_none_are_refused(keep: float) -> None:
    with pytest.raises(CompressionError, match=rf"above 0 and at most 1, got {keep}"):
        plan_compression(two_layers(), Budget(keep))


@pytest.mark.parametrize("unit", [Unit.FLOPS, Unit.LATENCY])
def test_units_that_need_an_example_ask_for_it(unit: Unit) -> None:
    with pytest.raises(CompressionError, match=rf"A budget in {unit} .* pass example="):
        plan_compression(two_layers(), Budget(0.5, unit))


def test_unknown_bits_and_tolerances_are_refused() -> None:
    with pytest.raises(CompressionError, match=r"8 or 4 .* got 3"):
        plan_compression(two_layers(), Budget(0.5), bits=(3,))
    with pytest.raises(CompressionError, match=r"at least 0 and below 1, got 1\.0"):
        plan_compression(two_layers(), Tolerance(1.0))


def test_an_impossible_budget_says_the_smallest_that_is_possible() -> None:
    model = nn.Sequential(nn.Linear(32, 32, bias=False), nn.LayerNorm(32))
    # 64 numbers of the normalization stay, and rank 1 takes 64: 128 of 1088 = 0.11764...
    message = r"allows 54 of 1,088 parameters, .* is 128 \(keep=0\.1177\): 64 belong"
    with pytest.raises(CompressionError, match=message):
        plan_compression(model, Budget(0.05), formats=SVD)
    assert plan_compression(model, Budget(0.1177), formats=SVD).kept.parameters == 128


def test_counts_are_exact() -> None:
    # 0.1 * 30 is 3.0000000000000004 or so; what is meant is 3.
    assert allowance(Budget(0.1), Costs(parameters=30, flops=0, bytes=0)) == 3
    total = replace_part(Costs(10, 9, 8, 7.0), Costs(3, 2, 1, 2.0), Costs(1, 1, 1, 1.0))
    assert total == Costs(8, 8, 8, 6.0)
    tied = nn.ModuleList([nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False)])
    tied[1].weight = tied[0].weight
    assert state_bytes(tied) == 36


def test_replaced_modules_are_not_copied_and_the_model_stays() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.Linear(2, 3), nn.ReLU()))
    other = nn.Identity()
    copied = with_replaced(model, {"1.0": other})
    assert copied.get_submodule("1.0") is other
    assert isinstance(model.get_submodule("1.0"), nn.Linear)
    assert copied.get_submodule("0") is not model.get_submodule("0")
    assert with_replaced(model, {"": other}) is other


def test_a_plan_without_svd_has_no_rank_pattern() -> None:
    costs = Costs(parameters=1, flops=0, bytes=4)
    assert Plan(rows=(), budget=Budget(0.5), dense=costs, kept=costs).rank_pattern() == {}


def test_as_many_weights_as_torch_has_threads_are_looked_at_at_once() -> None:
    model = nn.Sequential(nn.Conv2d(4, 8, 3), nn.Conv2d(8, 12, 3), nn.Flatten(), nn.Linear(48, 10))
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        spread = plan_compression(model, Budget(0.5))
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert spread.rows == plan_compression(model, Budget(0.5), workers=Workers("sequential")).rows
