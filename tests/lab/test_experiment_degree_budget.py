import math
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rankscope.compression import Recipe
from rankscope.lab import find_experiment
from rankscope.lab.experiments import (
    Budget,
    CertifiedTask,
    DegreeEntry,
    ImageTask,
    Row,
    RunContext,
    WaveTask,
    statements_of,
)
from rankscope.lab.experiments.degree_budget import (
    BASELINES,
    COMPARISONS,
    DEGREES,
    QUICK,
    ActivatedEntry,
    LinearBaseline,
    differences,
)
from rankscope.progress import ignore

DEGREE_BUDGET = find_experiment("degree-budget")

# Rows of `degree-budget`: budgets, ranks beside errors, and resuming.


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


def test_with_an_activation_only_the_epsilon_rank_is_measured(tmp_path: Path) -> None:
    entry = ActivatedEntry(WaveTask(num_samples=64), Budget(6, 200), 3.0, SHORT)
    assert entry.name == "waves-3-6-matrices-gelu-degree-3"
    row = entry.run(RunContext(tmp_path, None, 60.0))
    assert row["activation"] == "gelu"
    assert isinstance(row["epsilon rank"], int)
    assert "separation rank" not in row
    assert "total degree" not in row
    assert row["parameters"] == sum(part.numel() for part in ENTRY.build().parameters())


def test_names_say_task_budget_and_degree() -> None:
    assert ENTRY.name == "waves-3-6-matrices-degree-3"
    assert DegreeEntry(WaveTask(), Budget(8, 200), math.e).name == "waves-3-8-matrices-degree-e"


# The experiment: who can represent what at its budgets, and what follows from its rows.


ENTRIES = [
    entry
    for entry in (*DEGREE_BUDGET.entries, *DEGREE_BUDGET.quick)
    if isinstance(entry, DegreeEntry)
]


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_every_network_spends_its_budget(entry: DegreeEntry) -> None:
    spent = sum(parameter.numel() for parameter in entry.build().parameters())
    # One more unit of width costs at most a sixth of networks this small.
    assert 5 / 6 * entry.budget.num_parameters < spent <= entry.budget.num_parameters


@pytest.mark.parametrize(
    "entry", [e for e in ENTRIES if isinstance(e.task, CertifiedTask)], ids=lambda e: e.name
)
def test_one_degree_can_represent_its_target_and_the_next_lower_cannot(entry: DegreeEntry) -> None:
    assert isinstance(entry.task, CertifiedTask)
    search = entry.task.search
    network = entry.build()
    if entry.degree == search.degrees[0]:
        assert network.width == search.width
        assert network.split_degrees == tuple((degree, 0) for degree in search.degrees)
    if entry.degree == search.degrees[0] - 1:
        assert network.polynomial().input_degree <= search.lower_degree


def test_every_comparison_has_every_degree() -> None:
    assert len(DEGREE_BUDGET.entries) == len(BASELINES) + len(COMPARISONS) * len(DEGREES)
    assert len(DEGREE_BUDGET.quick) == len(QUICK) * len(DEGREES)
    assert DEGREE_BUDGET.seeds >= 5
    assert math.e in DEGREES


def test_every_comparison_has_the_baseline_of_its_task() -> None:
    claims = DEGREE_BUDGET.claims
    assert claims is not None
    names = {entry.name for entry in DEGREE_BUDGET.entries if isinstance(entry, LinearBaseline)}
    assert {pair.score.baseline for pair in claims.pairs} == names
    for pair in claims.pairs:
        assert pair.first.startswith(str(pair.score.baseline)[len("baseline-") : -len("-linear")])


def test_the_linear_baseline_is_the_projection_on_affine_functions(tmp_path: Path) -> None:
    task = WaveTask(num_samples=4096)
    context = RunContext(tmp_path, None, 60.0, ignore)
    row = LinearBaseline(task).run(context)
    data = task.task_data(None, seed=0)
    assert data.test.targets is not None
    inputs, wanted = data.test.inputs.double(), data.test.targets.double()
    design = torch.cat([inputs, torch.ones(len(inputs), 1)], dim=1)
    # Fitted to the test samples themselves: no linear function has a smaller error there.
    residual = wanted - design @ torch.linalg.pinv(design) @ wanted
    least = float(residual.square().mean().sqrt() / wanted.std())
    error = float(str(row["relative error"]))
    assert least <= error < 1.02 * least
    assert row["baseline"] == "waves-3-linear"


def rows_of(errors: dict[str, list[float]]) -> list[Row]:
    return [
        {
            "group": "g",
            "degree": degree,
            "seed": seed,
            "relative error": error,
            "errors": [1.0, error],
        }
        for degree, finals in errors.items()
        for seed, error in enumerate(finals)
    ]


def test_a_verdict_is_given_only_where_the_interval_allows() -> None:
    rows = rows_of({"2": [0.5, 0.51], "3": [0.3, 0.31], "4": [0.1, 0.11], "e": [0.2, 0.42]})
    (result,) = differences(rows)
    assert str(result["3 minus 2"]).endswith("(better)")
    assert str(result["3 minus 4"]).endswith("(worse)")
    assert str(result["3 minus e"]).endswith("(undecided)")


def test_one_seed_gives_no_verdict() -> None:
    (result,) = differences(rows_of({"2": [0.5], "3": [0.3]}))
    assert result["3 minus 2"] is None


def test_every_comparison_gets_a_panel_with_its_errors_over_the_degrees() -> None:
    rows: list[Row] = [
        {
            **row,
            "setting": f"{one.group}-degree-{row['degree']}",
        }
        for one in (COMPARISONS[6], COMPARISONS[9])
        for row in rows_of({"2": [0.5, 0.51], "e": [0.1, 0.1], "3": [0.3, 0.31]})
    ]
    assert DEGREE_BUDGET.figure is not None
    axes = DEGREE_BUDGET.figure(rows).axes  # type: ignore[attr-defined]
    assert [panel.get_title(loc="left") for panel in axes] == [
        "Waves, 12 matrices",
        "Waves, 12 matrices, GELU",
    ]
    for panel in axes:
        (means,) = [line for line in panel.lines if line.get_linestyle() == "-"]
        assert list(means.get_xdata()) == [2.0, math.e, 3.0]
        assert list(means.get_ydata()) == pytest.approx([0.505, 0.1, 0.305])


def test_the_answer_counts_pairs_of_different_total_degrees_and_those_with_gelu() -> None:
    claims = DEGREE_BUDGET.claims
    assert claims is not None
    by_subject = {pair.subject: pair for pair in claims.pairs}
    rows: list[Row] = [
        {"setting": baseline.name, "seed": None, "baseline": "linear", "relative error": 1.0}
        for baseline in BASELINES
    ]
    for subject, first, second in (
        ("Cubic polynomial, 3 matrices: degree 3 (total 3) against 2 (total 2)", 0.9, 0.5),
        ("Waves, 6 matrices, GELU: degree 3 against 4", 0.5, 0.9),  # total degree 9 against 4
        ("Waves, 6 matrices, GELU: degree 3 against e", 0.5, 0.9),  # total degree 9 of both
    ):
        pair = by_subject[subject]
        for setting, error in ((pair.first, first), (pair.second, second)):
            rows += [
                {"setting": setting, "seed": seed, "relative error": error + seed / 1000}
                for seed in range(DEGREE_BUDGET.seeds)
            ]
    facts = {one.subject: one.detail for one in statements_of(claims, rows, seeds=5)}
    assert facts["Decided pairs of different total degrees"] == (
        "1 of 2 go to the larger total degree; with a GELU after every layer 1 of 6 pairs are "
        "decided"
    )
