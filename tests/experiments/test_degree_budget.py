"""The experiment: who can represent what at its budgets, and what follows from its rows."""

import math

import pytest

from rankscope.experiments.degree_budget import (
    COMPARISONS,
    DEGREE_BUDGET,
    DEGREES,
    QUICK,
    DegreeEntry,
    differences,
    draw_curves,
)
from rankscope.experiments.degree_tasks import CertifiedTask
from rankscope.experiments.experiment import Row

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
    assert len(DEGREE_BUDGET.entries) == len(COMPARISONS) * len(DEGREES)
    assert len(DEGREE_BUDGET.quick) == len(QUICK) * len(DEGREES)
    assert DEGREE_BUDGET.seeds >= 5
    assert math.e in DEGREES


def rows_of(errors: dict[str, list[float]]) -> list[Row]:
    return [
        {"group": "g", "degree": degree, "seed": seed, "errors": [1.0, error]}
        for degree, finals in errors.items()
        for seed, error in enumerate(finals)
    ]


def test_a_verdict_is_given_only_where_the_interval_allows() -> None:
    rows = rows_of({"2": [0.5, 0.51], "3": [0.3, 0.31], "4": [0.1, 0.11], "e": [0.2, 0.42]})
    (found,) = differences(rows)
    assert str(found["3 minus 2"]).endswith("(better)")
    assert str(found["3 minus 4"]).endswith("(worse)")
    assert str(found["3 minus e"]).endswith("(undecided)")


def test_one_seed_gives_no_verdict() -> None:
    (found,) = differences(rows_of({"2": [0.5], "3": [0.3]}))
    assert found["3 minus 2"] is None


def test_every_group_gets_a_panel_with_a_line_for_each_degree() -> None:
    rows = rows_of({"2": [0.5, 0.51], "3": [0.3, 0.31]})
    others: list[Row] = [{**row, "group": "h"} for row in rows]
    figure = draw_curves([*rows, *others])
    axes = figure.axes  # type: ignore[attr-defined]
    assert [panel.get_title() for panel in axes] == ["g", "h"]
    assert [len(panel.lines) for panel in axes] == [2, 2]
    assert list(axes[0].lines[0].get_ydata()) == [1.0, pytest.approx(0.505)]
