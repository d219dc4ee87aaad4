import math
import statistics

import numpy
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import spearmanr

from rankscope.errors import ExperimentError
from rankscope.lab.experiments import (
    Interval,
    Row,
    Value,
    in_digits,
    partial_correlation,
    table_of,
)

# Tables of settings.


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


@given(value=st.floats(1e-12, 1e15) | st.integers(1, 10**10).map(float), digits=st.integers(2, 5))
def test_numbers_are_rounded_to_digits_and_read_without_exponents(
    value: float, digits: int
) -> None:
    text = in_digits(value, digits)
    assert in_digits(-value, digits) == f"-{text}"
    assert float(text.replace(",", "")) == pytest.approx(value, rel=0.5 * 10.0 ** (1 - digits))
    if 100 <= value < 9e8:
        assert "e" not in text
        assert text == f"{float(text.replace(',', '')):,}".removesuffix(".0")


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


def test_readers_are_shown_chosen_columns_and_no_second_name_of_a_baseline() -> None:
    table = table_of("Losses", [row("a", 0, baseline="a", loss=1.0, width=2), row("b", 1, loss=3)])
    assert table.narrowed(("width", "bits", "loss")).columns == (
        "setting", "seeds", "width", "loss",
    )  # fmt: skip
    assert table.narrowed(("width",)).cells() == [["a", "1", "2"], ["b", "1", "-"]]
    assert table.narrowed(()).columns == ("setting", "seeds", "loss", "width")


@settings(deadline=None, max_examples=5)
@given(count=st.integers(2, 6), seed=st.integers(0, 2**16))
def test_the_interval_holds_the_mean_of_normal_draws_19_times_in_20(count: int, seed: int) -> None:
    draws = np.random.default_rng(seed).normal(3.0, 2.0, (800, count))
    intervals = [Interval.of(values.tolist(), seeds=count) for values in draws]
    held = statistics.fmean(abs(one.mean - 3.0) <= one.half_width for one in intervals)
    # Five standard deviations of a share of 800.
    assert held == pytest.approx(0.95, abs=5 * math.sqrt(0.95 * 0.05 / 800))


# Partial correlation.


columns = st.integers(0, 2**32 - 1).map(
    lambda seed: numpy.random.default_rng(seed).normal(size=(3, 12))
)


@settings(deadline=None)
@given(columns)
def test_without_controls_it_is_spearmans(values: numpy.ndarray) -> None:
    result = partial_correlation(values[0].tolist(), values[1].tolist(), [])
    assert result.value == pytest.approx(spearmanr(values[0], values[1]).statistic)
    assert result.low <= result.value <= result.high


@settings(deadline=None)
@given(columns)
def test_with_one_control_it_is_the_textbook_formula(values: numpy.ndarray) -> None:
    """(r12 - r13 r23) / sqrt((1 - r13^2) (1 - r23^2))."""
    one, two, three = (column.tolist() for column in values)
    r12, r13, r23 = (
        float(spearmanr(first, second).statistic)
        for first, second in ((one, two), (one, three), (two, three))
    )
    wanted = (r12 - r13 * r23) / math.sqrt((1 - r13**2) * (1 - r23**2))
    result = partial_correlation(one, two, [three])
    assert result.value == pytest.approx(wanted)
    # Fisher's interval is even around the value on his scale, and 12 - 1 - 3 points are free.
    assert math.atanh(result.high) - math.atanh(result.value) == pytest.approx(1.959964 / 8**0.5)


def test_what_a_control_explains_goes_with_nothing() -> None:
    column = [1.0, 5.0, 2.0, 8.0, 3.0, 9.0]
    other = [3.0, 1.0, 2.0, 5.0, 4.0, 6.0]
    assert partial_correlation(column, other, [column]).value == 0
    assert "6 points" in str(partial_correlation(column, other, []))


def test_too_few_points_and_uneven_columns_are_refused() -> None:
    with pytest.raises(ExperimentError, match="1 controls need at least 5 points, got 4"):
        partial_correlation([1.0, 2.0, 3.0, 4.0], [4.0, 3.0, 1.0, 2.0], [[1.0, 2.0, 2.0, 1.0]])
    with pytest.raises(ExperimentError, match=r"one length, got \[1, 2\]"):
        partial_correlation([1.0, 2.0], [1.0], [])
