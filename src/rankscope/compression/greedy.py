"""One choice of each list under one budget, by the best gain for its price.

Each list is reduced to the lower convex hull of its (cost, score) points. All start at their
cheapest; then, of all steps to the next point on a hull that still fit, the one that lowers the
score most for its cost is taken. The relaxed problem is solved exactly so, up to its last step.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import pairwise


@dataclass(frozen=True)
class Option:
    """What a choice costs, in whole units of the budget, and how bad it is."""

    cost: int
    score: float


def undominated(options: Sequence[Option]) -> list[int]:
    """Positions of the options that no other one beats in both, cheapest first.

    Example:
        >>> undominated([Option(3, 0.0), Option(1, 5.0), Option(2, 6.0), Option(2, 4.0)])
        [1, 3, 0]
    """
    kept: list[int] = []
    for position in sorted(range(len(options)), key=lambda n: (options[n].cost, options[n].score)):
        if not kept or options[position].score < options[kept[-1]].score:
            kept.append(position)
    return kept


def lower_hull(options: Sequence[Option]) -> list[int]:
    """Positions of the options on the lower convex hull, from the cheapest to the best.

    Example:
        >>> lower_hull([Option(0, 10.0), Option(1, 9.0), Option(2, 2.0), Option(4, 0.0)])
        [0, 2, 3]
    """
    hull: list[int] = []
    for position in undominated(options):
        while len(hull) > 1 and _gain(options, hull[-2], hull[-1]) <= _gain(
            options, hull[-1], position
        ):
            hull.pop()
        hull.append(position)
    return hull


def choose_greedily(lists: Sequence[Sequence[Option]], budget: int) -> list[int]:
    """The position picked in each list; the cheapest of all must fit the budget."""
    hulls = [lower_hull(options) for options in lists]
    steps = [0] * len(hulls)
    left = budget - sum(options[hull[0]].cost for options, hull in zip(lists, hulls, strict=True))
    waiting = [
        (-_gain(lists[which], hull[0], hull[1]), which)
        for which, hull in enumerate(hulls)
        if len(hull) > 1
    ]
    heapify(waiting)
    while waiting:
        _, which = heappop(waiting)
        options, hull, step = lists[which], hulls[which], steps[which]
        price = options[hull[step + 1]].cost - options[hull[step]].cost
        if price > left:
            continue  # dearer steps of this list will not fit either
        left -= price
        steps[which] += 1
        if step + 2 < len(hull):
            heappush(waiting, (-_gain(options, hull[step + 1], hull[step + 2]), which))
    return [hull[step] for hull, step in zip(hulls, steps, strict=True)]


def relaxed_price(lists: Sequence[Sequence[Option]], budget: int) -> float:
    """What one unit of the budget is worth where the relaxed problem ends; 0 if it has room left.

    Example:
        >>> relaxed_price([[Option(0, 6.0), Option(2, 0.0)], [Option(0, 2.0), Option(1, 0.0)]], 1)
        3.0
    """
    left, steps = budget, []
    for options in lists:
        hull = lower_hull(options)
        left -= options[hull[0]].cost
        for cheap, good in pairwise(hull):
            price = options[good].cost - options[cheap].cost
            steps.append((_gain(options, cheap, good), price))
    for gain, price in sorted(steps, reverse=True):
        left -= price
        if left < 0:
            return gain
    return 0.0


def _gain(options: Sequence[Option], cheap: int, good: int) -> float:
    return (options[cheap].score - options[good].score) / (options[good].cost - options[cheap].cost)
