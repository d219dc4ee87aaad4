"""Budgets: refused before anything is allocated, with what fits."""

import time

import pytest

from rankscope.budget import Deadline, readable_seconds, require_within
from rankscope.errors import BudgetError


def test_a_quantity_above_its_limit_is_refused_with_what_fits() -> None:
    require_within("somebody", "--many", 10, 10)
    with pytest.raises(BudgetError, match="somebody: --many may be at most 10, got 11"):
        require_within("somebody", "--many", 11, 10)
    with pytest.raises(BudgetError, match=r"at most 1,000, got about 10\^400"):
        require_within("somebody", "--many", 10**400, 1000)


def test_a_deadline_stops_work_and_refuses_long_estimates() -> None:
    never = Deadline(None)
    never.require("Work")
    never.require_estimate("Work", 1e9)
    spent = Deadline(1.5, time.monotonic() - 2)
    with pytest.raises(BudgetError, match=r"Work was not finished within 1\.5 seconds"):
        spent.require("Work")
    with pytest.raises(BudgetError, match=r"estimated to take 6 days, more than the 1\.5 s"):
        spent.require_estimate("Work", 6 * 86_400)
    for seconds in (0, -1.0, float("nan")):
        with pytest.raises(BudgetError, match="must be a positive number"):
            Deadline(seconds)


def test_durations_have_the_unit_that_fits() -> None:
    assert readable_seconds(0.031) == "0.031 s"
    assert readable_seconds(7_200) == "120 min"
    assert readable_seconds(86_400) == "24 h"
