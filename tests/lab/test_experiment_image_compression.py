from dataclasses import replace
from pathlib import Path

import pytest
import torch

from rankscope.compression import Cosine, Recipe
from rankscope.errors import DataError, ExperimentError
from rankscope.factorize import FORMATS, WeightShape
from rankscope.lab import find_experiment
from rankscope.lab.experiments import (
    DenseEntry,
    DistilledEntry,
    PlannedEntry,
    Row,
    RunContext,
    UniformEntry,
    compare,
    compress_uniformly,
    ranks_at_one_rate,
)
from rankscope.lab.experiments.image_compression import (
    BASELINES,
    PUBLISHED,
    beside_best_plain,
    beside_published,
    draw_beside_best_plain,
)
from rankscope.lab.experiments.image_workloads import DIGITS, RESNET32, SOURCE_RECIPE
from rankscope.networks import build

CIFAR10_COMPRESSION = find_experiment("cifar10-compression")
DIGITS_COMPRESSION = find_experiment("digits-compression")

# Rows of the compression table, on the embedded digits.


pytest.importorskip("sklearn")
SHORT = replace(SOURCE_RECIPE, epochs=2, batch_size=64, learning_rate=3e-3)


def number(value: object) -> float:
    assert isinstance(value, int | float)
    return float(value)


def test_the_dense_network_scores_as_its_manifest_says(tmp_path: Path) -> None:
    row = DenseEntry(DIGITS).run(RunContext(tmp_path, None, 60.0))
    assert (row["kept"], row["accuracy"]) == (13_824, 98.89)


@pytest.mark.slow
def test_a_repair_by_stages_brings_accuracy_back(tmp_path: Path) -> None:
    entry = UniformEntry(DIGITS, 0.1, "svd", recipe=SHORT)
    assert entry.name == "svd-10"
    row = entry.run(RunContext(tmp_path, None, 60.0))
    assert number(row["share"]) <= 0.1
    assert number(row["accuracy"]) > number(row["accuracy before"])
    assert row["samples"] == 2 * 2 * 1437  # two epochs in each of two stages
    # Called again, it finds both stages finished and gives the same.
    again = entry.run(RunContext(tmp_path, None, 60.0))
    assert (again["accuracy"], again["samples"]) == (row["accuracy"], row["samples"])


@pytest.mark.slow
def test_the_best_row_keeps_no_more_than_the_others(tmp_path: Path) -> None:
    last = Recipe(epochs=2, batch_size=64, learning_rate=2e-3, schedule=Cosine())
    entry = PlannedEntry(DIGITS, 0.1, sequential=SHORT, end_to_end=last)
    row = entry.run(RunContext(tmp_path, None, 60.0))
    assert entry.name == "best-10"
    assert number(row["kept"]) <= 0.1 * 13_824
    assert str(row["format"]).startswith("planned: ")
    assert number(row["accuracy"]) > number(row["accuracy before"])
    assert row["samples"] == 2 * 2 * 1437 + 2 * 1437


@pytest.mark.slow
def test_rows_of_an_hour_are_repaired_as_planned_ones_are(tmp_path: Path) -> None:
    last = Recipe(epochs=2, batch_size=64, learning_rate=2e-3, schedule=Cosine())
    entry = DistilledEntry(DIGITS, 0.1, "svd", recipe=SHORT, end_to_end=last, copies=3)
    row = entry.run(RunContext(tmp_path, None, 60.0))
    assert entry.name == "svd-10"
    assert number(row["kept"]) <= 0.1 * 13_824
    assert row["samples"] == 2 * 2 * 1437 + 2 * 3 * 1437
    assert number(row["accuracy"]) > number(row["accuracy before"])


def test_an_entry_without_time_to_train_says_so(tmp_path: Path) -> None:
    with pytest.raises(ExperimentError, match=r"svd-10: of its 1e-06 seconds, \d+ were spent"):
        UniformEntry(DIGITS, 0.1, "svd").run(RunContext(tmp_path, None, 1e-6))


def test_without_the_data_an_entry_says_how_to_get_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RANKSCOPE_DATA", raising=False)
    with pytest.raises(DataError, match=r"resnet32.*--data or RANKSCOPE_DATA"):
        UniformEntry(RESNET32, 0.1, "svd").run(RunContext(tmp_path, None, 60.0))


def test_every_published_cell_has_an_entry_besides_dense_and_best() -> None:
    cells = sum(len(row) for row in PUBLISHED.values())
    baselines = [entry for entry in CIFAR10_COMPRESSION.entries if entry in BASELINES]
    assert len(baselines) == 2
    assert len(CIFAR10_COMPRESSION.entries) - len(baselines) == cells + 2 == 30
    entries = {entry.name: entry for entry in CIFAR10_COMPRESSION.entries}
    assert entries["r-cp-2"] == UniformEntry(RESNET32, 0.02, "r-cp", 85.7)
    assert {entry.name for entry in DIGITS_COMPRESSION.entries} >= {"dense", "cp-5", "best-10"}


