"""Uses of each weight by a model: how often, at which sizes, and how long that takes."""

import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence
from torch.utils.flop_counter import FlopCounterMode

from rankscope.compression.calibration import bound_arguments
from rankscope.compression.scores import Batch, run
from rankscope.compression.sites import Site
from rankscope.errors import CompressionError
from rankscope.factorize.convolution import ConvolutionSettings, FactorizedConv1d, FactorizedConv2d
from rankscope.factorize.cores import random_cores
from rankscope.factorize.formats.format import Format, Ranks
from rankscope.factorize.formats.plain import DENSE
from rankscope.factorize.linear import FactorizedEmbedding, FactorizedLinear
from rankscope.modes import inference

# --- How a model uses its weights on one example batch: how often, and on inputs of which sizes


@dataclass(frozen=True)
class Call:
    """One use of a weight.

    Args:
        samples: rows of a matrix's inputs, or the batch of a convolution.
        input_sizes: of the positions that a kernel moves over; empty for a matrix.
        steps: how many calls it is made of that cannot run at once (of a recurrent weight).
        channels_last: whether images have their channels last in memory, which is often faster.
    """

    samples: int
    input_sizes: tuple[int, ...] = ()
    steps: int = 1
    channels_last: bool = False


@dataclass(frozen=True)
class Usage:
    """How one example batch uses each weight of a model.

    Args:
        calls: of each site that was reached, by name.
        other_flops: operations outside of the sites, as `torch.utils.flop_counter` counts them
            (a multiply-add is two).
        reached: names of all modules that were called.
    """

    calls: Mapping[str, tuple[Call, ...]]
    other_flops: int
    reached: frozenset[str]


def observe(model: nn.Module, sites: Sequence[Site], example: Batch) -> Usage:
    """Run a model once in inference mode, and watch its sites.

    Hooks, not the trace: what is wanted is one real call of a module by the names of its arguments
    (the queries, keys and values of an attention layer, a packed sequence) and the order of its
    images in memory. It is observed, not read from `forward`, so that models that torch cannot
    export are compressed too.

    Raises:
        CompressionError: if the model does not take the example.
    """
    watch = _Watch(sites)
    handles = []
    for name, module in model.named_modules():
        entering = watch.entering(name)
        handles.append(module.register_forward_pre_hook(entering, with_kwargs=True))
        if name in watch.parts:
            handles.append(module.register_forward_hook(watch.leaving))
    try:
        with torch.no_grad(), inference(model), watch.counter:
            run_example(model, example)
    finally:
        for handle in handles:
            handle.remove()
    calls = {name: tuple(each) for name, each in watch.calls.items()}
    other = watch.counter.get_total_flops() - watch.inside
    return Usage(calls, other, frozenset(watch.reached))


class _Watch:
    """The calls that hooks have recorded so far."""

    def __init__(self, sites: Sequence[Site]) -> None:
        self.parts: dict[str, list[Site]] = defaultdict(list)
        for site in sites:
            self.parts[site.module_name].append(site)
        self.calls: dict[str, list[Call]] = defaultdict(list)
        self.reached: set[str] = set()
        self.counter = FlopCounterMode(display=False)
        self.inside = 0
        self._before = 0

    def entering(self, name: str) -> Callable[..., None]:
        def hook(module: nn.Module, given: tuple[Any, ...], named: dict[str, Any]) -> None:
            self.reached.add(name)
            if name not in self.parts:
                return
            self._before = self.counter.get_total_flops()
            arguments = bound_arguments(module, given, named)
            for site in self.parts[name]:
                self.calls[site.name].append(_call(module, site.part, arguments))

        return hook

    def leaving(self, module: nn.Module, given: object, output: object) -> None:
        del module, given, output
        self.inside += self.counter.get_total_flops() - self._before


def run_example(model: nn.Module, example: Batch) -> object:
    """Call a model with an example.

    Raises:
        CompressionError: if it raises, with the shapes it was given.
    """
    try:
        return run(model, example)
    except (RuntimeError, TypeError, ValueError, IndexError) as error:
        raise CompressionError(
            f"The model does not take the example ({_describe_example(example)}): {error}"
        ) from error


def _describe_example(example: Batch) -> str:
    if isinstance(example, Tensor):
        return f"shape {tuple(example.shape)}, {example.dtype}"
    values = example.values() if isinstance(example, Mapping) else example
    shapes = [tuple(value.shape) for value in values if isinstance(value, Tensor)]
    return f"shapes {', '.join(map(str, shapes))}"


