"""One choice of each list under two budgets at once, such as parameters and latency.

The integer program of `solver` with a second row. With two rows the bound of one price drops too
little, so that the program is solved as it is, up to a thousandth of the score; the result says how
far from the best it may be.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rankscope.compression.greedy import Option
from rankscope.compression.solver import Choice, CostRow, choose, solve_rows

RELATIVE_GAP = 1e-3


@dataclass(frozen=True)
class SecondBudget:
    """What each option costs in a second unit, list by list, and how much of it is allowed."""

    costs: Sequence[Sequence[int]]
    limit: int

    def total(self, picks: Sequence[int]) -> int:
        """Of one pick in each list."""
        return sum(costs[n] for costs, n in zip(self.costs, picks, strict=True))


def choose_within_both(
    lists: Sequence[Sequence[Option]],
    budget: int,
    second: SecondBudget,
    *,
    max_seconds: float = 30.0,
) -> Choice | None:
    """The best picks found within both budgets; None if there are none, or time was up.

    Example:
        >>> lists = [[Option(1, 9.0), Option(3, 2.0), Option(4, 0.0)]]
        >>> choose_within_both(lists, 4, SecondBudget([[1, 2, 9]], 5)).picks
        (1,)
    """
    free = choose(lists, budget, max_seconds=max_seconds)
    if free is None or second.total(free.picks) <= second.limit:
        return free
    rows = [
        CostRow([option.cost for options in lists for option in options], budget),
        CostRow([cost for costs in second.costs for cost in costs], second.limit),
    ]
    picks, bound = solve_rows(lists, rows, max_seconds=max_seconds, relative_gap=RELATIVE_GAP)
    if picks is None:
        return None
    chosen = [options[n] for options, n in zip(lists, picks, strict=True)]
    score = math.fsum(option.score for option in chosen)
    gap = score - max(free.score - free.gap, bound)
    slack = 1e-9 * max(option.score for options in lists for option in options)
    cost = sum(option.cost for option in chosen)
    return Choice(tuple(picks), cost, score, 0.0 if gap <= slack else gap)
