from itertools import combinations, pairwise

from hypothesis import example, given, settings
from hypothesis import strategies as st

from rankscope.drawing.layout.rows import CLOSEST, OUTSIDE, STRETCH, Want, align, solve

WANTS = st.lists(
    st.lists(st.tuples(st.integers(0, 4), st.sampled_from((0.25, 1.0))), max_size=2),
    min_size=1,
    max_size=4,
)


def cost(columns: tuple[int, ...], wants: list[list[Want]], taken: tuple[int, int]) -> float:
    """What `align` minimizes, term by term."""
    gaps = sum(b - a - 1 for a, b in pairwise(columns))
    outside = sum(max(taken[0] - c, c - taken[1], 0) for c in columns)
    pulls = sum(
        weight * abs(column - want)
        for column, wanted in zip(columns, wants, strict=True)
        for want, weight in wanted
    )
    return STRETCH * gaps + OUTSIDE * outside + pulls


@settings(deadline=None, max_examples=60)
@given(WANTS)
@example([[(0, 1.0)], [(4, 1.0)]])
@example([[(4, 1.0)], [(0, 1.0)], []])
def test_no_other_choice_of_columns_is_cheaper(wants: list[list[Want]]) -> None:
    taken = (0, 4)
    found_cost, found = align(wants, taken)
    assert list(found) == sorted(set(found))
    everything = range(taken[0] - len(wants), taken[1] + len(wants) + 1)
    best = min(cost(columns, wants, taken) for columns in combinations(everything, len(wants)))
    assert abs(cost(found, wants, taken) - best) < 1e-9
    assert abs(found_cost - best) < 1e-9


def test_the_first_row_takes_columns_from_the_left() -> None:
    assert align([[], []], None) == (0.0, (0, 1))
    assert align([], (0, 3)) == (0.0, ())


ROWS = st.lists(
    st.lists(st.integers(0, 6), min_size=1, max_size=4, unique=True)
    .map(sorted)
    .flatmap(
        lambda columns: st.tuples(
            st.just(columns),
            st.lists(st.floats(0.1, 3.0), min_size=len(columns) - 1, max_size=len(columns) - 1),
        )
    ),
    min_size=1,
    max_size=3,
)


@settings(deadline=None, max_examples=60)
@given(ROWS)
def test_columns_are_far_enough_apart_and_no_farther(
    rows: list[tuple[list[int], list[float]]],
) -> None:
    at = solve(rows)
    tight = {min(at)}
    for columns, distances in rows:
        for before, column, distance in zip(columns, columns[1:], distances, strict=False):
            assert at[column] - at[before] >= distance - 1e-9
            if abs(at[column] - at[before] - distance) < 1e-9:
                tight.add(column)
    ordered = sorted(at)
    for before, column in pairwise(ordered):
        assert at[column] - at[before] >= CLOSEST - 1e-9
        if abs(at[column] - at[before] - CLOSEST) < 1e-9:
            tight.add(column)
    assert tight == set(at), "every column is held back by something"
