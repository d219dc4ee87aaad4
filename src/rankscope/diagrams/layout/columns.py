"""Columns: whole numbers first, so that rows line up, then widths that fit every row."""

import math
from collections.abc import Sequence

# What it costs to leave a column empty, and to stand outside the columns of other rows.
STRETCH, OUTSIDE = 0.25, 0.2
CLOSEST = 0.6  # neighbouring columns that no row shares are at least this far apart

Want = tuple[int, float]  # a column, and how much it matters


def align(
    wants: Sequence[Sequence[Want]], taken: tuple[int, int] | None
) -> tuple[float, tuple[int, ...]]:
    """Increasing columns for a row, as near as can be to what each place wants; and the cost.

    Example:
        >>> align([[], [], [(3, 1.0)]], (0, 3))[1]
        (1, 2, 3)
    """
    count = len(wants)
    if taken is None or count == 0:
        return 0.0, tuple(range(count))
    low, high = taken[0] - count, taken[1] + count
    columns = range(low, high + 1)
    # cost[c]: cheapest way to put the places so far, the last of them on column c.
    cost = [0.0] * len(columns)
    choices: list[list[int]] = []
    for place, wanted in enumerate(wants):
        before, chosen = _cheapest_before(cost, is_first=place == 0)
        choices.append(chosen)
        cost = [
            arrived + _dislike(column, wanted, taken)
            for arrived, column in zip(before, columns, strict=True)
        ]
    last = min(range(len(columns)), key=lambda place: cost[place])
    found = [last]
    for chosen in reversed(choices[1:]):
        found.append(chosen[found[-1]])
    return cost[last], tuple(columns[place] for place in reversed(found))


def _cheapest_before(cost: list[float], *, is_first: bool) -> tuple[list[float], list[int]]:
    """For every column, the best column to its left and what that comes to."""
    if is_first:
        return cost, [-1] * len(cost)
    arrived, chosen = [math.inf], [-1]
    for place in range(1, len(cost)):
        stay, step = arrived[-1] + STRETCH, cost[place - 1]
        arrived.append(min(stay, step))
        chosen.append(place - 1 if step <= stay else chosen[-1])
    return arrived, chosen


def _dislike(column: int, wanted: Sequence[Want], taken: tuple[int, int]) -> float:
    outside = max(taken[0] - column, column - taken[1], 0)
    return OUTSIDE * outside + sum(weight * abs(column - want) for want, weight in wanted)


def solve(rows: Sequence[tuple[Sequence[int], Sequence[float]]]) -> dict[int, float]:
    """Positions of columns such that neighbours in every row are as far apart as they need.

    Args:
        rows: for each row its columns, and the distance wanted between each and the next.

    Example:
        >>> solve([((0, 1, 2), (1.0, 1.0)), ((0, 2), (3.0,))])
        {0: 0.0, 1: 1.0, 2: 3.0}
    """
    needs: dict[int, list[tuple[int, float]]] = {}
    for columns, distances in rows:
        for column in columns:
            needs.setdefault(column, [])
        for before, column, distance in zip(columns, columns[1:], distances, strict=False):
            needs[column].append((before, distance))
    at: dict[int, float] = {}
    for column in sorted(needs):
        nearest = [max(at.values()) + CLOSEST] if at else [0.0]
        at[column] = max([*nearest, *(at[before] + need for before, need in needs[column])])
    return at
