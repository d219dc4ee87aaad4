"""Plan a compression: a format and ranks for every weight, all chosen together under a budget.

    plan = plan_compression(model, Budget(0.1))
    compressed = apply_plan(model, plan)

Every site's weight gets a ladder of candidates, dense included; one of each is chosen so that the
scores (squared errors, weighted as the scoring says) add up to the least that the budget allows.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import nn

from rankscope.compression.candidates import CandidateGenerator, SiteCandidates, Task
from rankscope.compression.plan import Budget, Candidate, Costs, Plan, Row, Unit
from rankscope.compression.scores import Batch, Scoring, Weights
from rankscope.compression.sites import Site, Uncompressed, read_sites
from rankscope.compression.solver import (
    Choice,
    CostRow,
    Option,
    choose,
    choose_greedily,
    solve_rows,
)
from rankscope.compression.usage import Stopwatch, Usage, observe
from rankscope.errors import CompressionError
from rankscope.factorize.cores import BITS
from rankscope.factorize.formats.catalogue import STORED_FORMATS
from rankscope.factorize.formats.format import Format
from rankscope.factorize.formats.plain import DENSE
from rankscope.progress import Progress, Report, ignore
from rankscope.workers import Workers

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


def dense_costs(
    model: nn.Module, usage: Usage | None, sites: Iterable[Candidate], seconds: float
) -> Costs:
    """Costs of the uncompressed model; `sites` are the dense candidates of its sites."""
    flops = 0 if usage is None else usage.other_flops + sum(site.costs.flops for site in sites)
    return Costs(
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        flops=flops,
        bytes=state_bytes(model),
        seconds=seconds,
    )


def state_bytes(model: nn.Module) -> int:
    """Bytes of everything in the state dict, shared tensors once."""
    held = {
        (tensor.data_ptr(), tensor.shape, tensor.dtype) if tensor.numel() else name: tensor
        for name, tensor in model.state_dict().items()
    }
    return sum(tensor.numel() * tensor.element_size() for tensor in held.values())


def replace_part(total: Costs, old: Costs, new: Costs) -> Costs:
    """The total, after one part of it was replaced."""
    return replace(
        total,
        parameters=total.parameters - old.parameters + new.parameters,
        flops=total.flops - old.flops + new.flops,
        bytes=total.bytes - old.bytes + new.bytes,
        seconds=total.seconds - old.seconds + new.seconds,
    )


# --- Everything a plan is chosen from: sites, their candidates, and what the whole model costs ----


AS_TRAINED = (16, 32, 64)  # bits that stand for those of the dense weight


@dataclass(frozen=True, eq=False)
class PlanSettings:
    """What candidates are made from, and how they are scored; see `plan_compression`."""

    formats: tuple[Format, ...]
    scoring: Scoring
    example: Batch | None = None
    bits: tuple[int, ...] = ()
    leave: tuple[str, ...] = ()
    measures_latency: bool = False
    num_steps: int = 20
    skips_dear: bool = False
    workers: Workers = field(default_factory=lambda: Workers("sequential"))


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


def list_candidates(model: nn.Module, settings: PlanSettings, report: Report) -> CandidateTable:
    """Read a model, watch it on the example, and list the candidates of every site.

    Raises:
        CompressionError: see `plan_compression`.
    """
    reading = read_sites(model, leave=settings.leave)
    usage = None if settings.example is None else observe(model, reading.sites, settings.example)
    entries = [_skip_unreached(entry, usage) for entry in reading.entries]
    if settings.measures_latency:
        entries = [_skip_packed(entry) for entry in entries]
    left = [entry.name for entry in entries if isinstance(entry, Uncompressed)]
    settings.scoring.prepare(model, left=left, report=report)
    stopwatch = Stopwatch() if settings.measures_latency else None
    generator = CandidateGenerator(
        settings.formats,
        _bits(settings.bits),
        settings.num_steps,
        stopwatch,
        skips_dear=settings.skips_dear,
    )
    sites = [entry for entry in entries if isinstance(entry, Site)]
    tasks = [
        Task(
            site,
            () if usage is None else usage.calls[site.name],
            settings.scoring.error_norm(site.name),
        )
        for site in sites
    ]
    # Times measured side by side would be those of a busy machine.
    workers = Workers("sequential") if settings.measures_latency else settings.workers
    of_site: dict[str, SiteCandidates] = {}
    for done, (number, candidates) in enumerate(
        workers.run(generator.candidates_for, tasks), start=1
    ):
        # A worker elsewhere gives back a copy of the site.
        of_site[sites[number].name] = replace(candidates, site=sites[number])
        report(Progress("weights", done, len(sites)))
    listed = [of_site[entry.name] if isinstance(entry, Site) else entry for entry in entries]
    seconds = 0.0
    if stopwatch is not None and settings.example is not None:
        seconds = stopwatch.of_model(model, settings.example)
    dense = [options.dense for options in listed if isinstance(options, SiteCandidates)]
    return CandidateTable(
        tuple(listed),
        dense_costs(model, usage, dense, seconds),
        tuple(_notes(settings, entries)),
        settings.scoring.name,
    )


def _skip_unreached(entry: Site | Uncompressed, usage: Usage | None) -> Site | Uncompressed:
    reason = usage.reason_to_leave(entry) if usage and isinstance(entry, Site) else None
    return entry.uncompressed(reason) if reason and isinstance(entry, Site) else entry


def _skip_packed(entry: Site | Uncompressed) -> Site | Uncompressed:
    if isinstance(entry, Site) and entry.is_packed:
        return entry.uncompressed("experts: how long they take is not measured here")
    return entry


def _bits(wanted: Sequence[int]) -> tuple[int | None, ...]:
    known = {*AS_TRAINED, *BITS}
    for bits in wanted:
        if bits not in known:
            raise CompressionError(
                f"bits of a stored number: 8 or 4 (quantized), or 32 (as trained), got {bits}."
            )
    if not wanted:
        return (None,)
    return tuple(dict.fromkeys(None if bits in AS_TRAINED else bits for bits in wanted))


def _notes(settings: PlanSettings, entries: Sequence[Site | Uncompressed]) -> list[str]:
    names = ", ".join(format.name for format in settings.formats)
    notes = [f"Formats tried: {names}."]
    if settings.example is None:
        notes.append("Flops are not counted: no example batch was given.")
    else:
        notes.append(
            "Flops are operations of one example batch, a multiply-add counted as two: of the "
            "weights from their diagrams, of the rest as torch.utils.flop_counter counts it."
        )
    if any(bits in BITS for bits in settings.bits):
        notes.append(
            "Errors of quantized weights are estimates: the squared errors of the truncation and "
            "of each core's quantization are added."
        )
    if settings.measures_latency:
        notes.append(
            "Latency is an estimate from calls measured here with "
            f"{torch.get_num_threads()} thread(s), weight by weight, at the example's sizes."
        )
    unseen = [
        entry.name
        for entry in entries
        if isinstance(entry, Site) and settings.scoring.error_norm(entry.name) is None
    ]
    if unseen:
        notes.append(f"No data reached these, scored by their weights alone: {', '.join(unseen)}.")
    return notes


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


# Those that run as short chains of convolutions or products.
DEFAULT_FORMATS = ("svd", "cp", "tucker", "tensor-train")
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
    workers: Workers | None = None,
    report: Report = ignore,
) -> Plan:
    """Choose a format and ranks for every weight of a model, under one budget.

    Args:
        model: any module; it is only looked at.
        budget: a share to keep, or a `Tolerance` for each weight.
        formats: to choose from; if not given svd, tucker and tensor-train, and cp for weights
            whose fits take no more than a few seconds.
        example: one batch as the model takes it; needed to count flops and latency. Modules that
            it does not reach are left alone.
        scores: what errors are scored on; the weights alone if not given.
        bits: 8 and 4 let the cores be stored in so few bits where that is the better use of the
            budget (then the error of quantization is added as an estimate, in squares).
        leave: names of modules or weights to leave alone; `*` stands for any part of a name.
        workers: who computes the candidates, on more cores or machines; the plan is the same.
        report: called with the progress.

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
    names = (
        (*DEFAULT_FORMATS, DENSE.name) if any(each in BITS for each in bits) else DEFAULT_FORMATS
    )
    settings = PlanSettings(
        formats=tuple(formats or (STORED_FORMATS[name] for name in names)),
        skips_dear=not formats,
        scoring=scores or Weights(),
        example=example,
        bits=tuple(bits),
        leave=tuple(leave),
        measures_latency=isinstance(budget, Budget)
        and Unit.LATENCY in [part.unit for part in budget.parts],
        num_steps=STEPS if isinstance(budget, Budget) else FINE_STEPS,
        workers=workers or Workers("sequential"),
    )
    table = list_candidates(model, settings, report)
    if isinstance(budget, Tolerance):
        picks = [_cheapest_within(options, budget.error) for options in table.site_candidates]
        note = f"No budget: each weight is as small as an error of {budget.error:g} allows."
        return _plan(table, Budget(1.0), picks, note)
    return solve_table(table, budget).plan


