import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.auditing.law import LEVINE
from rankscope.experiments.depth_width import crossing, crossing_rows
from rankscope.experiments.experiment import Row


@settings(deadline=None)
@given(at=st.floats(1.1, 8.9), slope=st.floats(0.01, 2.0))
def test_two_lines_over_the_logarithm_cross_where_they_meet(at: float, slope: float) -> None:
    sizes = [math.exp(place) for place in (1, 3, 5, 7, 9)]
    shallow = {size: 1.0 - 0.1 * math.log(size) for size in sizes}
    deep = {size: loss - slope * (math.log(size) - at) for size, loss in shallow.items()}
    found = crossing(shallow, deep)
    assert found is not None
    assert math.log(found) == pytest.approx(at)


def test_sizes_need_not_be_the_same() -> None:
    shallow = {math.e: 1.0, math.e**5: 1.0}
    deep = {math.e**2: 2.0, math.e**4: 0.0}
    found = crossing(shallow, deep)
    assert found == pytest.approx(math.e**3)


def test_without_a_change_of_places_there_is_no_crossing() -> None:
    low, high = {1.0: 0.5, 10.0: 0.4}, {1.0: 0.9, 10.0: 0.8}
    assert crossing(low, high) is None
    assert crossing(high, low) is None


def test_a_crossing_back_does_not_count() -> None:
    assert crossing({1.0: 1.0, 2.0: 1.0, 3.0: 1.0}, {1.0: 2.0, 2.0: 0.0, 3.0: 2.0}) is None


def test_rows_say_what_means_seeds_and_law_say() -> None:
    def row(depth: int, size: int, loss: float, seed: int) -> Row:
        return {"depth": depth, "in blocks": size, "test loss": loss, "seed": seed, "setting": "x"}

    rows = [
        *(row(1, size, 1.0, seed) for size in (10, 1000) for seed in (0, 1)),
        *(row(2, 10, 1.5, seed) for seed in (0, 1)),
        row(2, 1000, 0.5, 0),
        row(2, 1000, 1.1, 1),  # this seed has no crossing
    ]
    (found,) = crossing_rows([*rows, {"depth": 2, "setting": "exact", "seed": None}])
    assert found["depths"] == "1 and 2"
    # Means: 0.5 above at 10, 0.2 below at 1000.
    assert found["deeper is better from"] == pytest.approx(10 * 100 ** (5 / 7))
    assert found["of seeds, lowest"] == found["of seeds, highest"] == pytest.approx(100)
    assert found["seeds with a crossing"] == "1 of 2"
    assert found["deeper better at smallest size"] == "no"
    assert found["deeper better at largest size"] == "yes"
    assert found["law, border of the shallower"] == LEVINE.parameters(1)
