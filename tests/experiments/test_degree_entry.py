"""Rows of `degree-budget`: budgets, ranks beside errors, and resuming."""

import math
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from rankscope.experiments.degree_budget import Budget, DegreeEntry
from rankscope.experiments.degree_tasks import ImageTask, WaveTask
from rankscope.experiments.experiment import Row, RunContext
from rankscope.training.recipe import Recipe

SHORT = Recipe(epochs=2, batch_size=32, learning_rate=1e-2)
ENTRY = DegreeEntry(WaveTask(num_samples=64), Budget(6, 200), 3.0, SHORT)


@given(matrices=st.integers(1, 40), degree=st.sampled_from([2.0, math.e, 3.0, 4.0]))
def test_a_budget_of_matrices_is_never_exceeded_and_nearly_spent(
    matrices: int, degree: float
) -> None:
    degrees = Budget(matrices, 100).degrees(degree)
    assert set(degrees) == {degree}
    if matrices >= degree:
        assert sum(degrees) <= matrices + 1e-9 < sum(degrees) + degree
    else:
        assert len(degrees) == 1


def without_seconds(row: Row) -> Row:
    return {name: value for name, value in row.items() if name != "seconds"}


def test_a_row_has_the_exact_rank_of_the_trained_network(tmp_path: Path) -> None:
    row = ENTRY.run(RunContext(tmp_path, None, 60.0))
    parameters, errors = row["parameters"], row["errors"]
    assert isinstance(parameters, int)
    assert parameters <= 200
    # Two layers of degree 3, in two inputs on each side.
    assert (row["layers"], row["total degree"], row["separation rank"]) == (2, 9, 30)
    assert row["rank bound"] == 30
    assert isinstance(errors, list)
    assert len(errors) == 2
    assert errors[-1] == row["relative error"]
    # Called again it goes on from its checkpoint, which is complete.
    assert without_seconds(ENTRY.run(RunContext(tmp_path, None, 60.0))) == without_seconds(row)


def test_images_are_measured_between_two_squares(tmp_path: Path) -> None:
    task = ImageTask("digits", 8, 2, num_samples=64)
    row = DegreeEntry(task, Budget(4, 400), math.e, SHORT).run(RunContext(tmp_path, None, 60.0))
    assert row["inputs measured"] == 2
    # Degree 3 in one input on each side.
    assert row["separation rank"] == row["rank bound"] == 4
    assert "percent wrong" in row


def test_names_say_task_budget_and_degree() -> None:
    assert ENTRY.name == "waves-3-6-matrices-degree-3"
    assert DegreeEntry(WaveTask(), Budget(8, 200), math.e).name == "waves-3-8-matrices-degree-e"