def _cheapest_within(options: SiteCandidates, error: float) -> Candidate:
    within = [candidate for candidate in options.candidates if candidate.error <= error]
    return min(within, key=lambda candidate: (candidate.costs.bytes, candidate.error))


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
    """A plan, the place of each site's choice among its candidates, and how good it is."""

    plan: Plan
    picks: tuple[int, ...]  # a place for each site of the table
    score: float  # of all choices together
    gap: float | None  # no choice has a score below `score - gap`; None if not computed


def solve_table(
    table: CandidateTable,
    budget: Budget,
    *,
    restriction: Restriction | None = None,
    is_quick: bool = False,
    max_seconds: float = 30.0,
) -> Solved:
    """The best choice from a table within a budget.

    Args:
        table: of all candidates.
        budget: one or two.
        restriction: fewer candidates.
        is_quick: by the best gain for its price, in milliseconds; not proved to be the best, and
            within two budgets by the dearer of the two prices.
        max_seconds: for the proof; then the best so far, with the gap that is left.

    Raises:
        CompressionError: if a budget cannot be met, or a site is pinned to what it does not have.
    """
    restriction = restriction or Restriction()
    allowed = [restriction.allowed(options) for options in table.site_candidates]
    choice = _choose(table, budget, allowed, max_seconds, is_quick=is_quick)
    picks = tuple(places[n] for places, n in zip(allowed, choice.picks, strict=True))
    chosen = [
        options.candidates[n] for options, n in zip(table.site_candidates, picks, strict=True)
    ]
    is_proved = not is_quick or math.isfinite(choice.gap)
    note = _proof(choice) if is_proved else "Chosen by gain for its price, not proved to be best."
    plan = _plan(table, budget, chosen, note)
    return Solved(plan, picks, choice.score, choice.gap if is_proved else None)


