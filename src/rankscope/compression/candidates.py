"""Every way to write the weight of one site, with what it costs and the error it makes."""

import copy
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn

from rankscope.compression.plan import Candidate, Costs, Row
from rankscope.compression.scores import (
    ErrorNorm,
    can_whiten,
    is_plain,
    relative_error,
    take_back,
    whiten,
)
from rankscope.compression.sites import Site, as_linear, parts_of
from rankscope.compression.usage import NUM_MEASURED, Call, Stopwatch, flops
from rankscope.factorize.attention import FactorizedMultiheadAttention
from rankscope.factorize.convolution import FactorizedConv, FactorizedConv1d, FactorizedConv2d
from rankscope.factorize.cores import CoreStore, quantize, quantized_bytes
from rankscope.factorize.experts import (
    FactorizedExperts,
    PackedCores,
    is_packed_experts,
    packed_weight,
)
from rankscope.factorize.formats.catalogue import STORED_FORMATS
from rankscope.factorize.formats.experts import SVD_EACH
from rankscope.factorize.formats.format import Format, Ranks, WeightShape
from rankscope.factorize.formats.plain import DENSE
from rankscope.factorize.linear import FactorizedEmbedding, FactorizedLinear
from rankscope.factorize.recurrent import FactorizedGRU, FactorizedLSTM, FactorizedRecurrent

# --- How the error of a weight falls as its ranks grow, for one format ----------------------------


MAX_FIT = 10**9  # numbers of a weight times the rank that holds as many: a few seconds of fits
NUM_FITS = 4  # of a curve whose errors can only be measured one by one
SMALLEST_ERROR = 1e-12  # where logarithms of errors are taken


def ladder_of_ranks(
    format: Format, shape: WeightShape, *, num_steps: int, times: int = 1
) -> list[Ranks]:
    """Ranks from ones to where the cores are no longer smaller than the weight, geometrically.

    Empty if even ranks of one are not smaller.

    Args:
        format: of the cores.
        shape: of the weight.
        num_steps: at most so many ranks.
        times: cores may hold fewer than so many times the numbers of the weight; more than once if
            each of them takes less space.

    Example:
        >>> from rankscope.factorize.formats.catalogue import FORMATS
        >>> ladder_of_ranks(FORMATS["svd"], WeightShape(64, 64), num_steps=6)
        [(1,), (3,), (7,), (15,), (31,)]
    """
    smallest = format.num_parameters(shape, (1,) * len(format.full_ranks(shape)))
    largest = times * shape.num_parameters - 1
    if smallest > largest:
        return []
    ratio = (largest / smallest) ** (1 / (num_steps - 1))
    targets = [math.floor(smallest * ratio**step + 1e-9) for step in range(num_steps - 1)]
    ladder = [format.largest_ranks(shape, target) for target in [*targets, largest]]
    return list(dict.fromkeys(ranks for ranks in ladder if ranks is not None))


def error_curve(
    site: Site, format: Format, ladder: Sequence[Ranks], error_norm: ErrorNorm | None
) -> list[float]:
    """The relative error of a site at each of several ranks.

    Formats that cannot take a whitening back are fitted at a few ranks and measured there; what
    lies between is interpolated (logarithms of error over parameters), and an estimate.
    """
    if not is_plain(error_norm) and not can_whiten(format, error_norm):
        return _measure_errors(site, format, ladder, error_norm)
    # Formats choose their own precision: a copy is made only where there is something to whiten.
    whitened = site.weight if is_plain(error_norm) else whiten(site.weight, error_norm)
    norms = [float(torch.linalg.vector_norm(group)) for group in whitened]
    curves = [
        format.errors(group, ladder) if norm else [0.0] * len(ladder)
        for group, norm in zip(whitened, norms, strict=True)
    ]
    size = math.hypot(*norms)
    return [
        math.hypot(*(error * norm for error, norm in zip(errors, norms, strict=True))) / size
        if size
        else 0.0
        for errors in zip(*curves, strict=True)
    ]


def _measure_errors(
    site: Site, format: Format, ladder: Sequence[Ranks], error_norm: ErrorNorm | None
) -> list[float]:
    last = len(ladder) - 1
    fitted = sorted({round(step * last / (NUM_FITS - 1)) for step in range(NUM_FITS)})
    errors = [
        relative_error(site.weight, _rebuilt(site, format, ladder[place]), error_norm)
        for place in fitted
    ]
    sizes = [math.log(format.num_parameters(site.shape, ranks)) for ranks in ladder]
    return _interpolate_errors(sizes, fitted, errors)


