import math

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import spearmanr

from rankscope.errors import ExperimentError
from rankscope.experiments.table import partial_correlation

columns = st.integers(0, 2**32 - 1).map(
    lambda seed: numpy.random.default_rng(seed).normal(size=(3, 12))
)


@settings(deadline=None)
@given(columns)
def test_without_controls_it_is_spearmans(values: numpy.ndarray) -> None:
    found = partial_correlation(values[0].tolist(), values[1].tolist(), [])
    assert found.value == pytest.approx(spearmanr(values[0], values[1]).statistic)
    assert found.low <= found.value <= found.high


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
    found = partial_correlation(one, two, [three])
    assert found.value == pytest.approx(wanted)
    # Fisher's interval is even around the value on his scale, and 12 - 1 - 3 points are free.
    assert math.atanh(found.high) - math.atanh(found.value) == pytest.approx(1.959964 / 8**0.5)


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
