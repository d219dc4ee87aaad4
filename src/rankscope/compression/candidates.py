"""Every way to write the weight of one site, with what it costs and the error it makes."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from rankscope.compression.curves import error_curve, ladder_of_ranks
from rankscope.compression.latency import NUM_MEASURED, Stopwatch
from rankscope.compression.plan import Candidate, Costs
from rankscope.compression.scores import Weighing
from rankscope.compression.sites import Site
from rankscope.compression.usage import Call, flops
from rankscope.compression.whitening import relative_error
from rankscope.layers.formats.format import Format, Ranks
from rankscope.layers.formats.plain import DENSE
from rankscope.layers.quantization import quantize, quantized_bytes


@dataclass(frozen=True, eq=False)
class Menu:
    """All candidates of a site that are smaller than it; the first is its dense weight.

    Args:
        site: that they are for.
        candidates: in no order that matters.
        refusals: why formats were not tried, or have no candidate.
    """

    site: Site
    candidates: tuple[Candidate, ...]
    refusals: tuple[str, ...]

    @property
    def dense(self) -> Candidate:
        """The weight as it is."""
        return self.candidates[0]


@dataclass(frozen=True, eq=False)
class Task:
    """A site, how the model uses it, and how its errors count."""

    site: Site
    calls: tuple[Call, ...]
    weighing: Weighing | None


@dataclass(frozen=True, eq=False)
class Kitchen:
    """What candidates are made with.

    Args:
        formats: to try on every site.
        bits: of each stored number of the cores; None stands for those of the dense weight.
        num_steps: ranks tried for each format.
        stopwatch: that times candidates; None if seconds do not matter.
    """

    formats: tuple[Format, ...]
    bits: tuple[int | None, ...] = (None,)
    num_steps: int = 20
    stopwatch: Stopwatch | None = None

    def menu(self, task: Task) -> Menu:
        """All candidates of one site."""
        site, refusals = task.site, []
        found = [self._dense(task)]
        for format in self.formats:
            reason = format.refusal(site.shape)
            ladder = [] if reason else self._ladder(site, format)
            if ladder:
                dense = found[0].costs
                found += [
                    candidate
                    for candidate in self._written(task, format, ladder)
                    if candidate.costs.bytes < dense.bytes
                ]
            else:
                refusals.append(f"{format.name}: {reason or 'no smaller even at ranks of one'}")
        return Menu(site, tuple(found), tuple(refusals))

    def _ladder(self, site: Site, format: Format) -> list[Ranks]:
        room = max(1 if bits is None else site.bits // bits for bits in self.bits)
        return ladder_of_ranks(format, site.shape, num_steps=self.num_steps, room=room)

    def _dense(self, task: Task) -> Candidate:
        site = task.site
        costs = Costs(
            parameters=site.num_parameters,
            flops=flops(site, DENSE, (), task.calls),
            bytes=site.num_parameters * site.weight.element_size(),
            seconds=self.stopwatch.of_site(site, task.calls) if self.stopwatch else 0.0,
        )
        return Candidate(None, (), site.bits, costs, 0.0, 0.0)

    def _written(self, task: Task, format: Format, ladder: Sequence[Ranks]) -> Iterator[Candidate]:
        site = task.site
        multiplier = 1.0 if task.weighing is None else task.weighing.multiplier
        errors = error_curve(site, format, ladder, task.weighing)
        seconds = self._seconds(task, format, ladder)
        for bits in self.bits:
            noise = 0.0 if bits is None else quantization_error(site, bits)
            for ranks, error, time in zip(ladder, errors, seconds, strict=True):
                num_cores = len(format.core_shapes(site.shape, ranks))
                total = math.hypot(error, noise * math.sqrt(num_cores))
                costs = Costs(
                    parameters=num_parameters(site, format, ranks),
                    flops=flops(site, format, ranks, task.calls),
                    bytes=num_bytes(site, format, ranks, bits),
                    seconds=time,
                )
                yield Candidate(
                    format.name, ranks, bits or site.bits, costs, total, multiplier * total**2
                )

    def _seconds(self, task: Task, format: Format, ladder: Sequence[Ranks]) -> list[float]:
        if self.stopwatch is None:
            return [0.0] * len(ladder)
        places = np.arange(len(ladder))
        timed = np.unique(np.linspace(0, len(ladder) - 1, NUM_MEASURED).round().astype(int))
        seconds = [
            self.stopwatch.of_site(task.site, task.calls, format, ladder[place]) for place in timed
        ]
        sizes = [format.num_parameters(task.site.shape, ranks) for ranks in ladder]
        found = np.interp(np.take(sizes, places), np.take(sizes, timed), seconds)
        return [float(time) for time in found]


def num_parameters(site: Site, format: Format, ranks: Ranks) -> int:
    """What the written site holds, with its biases and what is kept beside the cores."""
    cores = site.groups * format.num_parameters(site.shape, ranks)
    return cores + site.bias + site.beside


def num_bytes(site: Site, format: Format, ranks: Ranks, bits: int | None) -> int:
    """What the state dict of the written site holds, scales of quantized numbers included."""
    size = site.weight.element_size()
    shapes = format.core_shapes(site.shape, ranks).values()
    if bits is None:
        cores = site.groups * size * sum(map(math.prod, shapes))
    else:
        stacked = [(site.groups * first, *rest) for first, *rest in shapes]
        cores = sum(quantized_bytes(sizes, bits, site.weight.dtype) for sizes in stacked)
    return cores + size * (site.bias + site.beside)


def quantization_error(site: Site, bits: int) -> float:
    """Relative error of the dense weight in so few bits; each core is taken to err as much."""
    weight = site.weight.flatten(0, 1)
    return relative_error(weight[None], quantize(weight, bits).dequantize()[None], None)
