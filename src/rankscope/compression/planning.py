"""Plan a compression: a format and ranks for every weight, all chosen together under a budget.

    plan = plan_compression(model, Budget(0.1))
    compressed = apply_plan(model, plan)

Every site's weight gets a ladder of candidates, dense included; one of each is chosen so that the
scores (squared errors, weighted as the scoring says) add up to the least that the budget allows.
"""

from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace

import torch
from torch import nn

from rankscope.compression.candidates import CandidateGenerator, SiteCandidates, Task
from rankscope.compression.choosing import CandidateTable, check_budget, make_plan, solve_table
from rankscope.compression.plan import Budget, Candidate, Costs, Plan, Unit
from rankscope.compression.scores import Batch, Scoring, Weights
from rankscope.compression.sites import Site, Uncompressed, read_sites
from rankscope.compression.usage import Stopwatch, Usage, observe
from rankscope.errors import CompressionError
from rankscope.factorize.cores import BITS
from rankscope.factorize.formats.catalogue import STORED_FORMATS
from rankscope.factorize.formats.format import Format
from rankscope.factorize.formats.plain import DENSE
from rankscope.modes import one_thread
from rankscope.progress import Progress, Report, ignore
from rankscope.workers import Workers

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
    workers: Workers | None = None  # as many threads as torch has


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
    # The largest first, so that no worker is left alone with it.
    sites = [entry for entry in entries if isinstance(entry, Site)]
    sites.sort(key=lambda site: site.num_parameters, reverse=True)
    tasks = [
        Task(
            site,
            () if usage is None else usage.calls[site.name],
            settings.scoring.error_norm(site.name),
        )
        for site in sites
    ]
    # Times measured side by side would be those of a busy machine.
    workers = settings.workers or Workers(jobs=torch.get_num_threads())
    if settings.measures_latency:
        workers = Workers("sequential")
    of_site: dict[str, SiteCandidates] = {}
    # A thread for each weight is faster than all threads in one: matrices are small.
    with one_thread() if workers.backend == "threading" else nullcontext():
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
        workers: who computes the candidates, on more cores or machines; as many threads as torch
            uses if not given. The plan is the same.
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
        workers=workers,
    )
    table = list_candidates(model, settings, report)
    if isinstance(budget, Tolerance):
        picks = [_cheapest_within(options, budget.error) for options in table.site_candidates]
        note = f"No budget: each weight is as small as an error of {budget.error:g} allows."
        return make_plan(table, Budget(1.0), picks, note)
    return solve_table(table, budget).plan


def _cheapest_within(options: SiteCandidates, error: float) -> Candidate:
    within = [candidate for candidate in options.candidates if candidate.error <= error]
    return min(within, key=lambda candidate: (candidate.costs.bytes, candidate.error))
