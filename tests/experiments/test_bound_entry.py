"""Bounds beside test errors, over the epochs of a run."""

from dataclasses import replace
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from rankscope.experiments.cp_networks import TrainingWorkload
from rankscope.experiments.experiment import Row, RunContext
from rankscope.experiments.generalization_bounds import BoundEntry, correlations, draw_bounds
from rankscope.generalization.analysis import Options
from rankscope.training.recipe import Recipe

ENTRY = BoundEntry(
    "small",
    TrainingWorkload("digits", 20, width=2),
    Recipe(epochs=5, batch_size=10, learning_rate=1e-2),
    every=1,
)


@pytest.fixture(scope="module")
def row(tmp_path_factory: pytest.TempPathFactory) -> Row:
    folder: Path = tmp_path_factory.mktemp("row")
    return {"setting": "small", "seed": 0, **ENTRY.run(RunContext(folder, None, 60.0))}


def test_a_row_has_the_last_measurement_and_all_curves(row: Row) -> None:
    assert row["epochs"] == [1.0, 2.0, 3.0, 4.0, 5.0]
    for name in ("triangle", "exact", "measured", "test error"):
        curve = row[f"{name} curve"]
        assert isinstance(curve, list)
        assert len(curve) == 5
        assert row[name] == curve[-1]


def test_a_summary_line_for_every_bound_says_how_it_goes_with_the_test_error(row: Row) -> None:
    found = correlations([row, {**row, "seed": 1}])
    assert [line["bound"] for line in found][:3] == ["triangle", "exact", "measured"]
    assert all("10 points" in str(line["with the test error"]) for line in found)


def test_correlations_are_those_of_the_curves() -> None:
    up, down = [1.0, 2.0, 3.0, 4.0], [4.0, 3.0, 2.0, 1.0]
    made: Row = {"setting": "made", "test error curve": up, "triangle curve": up}
    made |= {"triangle complexity curve": down, "exact curve": None}
    (line,) = correlations([made])
    assert line["with the test error"] == "+1.00 (+1.00 to +1.00, 4 points)"
    assert line["its complexity alone"] == "-1.00 (-1.00 to -1.00, 4 points)"


def test_a_curve_with_an_infinite_value_is_left_out() -> None:
    made: Row = {"setting": "made", "test error curve": [0.1], "arora-order curve": None}
    assert correlations([made]) == []


def test_every_setting_has_a_panel_with_a_line_for_each_curve(row: Row) -> None:
    figure = draw_bounds([row, {**row, "setting": "other"}, {**row, "setting": "third"}])
    assert isinstance(figure, Figure)
    assert [panel.get_title(loc="left") for panel in figure.axes] == ["small", "other", "third"]
    curves = [name for name in row if name.removesuffix(" curve") in _DRAWN and row[name]]
    assert len(figure.axes[0].lines) == len([name for name in curves if name.endswith(" curve")])


_DRAWN = ("test error", "triangle", "exact", "measured", "arora-order")


def test_noise_changes_what_is_learned_but_not_what_is_tested(tmp_path: Path) -> None:
    searches = {"triangle": Options(num_jacobians=2)}
    recipe = replace(ENTRY.recipe, epochs=4)
    noisy = replace(ENTRY, noise=1.0, recipe=recipe, searches=searches)
    found = noisy.run(RunContext(tmp_path, None, 60.0))
    assert found["samples"] == 20
    assert isinstance(found["test error"], float)
