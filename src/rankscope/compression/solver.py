"""One choice of each list under one budget, at the least total score: an integer program.

One binary variable for each option, one equation for each list (exactly one is picked), one row
for the budget, solved by HiGHS after options that cannot belong to the best choice are dropped (by
the bound of the relaxed problem). The greedy choice is kept as a check: it is returned if the time
ends before anything better was found, and the result says how far from optimal it may be.
"""

import ctypes
import math
import os
import sys
import tempfile
import time
from bisect import bisect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_array

# --- One choice of each list under one budget, by the best gain for its price ---------------------


@dataclass(frozen=True)
class Option:
    """What a choice costs, in whole units of the budget, and how bad it is."""

    cost: int
    score: float


def pareto_front(options: Sequence[Option]) -> list[int]:
    """Positions of the options that no other one beats in both, cheapest first.

    Example:
        >>> pareto_front([Option(3, 0.0), Option(1, 5.0), Option(2, 6.0), Option(2, 4.0)])
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
    for position in pareto_front(options):
        while len(hull) > 1 and _gain(options, hull[-2], hull[-1]) <= _gain(
            options, hull[-1], position
        ):
            hull.pop()
        hull.append(position)
    return hull


class GreedyLadder:
    """Greedy choices for any budget: the order of all steps is computed once.

    From the cheapest options on, the step with the best gain for its price is taken as long as it
    fits; steps of one list come in their order, since they lie on its convex hull.

    Example:
        >>> lists = [[Option(0, 6.0), Option(2, 0.0)], [Option(0, 2.0), Option(1, 0.0)]]
        >>> ladder = GreedyLadder(lists)
        >>> ladder.cheapest, ladder.picks(1), ladder.picks(2), ladder.lower_bound(1)
        (0, [0, 1], [1, 0], 5.0)
    """

    def __init__(self, lists: Sequence[Sequence[Option]]) -> None:
        self._lists = lists
        self._hulls = [lower_hull(options) for options in lists]
        first = [options[hull[0]] for options, hull in zip(lists, self._hulls, strict=True)]
        self.cheapest = sum(option.cost for option in first)
        worst = math.fsum(option.score for option in first)
        steps = [
            (_gain(options, cheap, good), which, options[good].cost - options[cheap].cost)
            for which, (options, hull) in enumerate(zip(lists, self._hulls, strict=True))
            for cheap, good in pairwise(hull)
        ]
        steps.sort(key=lambda step: (-step[0], step[1]))
        self._gains = [gain for gain, _, _ in steps]
        self._owners = np.array([which for _, which, _ in steps], dtype=np.int64)
        self._prices = [price for _, _, price in steps]
        # Whole numbers of any size: costs in the smallest units may not fit into 64 bits.
        self._spent = list(accumulate(self._prices, initial=0))
        gained = [-gain * price for gain, _, price in steps]
        self._scores = list(accumulate(gained, initial=worst))

    def picks(self, budget: int) -> list[int]:
        """The position picked in each list; the budget must hold the cheapest of all."""
        left = budget - self.cheapest
        taken = bisect(self._spent, left) - 1
        counts = np.bincount(self._owners[:taken], minlength=len(self._lists)).tolist()
        left -= self._spent[taken]
        full: set[int] = set()
        for which, price in zip(self._owners[taken:].tolist(), self._prices[taken:], strict=True):
            if which in full:
                continue
            if price > left:
                full.add(which)  # dearer steps of this list will not fit either
                continue
            left -= price
            counts[which] += 1
        return [hull[count] for hull, count in zip(self._hulls, counts, strict=True)]

    def lower_bound(self, budget: int) -> float:
        """No choice within the budget has a smaller total score: that of the relaxed problem."""
        left = budget - self.cheapest
        taken = bisect(self._spent, left) - 1
        return self._scores[taken] - self.price(budget) * (left - self._spent[taken])

    def price(self, budget: int) -> float:
        """What one unit of the budget is worth where the relaxed problem ends; 0 if some is left.

        Example:
            >>> lists = [[Option(0, 6.0), Option(2, 0.0)], [Option(0, 2.0), Option(1, 0.0)]]
            >>> GreedyLadder(lists).price(1), GreedyLadder(lists).price(3)
            (3.0, 0.0)
        """
        taken = bisect(self._spent, budget - self.cheapest) - 1
        return self._gains[taken] if taken < len(self._gains) else 0.0


def _gain(options: Sequence[Option], cheap: int, good: int) -> float:
    return (options[cheap].score - options[good].score) / (options[good].cost - options[cheap].cost)


# --- Keep a solver's stray lines out of standard output, where JSON may be printed ----------------


STRAY = b"HighsMipSolverData::"
STANDARD_OUTPUT = 1


@contextmanager
def without_stray_lines() -> Iterator[None]:
    """Lines of HiGHS written within are dropped; all others come out at the end."""
    if os.name != "posix" or not _is_open(STANDARD_OUTPUT):
        yield  # elsewhere C's buffer, which must be emptied in time, cannot be reached
        return
    _empty_buffers()
    kept = os.dup(STANDARD_OUTPUT)
    with tempfile.TemporaryFile() as aside:
        os.dup2(aside.fileno(), STANDARD_OUTPUT)
        try:
            yield
        finally:
            _empty_buffers()
            os.dup2(kept, STANDARD_OUTPUT)
            os.close(kept)
            aside.seek(0)
            for line in aside:
                if not line.startswith(STRAY):
                    os.write(STANDARD_OUTPUT, line)


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


def _empty_buffers() -> None:
    if sys.stdout is not None:
        sys.stdout.flush()
    ctypes.pythonapi.fflush(None)


# HiGHS also stops at an absolute gap of 1e-6, and scipy cannot change it: scores are scaled up.
LARGEST_SCORE = 1e5
MAX_CORRECTIONS = 20


@dataclass(frozen=True)
class Choice:
    """The solver's picks, with a bound on how far from optimal they may be.

    Args:
        picks: a position in each list.
        cost: of all picks together.
        score: of all picks together.
        gap: no choice has a score below `score - gap`; 0 if it was proved to be the best.
    """

    picks: tuple[int, ...]
    cost: int
    score: float
    gap: float

    @property
    def is_proved(self) -> bool:
        """Whether no choice within the budget has a lower score (to 1e-9 of the largest)."""
        return self.gap == 0


def choose(
    lists: Sequence[Sequence[Option]], budget: int, *, max_seconds: float = 30.0
) -> Choice | None:
    """The picks of least total score within the budget; None if not even the cheapest fit.

    Example:
        >>> lists = [[Option(1, 9.0), Option(5, 0.0)], [Option(1, 4.0), Option(2, 1.0)]]
        >>> choose(lists, 6).picks
        (1, 0)
        >>> choose(lists, 1) is None
        True
    """
    if sum(min(option.cost for option in options) for options in lists) > budget:
        return None
    if not lists:
        return Choice((), 0, 0.0, 0.0)
    ladder = GreedyLadder(lists)
    greedy = ladder.picks(budget)
    bound, kept = _core(lists, budget, ladder.price(budget), _total(lists, greedy)[1])
    reduced = [
        [options[n] for n in positions] for options, positions in zip(lists, kept, strict=True)
    ]
    solved, proved = _solve(reduced, budget, max_seconds)
    candidates = [greedy]
    if solved is not None:
        candidates.append([positions[n] for positions, n in zip(kept, solved, strict=True)])
    picks = min(candidates, key=lambda picks: _total(lists, picks)[1])
    cost, score = _total(lists, picks)
    slack = 1e-9 * max(option.score for options in lists for option in options)
    gap = score - max(bound, min(proved, score))
    return Choice(tuple(picks), cost, score, 0.0 if gap <= slack else gap)


def _core(
    lists: Sequence[Sequence[Option]], budget: int, price: float, known: float
) -> tuple[float, list[list[int]]]:
    r"""A lower bound of the best score, and the options that a better choice may still contain.

    For every price λ of a unit, each choice within the budget B has a score of at least

    .. math:: \sum_i \min_j (s_{ij} + \lambda c_{ij}) - \lambda B

    and one that contains the option ij at least as much more as ij is above its list's minimum.
    What would so end above a known score is dropped; for the best λ that is nearly everything.
    """
    priced = [[option.score + price * option.cost for option in options] for options in lists]
    bound = math.fsum(map(min, priced)) - price * budget
    # Rounding must not drop the best.
    spare = known - bound + 1e-9 * max(1.0, abs(known), price * budget)
    return bound, [
        [n for n in pareto_front(options) if values[n] - min(values) <= spare]
        for options, values in zip(lists, priced, strict=True)
    ]


def _total(lists: Sequence[Sequence[Option]], picks: Sequence[int]) -> tuple[int, float]:
    chosen = [options[n] for options, n in zip(lists, picks, strict=True)]
    return sum(option.cost for option in chosen), math.fsum(option.score for option in chosen)


def _solve(
    lists: Sequence[Sequence[Option]], budget: int, max_seconds: float
) -> tuple[list[int] | None, float]:
    """Picks within the budget (if any were found), and a lower bound of every total score."""
    costs = [option.cost for options in lists for option in options]
    return solve_rows(lists, [CostRow(costs, budget)], max_seconds=max_seconds)


@dataclass(frozen=True)
class CostRow:
    """What the options of all lists cost, one list after the other, and how much is allowed."""

    costs: Sequence[int]
    limit: int

    def excess(self, lists: Sequence[Sequence[Option]], picks: Sequence[int]) -> int:
        """How much a choice costs above the limit; not above 0 if it is within."""
        total, start = 0, 0
        for options, pick in zip(lists, picks, strict=True):
            total += self.costs[start + pick]
            start += len(options)
        return total - self.limit


def solve_rows(
    lists: Sequence[Sequence[Option]],
    rows: Sequence[CostRow],
    *,
    max_seconds: float,
    relative_gap: float = 0.0,
) -> tuple[list[int] | None, float]:
    """Picks within every row (if any were found), and a lower bound of every total score."""
    limits = [row.limit for row in rows]
    bound, end = 0.0, time.monotonic() + max_seconds
    for attempt in range(MAX_CORRECTIONS):
        tightened = [CostRow(row.costs, limit) for row, limit in zip(rows, limits, strict=True)]
        seconds = max(0.0, end - time.monotonic())
        result = _integer_program(lists, tightened, seconds, relative_gap)
        if attempt == 0:
            bound = _lower_bound(result, lists)
        if result.x is None:
            return None, bound
        picks = _read_picks(result.x, lists)
        excesses = [row.excess(lists, picks) for row in rows]
        if max(excesses) <= 0:
            return picks, bound
        # HiGHS fulfils rows up to 1e-6 of their size; costs are integers and must fit exactly.
        limits = [limit - max(0, excess) for limit, excess in zip(limits, excesses, strict=True)]
    return None, bound


def _integer_program(
    lists: Sequence[Sequence[Option]],
    rows: Sequence[CostRow],
    max_seconds: float,
    relative_gap: float,
) -> Any:
    sizes = [len(options) for options in lists]
    owners = np.repeat(np.arange(len(lists)), sizes)
    positions = np.arange(len(owners))
    one_of_each = csr_array((np.ones(len(owners)), (owners, positions)))
    scores = np.array([option.score for options in lists for option in options])
    units = [max(1, row.limit) for row in rows]
    costs = np.array(
        [np.asarray(row.costs, dtype=float) / unit for row, unit in zip(rows, units, strict=True)]
    )
    limits = [row.limit / unit for row, unit in zip(rows, units, strict=True)]
    with without_stray_lines():
        return milp(
            scores * _scale(lists),
            integrality=np.ones(len(owners)),
            bounds=Bounds(0, 1),
            constraints=[
                LinearConstraint(one_of_each, 1, 1),
                LinearConstraint(csr_array(costs), -np.inf, limits),
            ],
            options={"mip_rel_gap": relative_gap, "time_limit": max_seconds},
        )


def _scale(lists: Sequence[Sequence[Option]]) -> float:
    largest = max(option.score for options in lists for option in options)
    return LARGEST_SCORE / largest if largest > 0 else 1.0


def _lower_bound(result: Any, lists: Sequence[Sequence[Option]]) -> float:
    bound = result.mip_dual_bound
    return 0.0 if bound is None or not np.isfinite(bound) else max(0.0, bound / _scale(lists))


def _read_picks(values: Any, lists: Sequence[Sequence[Option]]) -> list[int]:
    ends = np.cumsum([len(options) for options in lists])[:-1]
    return [int(np.argmax(part)) for part in np.split(values, ends)]
