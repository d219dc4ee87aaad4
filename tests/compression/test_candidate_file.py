"""A table of candidates in a file gives the plans of the table in memory, without the weights."""

import json
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

from rankscope.compression import (
    Budget,
    CandidateTable,
    PlanSettings,
    TableSolver,
    Weights,
    list_candidates,
    read_table,
    write_table,
)
from rankscope.errors import ModelFileError
from rankscope.factorize import STORED_FORMATS
from rankscope.progress import ignore


@pytest.fixture(scope="module")
def table() -> CandidateTable:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(24, 32), nn.LayerNorm(32), nn.Linear(32, 16), nn.Embedding(9, 8)
    )
    formats = (STORED_FORMATS["svd"], STORED_FORMATS["tensor-train"])
    return list_candidates(model, PlanSettings(formats, Weights()), ignore)


@pytest.fixture(scope="module")
def path(table: CandidateTable, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tables") / "table.json"
    write_table(table, path)
    return path


def test_what_is_read_is_what_was_written(table: CandidateTable, path: Path) -> None:
    read = read_table(path)
    assert (read.dense, read.notes, read.scoring) == (table.dense, table.notes, table.scoring)
    pairs = zip(read.site_candidates, table.site_candidates, strict=True)
    for mine, theirs in pairs:
        assert mine.candidates == theirs.candidates
        assert mine.site.weight.is_meta
        assert mine.site.weight.shape == theirs.site.weight.shape
        assert mine.site.weight.dtype == theirs.site.weight.dtype
    again = path.with_name("again.json")
    write_table(read, again)
    assert again.read_bytes() == path.read_bytes()


@settings(
    deadline=None, max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(keep=st.floats(0.3, 1.0))
def test_plans_are_those_of_the_table_in_memory(
    table: CandidateTable, path: Path, keep: float
) -> None:
    found = [TableSolver(one).solve(Budget(keep)) for one in (table, read_table(path))]
    assert found[0].picks == found[1].picks
    assert found[0].plan.to_dict() == found[1].plan.to_dict()
    assert found[0].kept == found[0].plan.kept


@pytest.mark.parametrize("change", ["version", "entries", "dense", "cut"])
def test_a_damaged_file_is_refused_by_name(path: Path, tmp_path: Path, change: str) -> None:
    damaged = tmp_path / "damaged.json"
    document = json.loads(path.read_text())
    document.pop(change, None)
    text = path.read_text()[:200] if change == "cut" else json.dumps(document)
    damaged.write_text(text)
    with pytest.raises(ModelFileError, match=r"damaged\.json"):
        read_table(damaged)
