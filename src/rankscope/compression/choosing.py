"""One candidate of each weight, all chosen together: from a table, for any budget, again and again.

    solver = TableSolver(table)
    solver.solve(Budget(0.5)).plan

A quick choice takes milliseconds once the table is prepared for a unit and a restriction; an exact
one is an integer program.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from rankscope.compression.candidates import SiteCandidates
from rankscope.compression.plan import Budget, Candidate, Costs, Plan, Row, Unit
from rankscope.compression.sites import Uncompressed
from rankscope.compression.solver import Choice, CostRow, GreedyLadder, Option, choose, solve_rows
from rankscope.errors import CompressionError

# --- What a model costs in every unit, and how much of it a budget allows -------------------------


NANOSECOND = 1e-9  # seconds are counted in whole ones of these

_MEASURES: Mapping[Unit, Callable[[Costs], int]] = {
    Unit.PARAMETERS: lambda costs: costs.parameters,
    Unit.FLOPS: lambda costs: costs.flops,
    Unit.BYTES: lambda costs: costs.bytes,
    Unit.LATENCY: lambda costs: round(costs.seconds / NANOSECOND),
}
NEEDING_EXAMPLE = (Unit.FLOPS, Unit.LATENCY)


def count(costs: Costs, unit: Unit) -> int:
    """Costs in one unit, as an integer (latency in nanoseconds)."""
    return _MEASURES[unit](costs)


def check_budget(budget: Budget, *, has_example: bool) -> None:
    """Refuse a share that is none, and a unit that cannot be counted.

    Raises:
        CompressionError: if `keep` is not above 0 and at most 1, flops or latency are asked for
            without an example, or there are two budgets in one unit or more than two.
    """
    units = [str(part.unit) for part in budget.parts]
    if len(units) > 2 or len(set(units)) < len(units):
        raise CompressionError(
            f"Wanted at most 2 budgets, in different units, got {len(units)}: {', '.join(units)}."
        )
    for part in budget.parts:
        _check_part(part, has_example=has_example)


def _check_part(budget: Budget, *, has_example: bool) -> None:
    if not 0 < budget.keep <= 1:
        raise CompressionError(
            f"keep is the share of the model that stays, above 0 and at most 1, got {budget.keep}."
        )
    if budget.unit in NEEDING_EXAMPLE and not has_example:
        raise CompressionError(
            f"A budget in {budget.unit} depends on the inputs' sizes: pass example=, one batch as "
            "the model takes it (on the command line: --data, or --input with its shape)."
        )


def allowance(budget: Budget, dense: Costs) -> int:
    """The most that may be kept, in whole units.

    Example:
        >>> allowance(Budget(0.1), Costs(parameters=1009, flops=0, bytes=4036))
        100
    """
    return int(budget.keep * count(dense, budget.unit) + 1e-6)


def replace_part(total: Costs, old: Costs, new: Costs) -> Costs:
    """The total, after one part of it was replaced."""
    return replace(
        total,
        parameters=total.parameters - old.parameters + new.parameters,
        flops=total.flops - old.flops + new.flops,
        bytes=total.bytes - old.bytes + new.bytes,
        seconds=total.seconds - old.seconds + new.seconds,
    )


# --- Everything a plan is chosen from, and what the whole model costs -----------------------------


@dataclass(frozen=True, eq=False)
class CandidateTable:
    """All candidates of a model: the problem that the solver is given.

    Args:
        entries: the candidates of each site, a reason for everything else, in the model's order.
        dense: costs of the whole model.
        notes: what a reader should know.
        scoring: what errors were scored on.
    """

    entries: tuple[SiteCandidates | Uncompressed, ...]
    dense: Costs
    notes: tuple[str, ...]
    scoring: str = "weights"

    @property
    def site_candidates(self) -> tuple[SiteCandidates, ...]:
        """The candidates of each site, in the model's order."""
        return tuple(entry for entry in self.entries if isinstance(entry, SiteCandidates))


