"""`plan.json`: what is written is read again, and everything else is refused."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.compression import (
    Budget,
    Costs,
    Plan,
    Row,
    SavedPlan,
    Unit,
    WeightsChecksum,
    read_plan,
)
from rankscope.errors import CompressionError, ModelFileError

# Plain data, made into plans in the test: beartype draws random numbers, strategies must not.
COUNTS = st.integers(0, 2**40)
FINITE = st.floats(0, 1e6)
COSTS = st.tuples(COUNTS, COUNTS, COUNTS, FINITE)
ROWS = st.fixed_dictionaries(
    {
        "name": st.text(max_size=8),
        "kind": st.text(max_size=8),
        "shape": st.lists(COUNTS, max_size=4).map(tuple),
        "format": st.none() | st.sampled_from(["svd", "r-cp"]),
        "ranks": st.lists(COUNTS, max_size=3).map(tuple),
        "bits": st.sampled_from([4, 8, 16, 32]),
        "dense": COUNTS,
        "kept": COUNTS,
        "error": FINITE,
        "reason": st.text(max_size=20),
    }
)
SMALL = Plan(
    (Row("fc", "Linear", (4, 3), "svd", (1,), 32, 12, 7, 0.5, "only svd fits"),),
    Budget(0.6),
    Costs(12, 0, 48),
    Costs(7, 0, 28),
)


@settings(deadline=None)
@given(
    rows=st.lists(ROWS, max_size=4),
    costs=st.tuples(COSTS, COSTS),
    keep=st.floats(1e-3, 1.0),
    unit=st.sampled_from(Unit),
    notes=st.lists(st.text(max_size=9), max_size=2),
    built_in=st.none() | st.text(max_size=5),
)
def test_what_is_written_is_read_again(
    rows: list[dict[str, Any]],
    costs: tuple[tuple[Any, ...], tuple[Any, ...]],
    keep: float,
    unit: Unit,
    notes: list[str],
    built_in: str | None,
) -> None:
    dense, kept = (Costs(*numbers) for numbers in costs)
    made = tuple(Row(**row) for row in rows)
    plan = Plan(made, Budget(keep, unit), dense, kept, "activations", tuple(notes))
    saved = SavedPlan(plan, WeightsChecksum.of(b"weights"), built_in)
    path = Path("plan.json")
    path.write_bytes(saved.to_json())
    assert read_plan(path) == saved


def document() -> Any:
    return json.loads(SavedPlan(SMALL, WeightsChecksum.of(b"weights"), None).to_json())


def write(path: Path, content: object) -> Path:
    path.write_text(json.dumps(content))
    return path


@pytest.mark.parametrize(
    ("keys", "value", "message"),
    [
        (["version"], 3, "versions 1 and 2 are read here, it has 3"),
        (["layers"], {}, "at layers: wanted a list, .*, got an object with 0 keys"),
        (["layers", 0], 3, r"at layers\[0\]: wanted an object with name, .*, got 3"),
        (
            ["layers", 0, "ranks"],
            [1.5],
            r"layers\[0\].ranks\[0\]: wanted an integer .*, got 1.5",
        ),
        (["layers", 0, "ranks"], [-1], r"layers\[0\].ranks\[0\]: wanted an integer in 0.*, got -1"),
        (["layers", 0, "bits"], True, r"layers\[0\].bits: wanted an integer in 0.*, got True"),
        (["layers", 0, "format"], 7, r"layers\[0\].format: wanted a string or null, got 7"),
        (["layers", 0, "error"], "0", r"layers\[0\].error: wanted a finite number, got '0'"),
        (["layers", 0, "error"], float("nan"), "only finite numbers are allowed, got NaN"),
        (["layers", 0, "name"], None, r"layers\[0\].name: wanted a string, got None"),
        (["by"], "pounds", "at by: wanted one of parameters, .*, got 'pounds'"),
        (["dense", "parameters"], 13, "dense_parameters is 12, but the rest makes it 13"),
        (["weights"], "no", "at weights: wanted an object with file, .*, got 'no'"),
        (
            ["weights", "file"],
            "../other",
            r"weights.file: wanted model.safetensors, got '../other'",
        ),
        (["extra"], 1, "at top: wanted only the keys version, .*, got 'extra'"),
    ],
)
def test_a_value_that_cannot_be_is_refused(
    tmp_path: Path, keys: list[Any], value: object, message: str
) -> None:
    content = document()
    place = content
    for key in keys[:-1]:
        place = place[key]
    place[keys[-1]] = value
    with pytest.raises(ModelFileError, match=message):
        read_plan(write(tmp_path / "plan.json", content))


@pytest.mark.parametrize("key", ["version", "keep", "weights", "built_in", "notes"])
def test_a_value_that_is_missing_is_refused(tmp_path: Path, key: str) -> None:
    content = document()
    del content[key]
    with pytest.raises(ModelFileError, match=f"at top: {key} is missing"):
        read_plan(write(tmp_path / "plan.json", content))


def test_a_number_that_is_not_finite_is_not_written() -> None:
    endless = Plan((), Budget(0.5), Costs(1, 1, 1, float("inf")), Costs(1, 1, 1))
    with pytest.raises(CompressionError, match=r"JSON has no word for: .*not JSON compliant"):
        SavedPlan(endless, WeightsChecksum.of(b""), None).to_json()


def test_a_plan_of_version_1_counted_multiply_adds_once(tmp_path: Path) -> None:
    content = document()
    now = read_plan(write(tmp_path / "plan.json", content)).plan
    old = {**content, "version": 1, "dense": {**content["dense"], "flops": 35}}
    read = read_plan(write(tmp_path / "old.json", old)).plan
    assert read.dense.flops == 70
    assert read.kept.flops == 2 * now.kept.flops
    assert read.rows == now.rows
