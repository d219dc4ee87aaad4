"""Tables of settings."""

import math
import statistics

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.experiments.experiment import Row, Value
from rankscope.experiments.table import Interval, table_of


def row(setting: str, seed: int | None, **cells: Value) -> Row:
    return {"entry": f"{setting}-{seed}", "setting": setting, "seed": seed, **cells}


def test_seeds_become_means_and_what_they_agree_on_stays() -> None:
    table = table_of(
        "Widths",
        [
            row("narrow", 0, parameters=1200, accuracy=90.0, curve=[1.0, 0.5], note="a"),
            row("narrow", 1, parameters=1200, accuracy=92.0, curve=[1.0, 0.4], note="b"),
            row("wide", None, parameters=5000, accuracy=95.0, note="a"),
        ],
    )
    # Student's t with one degree of freedom: tan(0.475 pi) = 12.7062; the standard error is 1.
    assert table.cells() == [
        ["narrow", "2", "1,200", "91 ± 13", "a, b"],
        ["wide", "-", "5,000", "95", "a"],
    ]
    assert table.columns == ("setting", "seeds", "parameters", "accuracy", "note")
    assert table.numeric_columns() == (1, 2, 3)


def test_seeds_without_a_value_are_counted() -> None:
    table = table_of(
        "Epochs", [row("one", seed, epochs=epochs) for seed, epochs in enumerate([3, None, 5])]
    )
    assert table.cells() == [["one", "3", "4 ± 13 (2 of 3)"]]
    single = table_of("Epochs", [row("one", 0, epochs=3), row("one", 1, epochs=None)])
    assert single.cells() == [["one", "2", "3, -"]]


def test_without_seeds_rows_are_lines() -> None:
    table = table_of("Lines", [row("one", None, size=1.0), row("two", None, size=None)])
    assert table.columns == ("entry", "size")
    assert table.cells() == [["one-None", "1"], ["two-None", "-"]]


@settings(deadline=None, max_examples=5)
@given(count=st.integers(2, 6), seed=st.integers(0, 2**16))
def test_the_interval_holds_the_mean_of_normal_draws_19_times_in_20(count: int, seed: int) -> None:
    draws = np.random.default_rng(seed).normal(3.0, 2.0, (800, count))
    intervals = [Interval.of(values.tolist(), seeds=count) for values in draws]
    held = statistics.fmean(abs(one.mean - 3.0) <= one.half_width for one in intervals)
    # Five standard deviations of a share of 800.
    assert held == pytest.approx(0.95, abs=5 * math.sqrt(0.95 * 0.05 / 800))
