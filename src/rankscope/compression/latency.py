"""Seconds that a weight takes on this machine, measured at the sizes of its real inputs.

Everything is timed in one process with the threads that PyTorch has, in inference mode, as the
fastest of several calls: whatever else the machine does can only add to it. A budget in seconds is
kept as estimated, by the sum of these.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from rankscope.compression.scores import Batch, run
from rankscope.compression.sites import Site
from rankscope.compression.usage import Call
from rankscope.layers.convolution import ConvolutionSettings, FactorizedConv1d, FactorizedConv2d
from rankscope.layers.cores import random_cores
from rankscope.layers.embedding import FactorizedEmbedding
from rankscope.layers.formats.format import Format, Ranks
from rankscope.layers.formats.plain import DENSE
from rankscope.layers.linear import FactorizedLinear
from rankscope.modes import inference

NUM_MEASURED = 5  # ranks of a ladder that are timed; between them it is interpolated


@dataclass
class Stopwatch:
    """Times weights, and remembers: layers of the same sizes are timed once.

    Args:
        repeats: calls of which the fastest counts, after one that is not counted.
    """

    repeats: int = 7
    _known: dict[object, float] = field(default_factory=dict)

    def of_model(self, model: nn.Module, example: Batch) -> float:
        """Seconds of one forward pass."""
        with inference(model):
            return self._fastest(lambda: run(model, example))

    def of_site(
        self, site: Site, calls: Sequence[Call], format: Format | None = None, ranks: Ranks = ()
    ) -> float:
        """Seconds that a site takes in one forward pass of the model; dense without a format."""
        return sum(self._of_call(site, call, format, ranks) for call in calls)

    def _of_call(self, site: Site, call: Call, format: Format | None, ranks: Ranks) -> float:
        name = None if format is None else format.name
        kind = site.kind == "Embedding"
        key = (kind, site.shape, site.window, site.weight.dtype, call, name, ranks)
        if key not in self._known:
            inputs = _inputs(site, call)
            used = _dense(site) if format is None else _factorized(site, format, ranks).eval()
            self._known[key] = call.steps * self._fastest(lambda: used(inputs))
        return self._known[key]

    def _fastest(self, call: Callable[[], object]) -> float:
        seconds = []
        with torch.no_grad():
            for _ in range(1 + self.repeats):
                start = time.perf_counter()
                call()
                seconds.append(time.perf_counter() - start)
        return min(seconds[1:])


def _inputs(site: Site, call: Call) -> Tensor:
    shape, device = site.shape, site.weight.device
    rows = -(-call.samples // call.steps)
    if site.kind == "Embedding":
        return torch.zeros(rows, dtype=torch.long, device=device)
    channels = site.groups * shape.in_size
    inputs = torch.randn(rows, channels, *call.input_sizes, dtype=site.weight.dtype, device=device)
    return inputs.contiguous(memory_format=torch.channels_last) if call.channels_last else inputs


def _dense(site: Site) -> Callable[[Tensor], Tensor]:
    cores = {"weight": site.weight.flatten(0, 1)}
    if site.kind == "Embedding":
        return lambda numbers: DENSE.rows(cores, site.shape, numbers)
    return lambda inputs: DENSE.apply(inputs, cores, site.shape, site.window)


def _factorized(site: Site, format: Format, ranks: Ranks) -> nn.Module:
    shape, weight = site.shape, site.weight
    cores = random_cores(
        format, shape, ranks, groups=site.groups, device=weight.device, dtype=weight.dtype
    )
    if site.kind == "Embedding":
        return FactorizedEmbedding(cores, shape, format, ranks)
    if not shape.kernel:
        return FactorizedLinear.from_cores(cores, shape, format, ranks)
    window = site.window
    settings = ConvolutionSettings(
        shape.kernel,
        window.stride,
        window.padding if window.padding_after is None else "same",  # nothing else is uneven
        window.dilation,
        window.groups,
        window.padding_mode,
    )
    layer = FactorizedConv1d if len(shape.kernel) == 1 else FactorizedConv2d
    return layer(format, ranks, shape, settings, cores)