# One format for all, by counted parameters.


RESNET_SHAPES = {
    name: WeightShape.of(module.weight)
    for name, module in RESNET32.convolutions(build("resnet32")).items()
}


def test_thirty_convolutions_of_resnet32_are_compressed() -> None:
    assert len(RESNET_SHAPES) == 30
    assert sum(shape.num_parameters for shape in RESNET_SHAPES.values()) == 460_800
    assert "conv1" not in RESNET_SHAPES


CELLS = [(name, percentage) for name, row in PUBLISHED.items() for percentage in row]


@pytest.mark.parametrize(("name", "percentage"), CELLS)
def test_every_cell_of_the_table_keeps_its_share_and_hardly_less(
    name: str, percentage: int
) -> None:
    format, limit = FORMATS[name], percentage * 4608
    ranks = ranks_at_one_rate(format, RESNET_SHAPES, percentage / 100)
    kept = sum(format.num_parameters(shape, ranks[at]) for at, shape in RESNET_SHAPES.items())
    # Only what the ranks of the last layer leave over is lost.
    assert 0.98 * limit <= kept <= limit


def test_a_share_that_is_too_small_is_refused_with_numbers() -> None:
    with pytest.raises(ExperimentError, match=r"svd cannot write .*\(16, 16, 3, 3\), with 23 of"):
        ranks_at_one_rate(FORMATS["svd"], RESNET_SHAPES, 0.01)


@pytest.mark.parametrize("name", ["svd", "tucker", "r-tensor-train"])
def test_the_copy_is_counted_and_compared_and_the_model_untouched(name: str) -> None:
    model = build("digits")
    before = {key: value.clone() for key, value in model.state_dict().items()}
    compressed = compress_uniformly(DIGITS, model, FORMATS[name], 0.2)
    result = compare(DIGITS, model, compressed)
    assert result.dense == 13_824
    total = sum(parameter.numel() for parameter in model.parameters())
    after = sum(parameter.numel() for parameter in compressed.parameters())
    assert result.kept == result.dense - (total - after)
    assert 0.1 < result.share <= 0.2
    assert 0 < result.error < 1
    for key, value in model.state_dict().items():
        assert torch.equal(before[key], value)


def test_a_network_beside_itself_keeps_everything_without_error() -> None:
    model = build("digits")
    result = compare(DIGITS, model, model)
    assert (result.kept, result.share, result.error) == (13_824, 1.0, 0.0)


def test_rows_that_reach_the_published_number_are_named_and_the_others_measured() -> None:
    rows: list[Row] = [
        {"setting": "dense", "format": "dense", "published": 93.2, "accuracy": 95.0},
        {"setting": "r-cp-10", "format": "r-cp", "published": 91.0, "accuracy": 91.5},
        {"setting": "svd-5", "format": "svd", "published": 83.0, "accuracy": 80.0},
        {"setting": "cp-5", "format": "cp", "published": 84.0, "accuracy": 83.5},
        {"setting": "best-10", "format": "planned: 1 cp", "published": None, "accuracy": 99.0},
    ]
    (statement,) = beside_published(rows)
    assert statement.detail == (
        "1 of 3: reshaped CP at 10 % (+0.50); below it: SVD at 5 % (-3.00), CP at 5 % (-0.50)"
    )
    further = ({**rows[2], "setting": f"svd-{n}", "accuracy": 70.0 + n / 2} for n in range(10, 17))
    (statement,) = beside_published([*rows, *further])
    assert statement.detail.endswith("(+0.50); the others are 0.50 to 8.00 points below")
    assert "not decided (one run each)" in statement.subject.lower()
    assert beside_published(rows[-1:]) == []


def test_planned_rows_stand_beside_the_best_published_format_that_is_not_reshaped() -> None:
    rows: list[Row] = [
        {"setting": "best-10", "accuracy": 90.0},
        {"setting": "best-7", "accuracy": 80.0},  # nothing is published there
        {"setting": "svd-10", "accuracy": 70.0},
    ]
    (statement,) = beside_best_plain(rows)
    plain = {name: PUBLISHED[name][10] for name in ("svd", "cp", "tucker", "tensor-train")}
    assert PUBLISHED["r-cp"][10] > max(plain.values()) == plain["svd"]
    assert statement.detail == f"90.0 percent against {plain['svd']} (SVD) at 10 % of the weights"
    assert beside_best_plain(rows[1:]) == []
    # The figure has a cross there, and nowhere else.
    (axes,) = draw_beside_best_plain(rows[:2]).axes  # type: ignore[attr-defined]
    crosses = [list(line.get_xdata()) for line in axes.lines if line.get_marker() == "x"]
    assert crosses == [[plain["svd"]]]