def _choose(
    table: CandidateTable,
    budget: Budget,
    allowed: Sequence[Sequence[int]],
    max_seconds: float,
    *,
    is_quick: bool,
) -> Choice:
    first, *others = (_Limited.of(table, part, allowed) for part in budget.parts)
    for limited in (first, *others):
        limited.check()
    lists = [
        [Option(cost, options.candidates[n].score) for cost, n in zip(costs, places, strict=True)]
        for costs, options, places in zip(first.costs, table.site_candidates, allowed, strict=True)
    ]
    choice = _quick_choice(lists, [first, *others]) if is_quick else None
    if choice is None and not others:
        choice = choose(lists, first.limit, max_seconds=max_seconds)
    elif choice is None:
        second = SecondBudget(others[0].costs, others[0].limit)
        choice = choose_within_both(lists, first.limit, second, max_seconds=max_seconds)
    if choice is None:
        shares = " and ".join(
            f"{part.keep:g} of the {_unit_name(part.unit)}" for part in budget.parts
        )
        raise CompressionError(
            f"No choice was found that keeps {shares} at once, though each can be met by itself. "
            "Raise one of them, or allow more formats."
        )
    return choice


PRICE_UNITS = 2**40


def _quick_choice(lists: Sequence[Sequence[Option]], limits: "Sequence[_Limited]") -> Choice | None:
    """Greedy; under several budgets an option costs its largest share of any. None if none fits."""
    priced, budget = lists, limits[0].limit
    if len(limits) > 1:
        budget = PRICE_UNITS
        priced = [
            [
                Option(
                    max(
                        math.ceil(PRICE_UNITS * limit.costs[which][n] / max(1, limit.limit))
                        for limit in limits
                    ),
                    option.score,
                )
                for n, option in enumerate(options)
            ]
            for which, options in enumerate(lists)
        ]
    if sum(min(option.cost for option in options) for options in priced) > budget:
        return None
    picks = choose_greedily(priced, budget)
    chosen = [options[n] for options, n in zip(lists, picks, strict=True)]
    cost, score = sum(one.cost for one in chosen), math.fsum(one.score for one in chosen)
    return Choice(tuple(picks), cost, score, math.inf)


@dataclass(frozen=True)
class _Limited:
    """What the candidates cost in the unit of a budget, and what is left for them."""

    budget: Budget
    costs: list[list[int]]
    fixed: int  # what belongs to no candidate
    total: int
    allowed: int

    @classmethod
    def of(
        cls, table: CandidateTable, budget: Budget, allowed: Sequence[Sequence[int]]
    ) -> "_Limited":
        costs = [
            [count(options.candidates[n].costs, budget.unit) for n in places]
            for options, places in zip(table.site_candidates, allowed, strict=True)
        ]
        dense = sum(count(options.dense.costs, budget.unit) for options in table.site_candidates)
        total = count(table.dense, budget.unit)
        return cls(budget, costs, total - dense, total, allowance(budget, table.dense))

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
    return (
        f"Time was up: the total score {choice.score:.4g} may be up to {choice.gap:.2g} above the "
        "smallest possible."
    )


def _plan(
    table: CandidateTable,
    budget: Budget,
    picks: Sequence[Candidate],
    note: str,
) -> Plan:
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