# --- One choice of each list under two budgets at once, such as parameters and latency ------------


RELATIVE_GAP = 1e-3


@dataclass(frozen=True)
class SecondBudget:
    """What each option costs in a second unit, list by list, and how much of it is allowed."""

    costs: Sequence[Sequence[int]]
    limit: int

    def total(self, picks: Sequence[int]) -> int:
        """Total cost of one pick in each list."""
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


# --- The choice from a table, again and again: for other budgets, with fewer candidates -----------


@dataclass(frozen=True)
class Restriction:
    """What a choice may not touch, and which formats it may not use."""

    pinned: Mapping[str, int] = field(default_factory=dict)  # candidates by site; 0 is dense
    forbidden: tuple[str, ...] = ()  # names of formats

    def allowed(self, options: SiteCandidates) -> list[int]:
        """Places of the candidates that a site may have.

        Raises:
            CompressionError: if it is pinned to a place that it does not have.
        """
        pin = self.pinned.get(options.site.name)
        if pin is None:
            return [
                place
                for place, candidate in enumerate(options.candidates)
                if candidate.format not in self.forbidden
            ]
        if not 0 <= pin < len(options.candidates):
            raise CompressionError(
                f"{options.site.name} has {len(options.candidates)} candidates, and is pinned to "
                f"number {pin}."
            )
        return [pin]


@dataclass(frozen=True, eq=False)
class Solved:
    """A choice from a table: the place of each site's candidate, and how good it is."""

    table: CandidateTable
    budget: Budget
    picks: tuple[int, ...]  # a place for each site of the table
    score: float  # of all choices together
    gap: float | None  # no choice has a score below `score - gap`; None if not computed
    note: str  # how it was found

    @property
    def candidates(self) -> list[Candidate]:
        """What was chosen for each site."""
        places = zip(self.table.site_candidates, self.picks, strict=True)
        return [options.candidates[place] for options, place in places]

    @property
    def kept(self) -> Costs:
        """Costs of the compressed model."""
        total = self.table.dense
        chosen = [one.costs for one in self.candidates]
        dense = [options.dense.costs for options in self.table.site_candidates]
        return Costs(
            parameters=total.parameters + _gained(dense, chosen, lambda each: each.parameters),
            flops=total.flops + _gained(dense, chosen, lambda each: each.flops),
            bytes=total.bytes + _gained(dense, chosen, lambda each: each.bytes),
            seconds=total.seconds + _gained(dense, chosen, lambda each: each.seconds),
        )

    @cached_property
    def plan(self) -> Plan:
        """The plan, with a row and a reason for everything in the model."""
        return make_plan(self.table, self.budget, self.candidates, self.note)


def _gained(dense: Sequence[Costs], chosen: Sequence[Costs], part: Callable[[Costs], Any]) -> Any:
    return sum(part(new) - part(old) for old, new in zip(dense, chosen, strict=True))


