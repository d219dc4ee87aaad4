"""Everything a plan is chosen from: sites, their candidates, and what the whole model costs."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn

from rankscope.compression.budgets import dense_costs
from rankscope.compression.candidates import Kitchen, Menu, Task
from rankscope.compression.latency import Stopwatch
from rankscope.compression.plan import Costs
from rankscope.compression.scores import Batch, Scoring
from rankscope.compression.sites import LeftAlone, Site, read_sites
from rankscope.compression.usage import Usage, observe
from rankscope.errors import CompressionError
from rankscope.layers.formats.format import Format
from rankscope.layers.quantization import BITS
from rankscope.progress import Progress, Report

AS_TRAINED = (16, 32, 64)  # bits that stand for those of the dense weight


@dataclass(frozen=True, eq=False)
class Wishes:
    """What candidates are made from; see `plan_compression`."""

    formats: tuple[Format, ...]
    scoring: Scoring
    example: Batch | None = None
    bits: tuple[int, ...] = ()
    leave: tuple[str, ...] = ()
    measures_latency: bool = False
    num_steps: int = 20


@dataclass(frozen=True, eq=False)
class Survey:
    """What was found.

    Args:
        entries: a menu for each site, a reason for everything else, in the model's order.
        dense: costs of the whole model.
        notes: what a reader should know.
    """

    entries: tuple[Menu | LeftAlone, ...]
    dense: Costs
    notes: tuple[str, ...]

    @property
    def menus(self) -> tuple[Menu, ...]:
        """Of all sites."""
        return tuple(entry for entry in self.entries if isinstance(entry, Menu))


def survey(model: nn.Module, wishes: Wishes, report: Report) -> Survey:
    """Read a model, watch it on the example, and list the candidates of every site.

    Raises:
        CompressionError: see `plan_compression`.
    """
    reading = read_sites(model, leave=wishes.leave)
    usage = None if wishes.example is None else observe(model, reading.sites, wishes.example)
    entries = [_reached(entry, usage) for entry in reading.entries]
    wishes.scoring.prepare(model)
    stopwatch = Stopwatch() if wishes.measures_latency else None
    kitchen = Kitchen(wishes.formats, _bits(wishes.bits), wishes.num_steps, stopwatch)
    found: list[Menu | LeftAlone] = []
    for done, entry in enumerate(entries, start=1):
        if isinstance(entry, Site):
            calls = () if usage is None else usage.calls[entry.name]
            found.append(kitchen.menu(Task(entry, calls, wishes.scoring.weigh(entry.name))))
        else:
            found.append(entry)
        report(Progress("weights", done, len(entries)))
    seconds = 0.0
    if stopwatch is not None and wishes.example is not None:
        seconds = stopwatch.of_model(model, wishes.example)
    dense = [menu.dense for menu in found if isinstance(menu, Menu)]
    return Survey(
        tuple(found), dense_costs(model, usage, dense, seconds), tuple(_notes(wishes, entries))
    )


def _reached(entry: Site | LeftAlone, usage: Usage | None) -> Site | LeftAlone:
    if usage is None or not isinstance(entry, Site) or entry.module_name in usage.reached:
        return entry
    # Its weight may be used without calling it, and then would not be there any more.
    return entry.left_alone("not reached by the example: nothing called it")


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


def _notes(wishes: Wishes, entries: Sequence[Site | LeftAlone]) -> list[str]:
    names = ", ".join(format.name for format in wishes.formats)
    notes = [f"Formats tried: {names}."]
    if wishes.example is None:
        notes.append("Flops are not counted: no example batch was given.")
    else:
        notes.append(
            "Flops are operations of one example batch, a multiply-add counted as two: of the "
            "weights from their diagrams, of the rest as torch.utils.flop_counter counts it."
        )
    if any(bits in BITS for bits in wishes.bits):
        notes.append(
            "Errors of quantized weights are estimates: the squared errors of the truncation and "
            "of each core's quantization are added."
        )
    if wishes.measures_latency:
        notes.append(
            "Latency is an estimate from calls measured here with "
            f"{torch.get_num_threads()} thread(s), weight by weight, at the example's sizes."
        )
    unseen = [
        entry.name
        for entry in entries
        if isinstance(entry, Site) and wishes.scoring.weigh(entry.name) is None
    ]
    if unseen:
        notes.append(f"No data reached these, weighed by their weights alone: {', '.join(unseen)}.")
    return notes
