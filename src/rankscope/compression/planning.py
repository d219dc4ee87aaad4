"""From a model and a budget to a plan: which weight is written how, all chosen together.

    plan = plan_compression(model, Budget(0.1))
    compressed = apply_plan(model, plan)

Every site's weight gets a ladder of candidates, dense included; one of each is chosen so that the
scores (squared errors, weighed as the scoring says) add up to the least that the budget allows.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from torch import nn

from rankscope.compression.budgets import allowance, check_budget, count, exchanged
from rankscope.compression.candidates import Menu
from rankscope.compression.greedy import Option
from rankscope.compression.plan import Budget, Candidate, Plan, Row, Unit
from rankscope.compression.scores import Batch, Scoring, Weights
from rankscope.compression.sites import LeftAlone
from rankscope.compression.solver import Choice, choose
from rankscope.compression.survey import Survey, Wishes, survey
from rankscope.compression.two_budgets import SecondBudget, choose_within_both
from rankscope.errors import CompressionError
from rankscope.layers.formats.catalogue import FORMATS
from rankscope.layers.formats.format import Format
from rankscope.progress import Report, ignore

# Those that run as short chains of convolutions or products, and whose errors need no fits.
DEFAULT_FORMATS = ("svd", "tucker", "tensor-train")
STEPS, FINE_STEPS = 20, 64  # ranks tried for each format: under a budget, within a tolerance


@dataclass(frozen=True)
class Tolerance:
    """A goal without a budget: the cheapest candidate of each weight within a relative error."""

    error: float


def plan_compression(  # noqa: PLR0913 - one keyword for each thing that a plan depends on
    model: nn.Module,
    budget: Budget | Tolerance,
    *,
    formats: Sequence[Format] | None = None,
    example: Batch | None = None,
    scores: Scoring | None = None,
    bits: Sequence[int] = (),
    leave: Sequence[str] = (),
    report: Report = ignore,
) -> Plan:
    """Choose a format and ranks for every weight of a model, under one budget.

    Args:
        model: any module; it is only looked at.
        budget: a share to keep, or a `Tolerance` for each weight.
        formats: to choose from; svd, tucker and tensor-train if not given.
        example: one batch as the model takes it; needed to count flops and latency. Modules that
            it does not reach are left alone.
        scores: what errors are scored on; the weights alone if not given.
        bits: 8 and 4 let the cores be stored in so few bits where that is the better use of the
            budget (then the error of quantization is added as an estimate, in squares).
        leave: names of modules or weights to leave alone; `*` stands for any part of a name.
        report: is told how far it has come.

    Example:
        >>> plan = plan_compression(nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 8)), Budget(0.3))
        >>> plan.dense.parameters, plan.kept.parameters <= 0.3 * plan.dense.parameters
        (4680, True)
        >>> [row.name for row in plan.rows]
        ['0', '1']

    Raises:
        CompressionError: if the budget cannot be met (the message says the smallest that can), a
            weight is not finite, the example does not fit, or an option makes no sense.
    """
    if isinstance(budget, Budget):
        check_budget(budget, has_example=example is not None)
    elif not 0 <= budget.error < 1:
        raise CompressionError(f"A tolerance is at least 0 and below 1, got {budget.error}.")
    wishes = Wishes(
        formats=tuple(formats or (FORMATS[name] for name in DEFAULT_FORMATS)),
        scoring=scores or Weights(),
        example=example,
        bits=tuple(bits),
        leave=tuple(leave),
        measures_latency=isinstance(budget, Budget)
        and Unit.LATENCY in [part.unit for part in budget.parts],
        num_steps=STEPS if isinstance(budget, Budget) else FINE_STEPS,
    )
    found = survey(model, wishes, report)
    if isinstance(budget, Tolerance):
        picks = [_cheapest_within(menu, budget.error) for menu in found.menus]
        note = f"No budget: each weight is as small as an error of {budget.error:g} allows."
        return _plan(found, Budget(1.0), picks, wishes, note)
    choice = _chosen(found, budget)
    picks = [menu.candidates[n] for menu, n in zip(found.menus, choice.picks, strict=True)]
    return _plan(found, budget, picks, wishes, _proof(choice))


def _cheapest_within(menu: Menu, error: float) -> Candidate:
    within = [candidate for candidate in menu.candidates if candidate.error <= error]
    return min(within, key=lambda candidate: (candidate.costs.bytes, candidate.error))


def _chosen(found: Survey, budget: Budget) -> Choice:
    first, *others = (_Limited.of(found, part) for part in budget.parts)
    for limited in (first, *others):
        limited.check()
    lists = [
        [
            Option(cost, candidate.score)
            for cost, candidate in zip(costs, menu.candidates, strict=True)
        ]
        for costs, menu in zip(first.costs, found.menus, strict=True)
    ]
    if not others:
        choice = choose(lists, first.limit)
    else:
        second = SecondBudget(others[0].costs, others[0].limit)
        choice = choose_within_both(lists, first.limit, second)
    if choice is None:
        shares = " and ".join(
            f"{part.keep:g} of the {_spelled(part.unit)}" for part in budget.parts
        )
        raise CompressionError(
            f"No choice was found that keeps {shares} at once, though each can be met by itself. "
            "Raise one of them, or allow more formats."
        )
    return choice


@dataclass(frozen=True)
class _Limited:
    """What the candidates cost in the unit of a budget, and what is left for them."""

    budget: Budget
    costs: list[list[int]]
    total: int
    allowed: int

    @classmethod
    def of(cls, found: Survey, budget: Budget) -> "_Limited":
        costs = [
            [count(candidate.costs, budget.unit) for candidate in menu.candidates]
            for menu in found.menus
        ]
        total = count(found.dense, budget.unit)
        return cls(budget, costs, total, allowance(budget, found.dense))

    @property
    def fixed(self) -> int:
        """What belongs to no candidate; the first of each list is dense."""
        return self.total - sum(options[0] for options in self.costs)

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
            f"{_spelled(self.budget.unit)}, but the smallest that can be reached is {smallest:,} "
            f"(keep={share:g}): {self.fixed:,} belong to what is left alone. Raise keep, or allow "
            "more formats or fewer bits."
        )


def _spelled(unit: Unit) -> str:
    return "nanoseconds" if unit is Unit.LATENCY else str(unit)


def _proof(choice: Choice) -> str:
    if choice.is_proved:
        return "No other choice from these candidates has a smaller total score (integer program)."
    return (
        f"Time was up: the total score {choice.score:.4g} may be up to {choice.gap:.2g} above the "
        "smallest possible."
    )


def _plan(
    found: Survey, budget: Budget, picks: Sequence[Candidate], wishes: Wishes, note: str
) -> Plan:
    kept, waiting = found.dense, iter(picks)
    rows = []
    for entry in found.entries:
        if isinstance(entry, LeftAlone):
            rows.append(_left_row(entry))
            continue
        pick = next(waiting)
        kept = exchanged(kept, entry.dense.costs, pick.costs)
        rows.append(_row(entry, pick))
    return Plan(
        rows=tuple(rows),
        budget=budget,
        dense=found.dense,
        kept=kept,
        scoring=wishes.scoring.name,
        notes=(*found.notes, note),
    )


def _left_row(entry: LeftAlone) -> Row:
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


def _row(menu: Menu, pick: Candidate) -> Row:
    site = menu.site
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
        reason=_reason(menu, pick),
    )


def _reason(menu: Menu, pick: Candidate) -> str:
    if len(menu.candidates) == 1:
        return f"no way to gain ({'; '.join(menu.refusals)})"
    if pick.format is None:
        return "dense: what it would save costs less elsewhere"
    formats = dict.fromkeys(c.format for c in menu.candidates if c.format is not None)
    return f"best of {', '.join(formats)}" if len(formats) > 1 else f"only {pick.format} fits"