def _call(module: nn.Module, part: str, arguments: Mapping[str, Any]) -> Call:
    match module:
        case nn.Conv1d() | nn.Conv2d():
            return _of_convolution(module, arguments["input"])
        case nn.LSTM() | nn.GRU():
            return _of_recurrent(module, part, arguments["input"])
        case nn.Embedding():
            return Call(arguments["input"].numel())
    source = {"weight": "input", "out": "query"}.get(part, part)
    inputs = arguments[source]
    return Call(inputs.numel() // inputs.shape[-1])


def _of_convolution(module: nn.Conv1d | nn.Conv2d, inputs: Tensor) -> Call:
    settings = ConvolutionSettings.of(module)
    sizes = tuple(inputs.shape[-len(settings.kernel) :])
    batch = inputs.shape[0] if inputs.ndim == len(settings.kernel) + 2 else 1
    last = inputs.ndim == 4 and inputs.is_contiguous(memory_format=torch.channels_last)
    # Of one channel or one place, both orders are the same.
    return Call(batch, sizes, channels_last=last and not inputs.is_contiguous())


def _of_recurrent(module: nn.LSTM | nn.GRU, part: str, inputs: Tensor | PackedSequence) -> Call:
    if isinstance(inputs, PackedSequence):
        rows, length = len(inputs.data), len(inputs.batch_sizes)
    else:
        rows = inputs.numel() // inputs.shape[-1]
        length = inputs.shape[1 if module.batch_first and inputs.ndim == 3 else 0]
    return Call(rows, steps=1 if part.startswith("weight_ih") else length)


def flops(site: Site, format: Format, ranks: Ranks, calls: Iterable[Call]) -> int:
    """Operations of a site's weight in a format, core after core; a multiply-add counts two.

    Rows of an embedding are looked up in the cores that hold them, which costs nothing, and what is
    found is multiplied.
    """
    if site.kind == "Embedding":
        return format.row_flops(site.shape, ranks, sum(call.samples for call in calls))
    return sum(
        format.flops(site.shape, ranks, site.window, call.input_sizes, call.samples)
        for call in calls
    )


# --- Seconds that a weight takes on this machine, measured at the sizes of its real inputs --------


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
            used = _dense(site) if format is None else _factorize(site, format, ranks).eval()
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


def _factorize(site: Site, format: Format, ranks: Ranks) -> nn.Module:
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


# --- How long two models take on the same inputs, measured in pairs -------------------------------


BATCH_SIZES = (1, 64)
REPEATS = 9


@dataclass(frozen=True)
class Latency:
    """Seconds of one forward pass, dense and compressed.

    Args:
        batch_size: number of samples in the pass.
        dense_seconds: median over all pairs.
        compressed_seconds: median over all pairs.
        ratio: median of compressed / dense over all pairs; below 1 is faster than dense.
        repeats: number of pairs, after one that was not counted.
        threads: that PyTorch used.
    """

    batch_size: int
    dense_seconds: float
    compressed_seconds: float
    ratio: float
    repeats: int
    threads: int


def measure_latency(
    dense: nn.Module,
    compressed: nn.Module,
    example: Batch,
    *,
    batch_sizes: Sequence[int] = BATCH_SIZES,
    repeats: int = REPEATS,
) -> tuple[Latency, ...]:
    """Time two models side by side in inference mode, at several batch sizes.

    Args:
        dense: the model before.
        compressed: the model after.
        example: inputs with the batch first; its samples are repeated to fill each batch.
        batch_sizes: numbers of samples.
        repeats: pairs of calls at each size.

    Raises:
        CompressionError: if there is nothing to measure, or the example has no batch.
    """
    if repeats < 1 or any(size < 1 for size in batch_sizes):
        raise CompressionError(
            f"measure_latency: wanted at least 1 repeat of batches of at least 1 sample, got "
            f"{repeats} of {tuple(batch_sizes)}."
        )
    with torch.no_grad(), inference(dense), inference(compressed):
        return tuple(
            _latency((dense, compressed), repeat_batch(example, size), size, repeats)
            for size in batch_sizes
        )


def repeat_batch(example: Batch, batch_size: int) -> Batch:
    """Repeat the example batch up to a number of samples.

    Example:
        >>> repeat_batch(torch.arange(3), 5)
        tensor([0, 1, 2, 0, 1])

    Raises:
        CompressionError: if a tensor of the example has no samples.
    """
    if isinstance(example, Mapping):
        return {name: _repeat(value, batch_size) for name, value in example.items()}
    if isinstance(example, tuple):
        return tuple(_repeat(value, batch_size) for value in example)
    return _resized_tensor(example, batch_size)


def _repeat(value: object, batch_size: int) -> object:
    return _resized_tensor(value, batch_size) if isinstance(value, Tensor) else value


def _resized_tensor(value: Tensor, batch_size: int) -> Tensor:
    if value.ndim == 0 or len(value) == 0:
        raise CompressionError(
            f"An example must hold samples along its first position, got the shape "
            f"{tuple(value.shape)}."
        )
    return value[torch.arange(batch_size) % len(value)]


def _latency(
    models: tuple[nn.Module, nn.Module], example: Batch, batch_size: int, repeats: int
) -> Latency:
    pairs = [[_seconds(model, example) for model in models] for _ in range(1 + repeats)][1:]
    dense, compressed = zip(*pairs, strict=True)
    return Latency(
        batch_size,
        statistics.median(dense),
        statistics.median(compressed),
        statistics.median(after / before for before, after in pairs),
        repeats,
        torch.get_num_threads(),
    )


def _seconds(model: nn.Module, example: Batch) -> float:
    start = time.perf_counter()
    run(model, example)
    return time.perf_counter() - start