class TableSolver:
    """Choices from one table; what does not depend on the share to keep is prepared once."""

    def __init__(self, table: CandidateTable) -> None:
        self.table = table
        self._problems: dict[object, _Problem] = {}

    def solve(
        self,
        budget: Budget,
        *,
        restriction: Restriction | None = None,
        is_quick: bool = False,
        max_seconds: float = 30.0,
    ) -> Solved:
        """The best choice within a budget.

        Args:
            budget: one or two.
            restriction: fewer candidates.
            is_quick: by the best gain for its price, in milliseconds, with a bound on how far from
                the best it may be; within two budgets by the dearer of the two prices, without one.
            max_seconds: for the proof; then the best so far, with the gap that is left.

        Raises:
            CompressionError: if a budget cannot be met, or a site is pinned to what it has not.
        """
        problem = self._problem(restriction or Restriction())
        limits = [problem.limited(part) for part in budget.parts]
        for limited in limits:
            limited.check()
        choice = problem.quick(limits) if is_quick else None
        if choice is None:
            choice = problem.exact(limits, max_seconds)
        if choice is None:
            shares = " and ".join(
                f"{part.keep:g} of the {_unit_name(part.unit)}" for part in budget.parts
            )
            raise CompressionError(
                f"No choice was found that keeps {shares} at once, though each can be met by "
                "itself. Raise one of them, or allow more formats."
            )
        picks = zip(problem.allowed, choice.picks, strict=True)
        places = tuple(allowed[n] for allowed, n in picks)
        gap = choice.gap if math.isfinite(choice.gap) else None
        return Solved(self.table, budget, places, choice.score, gap, _proof(choice))

    def _problem(self, restriction: Restriction) -> "_Problem":
        key = (tuple(sorted(restriction.pinned.items())), restriction.forbidden)
        found = self._problems.pop(key, None)
        if found is None:
            sites = self.table.site_candidates
            found = _Problem(self.table, [restriction.allowed(options) for options in sites])
        self._problems[key] = found
        if len(self._problems) > MOST_PROBLEMS:
            self._problems.pop(next(iter(self._problems)))
        return found


MOST_PROBLEMS = 16  # prepared restrictions that are kept


def solve_table(table: CandidateTable, budget: Budget) -> Solved:
    """The best choice from a table within a budget; see `TableSolver.solve`."""
    return TableSolver(table).solve(budget)


PRICE_UNITS = 2**40


class _Problem:
    """The candidates that a restriction allows, as lists of options in each unit."""

    def __init__(self, table: CandidateTable, allowed: list[list[int]]) -> None:
        self.allowed = allowed
        self._table = table
        self._scores = [
            [options.candidates[n].score for n in places]
            for options, places in zip(table.site_candidates, allowed, strict=True)
        ]
        self._costs: dict[Unit, list[list[int]]] = {}
        self._ladders: dict[Unit, GreedyLadder] = {}

    def limited(self, budget: Budget) -> "_Limited":
        table, unit = self._table, budget.unit
        if unit not in self._costs:
            self._costs[unit] = [
                [count(options.candidates[n].costs, unit) for n in places]
                for options, places in zip(table.site_candidates, self.allowed, strict=True)
            ]
        dense = sum(count(options.dense.costs, unit) for options in table.site_candidates)
        total = count(table.dense, unit)
        allowed = allowance(budget, table.dense)
        return _Limited(budget, self._costs[unit], total - dense, total, allowed)

    def quick(self, limits: "Sequence[_Limited]") -> Choice | None:
        """Greedy; under several budgets an option costs its largest share of any. None if none."""
        if len(limits) == 1:
            unit = limits[0].budget.unit
            if unit not in self._ladders:
                self._ladders[unit] = GreedyLadder(self._options(limits[0].costs))
            ladder, budget = self._ladders[unit], limits[0].limit
            return self._made(ladder.picks(budget), limits[0], ladder.lower_bound(budget))
        priced = [
            [
                max(
                    math.ceil(PRICE_UNITS * limit.costs[which][n] / max(1, limit.limit))
                    for limit in limits
                )
                for n in range(len(costs))
            ]
            for which, costs in enumerate(limits[0].costs)
        ]
        ladder = GreedyLadder(self._options(priced))
        if ladder.cheapest > PRICE_UNITS:
            return None
        return self._made(ladder.picks(PRICE_UNITS), limits[0], -math.inf)

    def exact(self, limits: "Sequence[_Limited]", max_seconds: float) -> Choice | None:
        first, *others = limits
        lists = self._options(first.costs)
        if not others:
            return choose(lists, first.limit, max_seconds=max_seconds)
        second = SecondBudget(others[0].costs, others[0].limit)
        return choose_within_both(lists, first.limit, second, max_seconds=max_seconds)

    def _options(self, costs: list[list[int]]) -> list[list[Option]]:
        return [
            [Option(cost, score) for cost, score in zip(own, scores, strict=True)]
            for own, scores in zip(costs, self._scores, strict=True)
        ]

    def _made(self, picks: Sequence[int], limited: "_Limited", bound: float) -> Choice:
        cost = sum(costs[n] for costs, n in zip(limited.costs, picks, strict=True))
        score = math.fsum(own[n] for own, n in zip(self._scores, picks, strict=True))
        slack = 1e-9 * max((max(own) for own in self._scores), default=0.0)
        gap = score - bound
        return Choice(tuple(picks), cost, score, 0.0 if gap <= slack else gap)