def _rebuilt(site: Site, format: Format, ranks: Ranks) -> Tensor:
    return torch.stack(
        [
            format.to_dense(format.decompose(group, ranks), site.shape).to(group.dtype)
            for group in site.weight
        ]
    )


def _interpolate_errors(
    sizes: Sequence[float], fitted: Sequence[int], errors: Sequence[float]
) -> list[float]:
    """Errors at all places from those at some: straight lines between the logarithms."""
    interpolated = {fitted[0]: errors[0]}
    for (left, right), (start, end) in zip(pairwise(fitted), pairwise(errors), strict=True):
        low, high = (math.log(max(error, SMALLEST_ERROR)) for error in (start, end))
        for place in range(left + 1, right):
            share = (sizes[place] - sizes[left]) / (sizes[right] - sizes[left])
            interpolated[place] = math.exp(low + share * (high - low))
        interpolated[right] = end
    return [interpolated[place] for place in range(len(sizes))]


@dataclass(frozen=True, eq=False)
class SiteCandidates:
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
    error_norm: ErrorNorm | None


@dataclass(frozen=True, eq=False)
class CandidateGenerator:
    """Enumerates the factorizations of a weight, with their costs and errors.

    Args:
        formats: to try on every site.
        bits: of each stored number of the cores; None stands for those of the dense weight.
        num_steps: ranks tried for each format.
        stopwatch: that times candidates; None if seconds do not matter.
        skips_dear: whether formats that need long fits for a weight are left out there.
    """

    formats: tuple[Format, ...]
    bits: tuple[int | None, ...] = (None,)
    num_steps: int = 20
    stopwatch: Stopwatch | None = None
    skips_dear: bool = False

    def candidates_for(self, task: Task) -> SiteCandidates:
        """All candidates of one site."""
        site, refusals = task.site, []
        candidates = [self._dense(task)]
        for format in self._formats(site):
            reason = format.refusal(site.shape) or self._dear(site, format)
            ladder = [] if reason else self._ladder(site, format)
            if ladder:
                dense = candidates[0].costs
                candidates += [
                    candidate
                    for candidate in self._written(task, format, ladder)
                    if candidate.costs.bytes < dense.bytes
                ]
            else:
                refusals.append(f"{format.name}: {reason or 'no smaller even at ranks of one'}")
        return SiteCandidates(site, tuple(candidates), tuple(refusals))

    def _formats(self, site: Site) -> tuple[Format, ...]:
        """Those to try: for experts also each by itself, where svd is asked for."""
        each = any(format.name == "svd" for format in self.formats) and site.is_packed
        return (*self.formats, SVD_EACH) if each else self.formats

    def _dear(self, site: Site, format: Format) -> str | None:
        """Why the fits of a format take too long to be tried without being asked for."""
        if not self.skips_dear or format.name != "cp":
            return None
        entries = site.shape.num_parameters
        (rank,) = format.largest_ranks(site.shape, entries) or (1,)
        if entries * rank <= MAX_FIT:
            return None
        return f"{entries:,} numbers at ranks up to {rank:,} take long to fit; ask for cp by name"

    def _ladder(self, site: Site, format: Format) -> list[Ranks]:
        times = max(1 if bits is None else site.bits // bits for bits in self.bits)
        return ladder_of_ranks(format, site.shape, num_steps=self.num_steps, times=times)

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
        error_norm = task.error_norm or ErrorNorm()
        errors = error_curve(site, format, ladder, task.error_norm)
        seconds = self._seconds(task, format, ladder)
        for bits in self.bits:
            noise = 0.0 if bits is None else quantization_error(site, bits)
            for ranks, error, time in zip(ladder, errors, seconds, strict=True):
                shapes = list(format.core_shapes(site.shape, ranks).values())
                total = math.hypot(error, noise * math.sqrt(len(shapes)))
                costs = Costs(
                    parameters=num_parameters(site, format, ranks),
                    flops=flops(site, format, ranks, task.calls),
                    bytes=num_bytes(site, shapes, bits),
                    seconds=time,
                )
                yield Candidate(
                    format.name, ranks, bits or site.bits, costs, total, error_norm.score(total)
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
        interpolated = np.interp(np.take(sizes, places), np.take(sizes, timed), seconds)
        return [float(time) for time in interpolated]


def num_parameters(site: Site, format: Format, ranks: Ranks) -> int:
    """What the written site holds, with its biases and what is kept beside the cores."""
    cores = site.groups * format.num_parameters(site.shape, ranks)
    return cores + site.bias + site.beside


def num_bytes(site: Site, shapes: Sequence[tuple[int, ...]], bits: int | None) -> int:
    """What the state dict of a site with such cores holds, scales of quantized numbers included."""
    size = site.weight.element_size()
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


# --- From one dense module and what a plan says of its weights to the factorized one --------------


Choices = Mapping[str, tuple[Format, Ranks]]
Factorized = (
    FactorizedLinear
    | FactorizedEmbedding
    | FactorizedConv
    | FactorizedMultiheadAttention
    | FactorizedRecurrent
    | FactorizedExperts
)


def factorize(
    module: nn.Module, rows: Mapping[str, Row], error_norms: Mapping[str, ErrorNorm | None]
) -> Factorized:
    """Decompose the weights of a supported module, and quantize the cores that are to be.

    Args:
        module: dense, left as it is.
        rows: of a plan, by part of the module; parts without one stay dense.
        error_norms: by part; whitened where the format allows it.
    """
    choices = {
        part: (STORED_FORMATS[row.format or ""], tuple(row.ranks)) for part, row in rows.items()
    }
    dtype = next(module.parameters()).dtype
    # A weight whitened in half precision would lose what whitening brings.
    given = copy.deepcopy(module).to(torch.promote_types(dtype, torch.float32))
    whitened = _whiten_parts(given, choices, error_norms)
    layer = _from_dense(given, choices)
    for part, error_norm in whitened.items():
        store = store_of(layer, part)
        cores = {name: core.detach() for name, core in store.tensors().items()}
        groups = layer.settings.groups if isinstance(layer, FactorizedConv) else 1
        restored = take_back(cores, choices[part][0], error_norm, groups=groups)
        _load(store, restored)
    layer = layer.to(dtype)
    for part, row in rows.items():
        if row.bits < 8 * dtype.itemsize:
            store_of(layer, part).quantize(row.bits)
    return layer


def store_of(layer: Factorized, part: str) -> CoreStore:
    """The cores that stand for one weight of a module."""
    holder: nn.Module = layer
    if isinstance(layer, FactorizedMultiheadAttention):
        holder = layer.projections[part]
    elif isinstance(layer, FactorizedRecurrent):
        holder = layer.weight(part)
    elif isinstance(layer, FactorizedExperts):
        holder = layer.part(part)
    return cast(CoreStore, holder.cores)


def _whiten_parts(
    module: nn.Module, choices: Choices, error_norms: Mapping[str, ErrorNorm | None]
) -> dict[str, ErrorNorm]:
    """Whiten weights of a module in place; returns how each of them was."""
    whitened = {}
    for part in parts_of(module):
        error_norm = error_norms.get(part.name)
        if part.name not in choices or error_norm is None:
            continue
        if can_whiten(choices[part.name][0], error_norm):
            part.weight.copy_(whiten(part.weight, error_norm))
            whitened[part.name] = error_norm
    return whitened


def _from_dense(module: nn.Module, choices: Choices) -> Factorized:
    if isinstance(module, nn.MultiheadAttention):
        return FactorizedMultiheadAttention.from_dense(module, choices)
    if isinstance(module, nn.LSTM | nn.GRU):
        recurrent = FactorizedLSTM if isinstance(module, nn.LSTM) else FactorizedGRU
        return recurrent.from_dense(module, choices)
    if is_packed_experts(module):
        parts = {}
        for name, (format, ranks) in choices.items():
            weight = packed_weight(module.get_parameter(name).detach())
            shape = WeightShape.of(weight)
            parts[name] = PackedCores(format, ranks, shape, format.decompose(weight, ranks))
        return FactorizedExperts(module, parts)
    return _from_single(module, *choices["weight"])


def _from_single(module: nn.Module, format: Format, ranks: Ranks) -> Factorized:
    """Factorize a module whose class has one weight."""
    if isinstance(module, nn.Conv1d | nn.Conv2d):
        convolution = FactorizedConv1d if isinstance(module, nn.Conv1d) else FactorizedConv2d
        return convolution.from_dense(module, format, ranks)
    if isinstance(module, nn.Embedding):
        return FactorizedEmbedding.from_dense(module, format, ranks)
    return FactorizedLinear.from_dense(as_linear(module), format, ranks)


def _load(store: CoreStore, cores: Mapping[str, torch.Tensor]) -> None:
    with torch.no_grad():
        for name, core in cores.items():
            store.get_parameter(name).copy_(core)