@dataclass(frozen=True)
class _Limited:
    """What the candidates cost in the unit of a budget, and what is left for them."""

    budget: Budget
    costs: list[list[int]]
    fixed: int  # what belongs to no candidate
    total: int
    allowed: int

    @property
    def limit(self) -> int:
        return self.allowed - self.fixed

    def check(self) -> None:
        smallest = self.fixed + sum(map(min, self.costs))
        if smallest <= self.allowed:
            return
        share = math.ceil(1e4 * smallest / self.total) / 1e4
        raise CompressionError(
            f"keep={self.budget.keep:g} allows {self.allowed:,} of {self.total:,} "
            f"{_unit_name(self.budget.unit)}, but the smallest that can be reached is {smallest:,} "
            f"(keep={share:g}): {self.fixed:,} belong to what is left alone. Raise keep, or allow "
            "more formats or fewer bits."
        )


def _unit_name(unit: Unit) -> str:
    return "nanoseconds" if unit is Unit.LATENCY else str(unit)


def _proof(choice: Choice) -> str:
    if choice.is_proved:
        return "No other choice from these candidates has a smaller total score (integer program)."
    if math.isinf(choice.gap):
        return "Chosen by gain for its price, not proved to be best."
    return (
        f"The best that was found: the total score {choice.score:.4g} may be up to "
        f"{choice.gap:.2g} above the smallest possible."
    )


def make_plan(
    table: CandidateTable,
    budget: Budget,
    picks: Sequence[Candidate],
    note: str,
) -> Plan:
    """A row with its reason for everything in the model."""
    kept, waiting = table.dense, iter(picks)
    rows = []
    for entry in table.entries:
        if isinstance(entry, Uncompressed):
            rows.append(_left_row(entry))
            continue
        pick = next(waiting)
        kept = replace_part(kept, entry.dense.costs, pick.costs)
        rows.append(_row(entry, pick))
    return Plan(
        rows=tuple(rows),
        budget=budget,
        dense=table.dense,
        kept=kept,
        scoring=table.scoring,
        notes=(*table.notes, note),
    )


def _left_row(entry: Uncompressed) -> Row:
    return Row(
        name=entry.name,
        kind=entry.kind,
        shape=entry.shape,
        format=None,
        ranks=(),
        bits=entry.bits,
        dense=entry.num_parameters,
        kept=entry.num_parameters,
        error=0.0,
        reason=entry.reason,
    )


def _row(options: SiteCandidates, pick: Candidate) -> Row:
    site = options.site
    return Row(
        name=site.name,
        kind=site.kind,
        shape=site.stored_shape,
        format=pick.format,
        ranks=pick.ranks,
        bits=pick.bits,
        dense=site.num_parameters,
        kept=pick.costs.parameters,
        error=pick.error,
        reason=_reason(options, pick),
    )


def _reason(options: SiteCandidates, pick: Candidate) -> str:
    if len(options.candidates) == 1:
        return f"no way to gain ({'; '.join(options.refusals)})"
    if pick.format is None:
        return "dense: what it would save costs less elsewhere"
    formats = dict.fromkeys(c.format for c in options.candidates if c.format is not None)
    return f"best of {', '.join(formats)}" if len(formats) > 1 else f"only {pick.format} fits"
