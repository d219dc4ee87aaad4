"""Uses of each weight by a model: how often, at which sizes, and how long that takes."""

import math
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from rankscope.compression.scores import Batch, run
from rankscope.compression.sites import Site
from rankscope.errors import CompressionError, SizeError
from rankscope.factorize.convolution import ConvolutionSettings, FactorizedConv1d, FactorizedConv2d
from rankscope.factorize.cores import random_cores
from rankscope.factorize.formats.format import KERNEL, Format, Ranks
from rankscope.factorize.formats.plain import DENSE
from rankscope.factorize.linear import FactorizedEmbedding, FactorizedLinear
from rankscope.modes import inference
from rankscope.reading.trace import Operation, Value, trace

# --- How a model uses its weights on one example batch: how often, and on inputs of which sizes


@dataclass(frozen=True)
class Call:
    """One use of a weight.

    Args:
        samples: rows of a matrix's inputs, numbers that are looked up, or the batch of a
            convolution.
        input_sizes: of the positions that a kernel moves over; empty for a matrix.
        steps: how many calls it is made of that cannot run at once (of a recurrent weight).
        channels_last: whether images have their channels last in memory, which is often faster.
        looks_up: whether rows are taken by their numbers; otherwise inputs are multiplied.
    """

    samples: int
    input_sizes: tuple[int, ...] = ()
    steps: int = 1
    channels_last: bool = False
    looks_up: bool = False


@dataclass(frozen=True)
class Usage:
    """How one example batch uses each weight of a model.

    Args:
        calls: of each site that was reached, by name.
        other_flops: operations outside of the sites, as `torch.utils.flop_counter` counts them
            (a multiply-add is two).
        unread: why the uses of a site could not be counted, by its name.
    """

    calls: Mapping[str, tuple[Call, ...]]
    other_flops: int
    unread: Mapping[str, str] = field(default_factory=dict)

    def reason_to_leave(self, site: Site) -> str | None:
        """Why a site must stay as it is; None if its uses are known."""
        if site.name in self.unread:
            return self.unread[site.name]
        return None if site.name in self.calls else "not reached by the example: nothing uses it"


def observe(model: nn.Module, sites: Sequence[Site], example: Batch) -> Usage:
    """Read from the trace of a model where each weight is used, by one walk over its operations.

    A weight is followed by its memory: an operation uses a site if one of the tensors that it takes
    is the site's weight, a view of it, or a copy in another precision. A weight that several
    modules share is so one site with the uses of all of them.

    Raises:
        CompressionError: if the model does not take the example.
        UnsupportedModuleError: if torch cannot export the model, with torch's reason.
    """
    try:
        made = trace(model, example, free_batch=False).at_example()
    except SizeError as error:
        reason = str(error).partition(": ")[2]
        raise CompressionError(
            f"The model does not take the example ({_describe_example(example)}): {reason}"
        ) from error
    named = example if isinstance(example, Mapping) else {}
    reader = _UsageReader(sites)
    with torch.no_grad(), inference(model), FlopCounterMode(display=False) as counter:
        inputs = made.inputs_of(*_positional(example), **named)
        reader.start({**made.arrays, **inputs})
        before = 0
        for operation, results in made.walk(inputs):
            total = counter.get_total_flops()
            reader.read(operation, results, total - before)
            before = total
    calls = {name: tuple(each) for name, each in reader.calls.items() if name not in reader.unread}
    return Usage(calls, reader.other_flops, reader.unread)


def _positional(example: Batch) -> tuple[object, ...]:
    if isinstance(example, Mapping):
        return ()
    return example if isinstance(example, tuple) else (example,)


# Operations that give back the numbers they take, in another shape, order or precision.
_SAME_NUMBERS = frozenset(
    (
        *("alias", "clone", "contiguous", "detach", "identity", "lift_fresh_copy", "to", "type_as"),
        *("view", "reshape", "flatten", "unflatten", "view_as", "reshape_as", "squeeze", "expand"),
        *("unsqueeze", "permute", "transpose", "t", "numpy_T", "swapaxes", "swapdims", "movedim"),
        *("slice", "select", "narrow", "split", "split_with_sizes", "chunk", "unbind"),
    )
)
# The two factors of a product. The first sums over its last position, the second over its last but
# one; of a linear map, both over their last.
_FACTORS = {
    "linear": ("input", "weight"),
    "addmm": ("mat1", "mat2"),
    "mm": ("self", "mat2"),
    "bmm": ("self", "mat2"),
    "baddbmm": ("batch1", "batch2"),
    "matmul": ("self", "other"),
}
# Products of experts, each with rows of its own, and what they call the packed weights.
_GROUPED = {"grouped_mm_fallback": "weight", "_grouped_mm": "mat2"}
_CONVOLUTIONS = ("conv1d", "conv2d", "convolution")
_RECURRENT = ("lstm", "gru")


class _UsageReader:
    """Which values hold the numbers of which sites, and the uses read so far."""

    def __init__(self, sites: Sequence[Site]) -> None:
        self.calls: dict[str, list[Call]] = defaultdict(list)
        self.unread: dict[str, str] = {}
        self.other_flops = 0
        self._sites = sites
        self._held: dict[Value, list[Site]] = {}
        self._channels_last: set[Value] = set()

    def start(self, given: Mapping[Value, Tensor]) -> None:
        """Find the sites among the parameters and buffers that a trace uses."""
        for value, tensor in given.items():
            self._look_at(value, tensor)
            inside = [site for site in self._sites if _share_memory(site.weight, tensor)]
            if inside:
                self._held[value] = inside

    def read(self, operation: Operation, results: Mapping[Value, Any], num_flops: int) -> None:
        """Count one operation with the values that it made."""
        for value, tensor in results.items():
            self._look_at(value, tensor)
        inside = 0
        for value in dict.fromkeys(operation.inputs):
            sites = self._held.get(value, [])
            if sites and operation.kind in _SAME_NUMBERS:
                self._pass_on(sites, results)
            else:
                inside += sum(self._add(site, operation, value) for site in sites)
        self.other_flops += max(0, num_flops - inside)

    def _look_at(self, value: Value, tensor: object) -> None:
        # Of one channel or one place, both orders are the same.
        if (
            isinstance(tensor, Tensor)
            and tensor.ndim == 4
            and tensor.is_contiguous(memory_format=torch.channels_last)
            and not tensor.is_contiguous()
        ):
            self._channels_last.add(value)

    def _pass_on(self, sites: Sequence[Site], results: Mapping[Value, Any]) -> None:
        for output, tensor in results.items():
            self._held[output] = [
                site
                for site in sites
                if not _same_storage(site.weight, tensor) or _share_memory(site.weight, tensor)
            ]

    def _add(self, site: Site, operation: Operation, weight: Value) -> int:
        """Record a use of a site; gives the operations that its dense weight takes for it."""
        call = self._call(site, operation, weight)
        if call is None:
            self.unread[site.name] = (
                f"its weight is used by {operation.kind} in {operation.path or 'the model'}, which "
                "does not multiply it with inputs"
            )
            return 0
        self.calls[site.name].append(call)
        return flops(site, DENSE, (), (call,))

    def _call(self, site: Site, operation: Operation, weight: Value) -> Call | None:
        kind = operation.kind
        call: Call | None = None
        if kind in _FACTORS:
            call = self._product(operation, weight)
        elif kind in _GROUPED and operation[_GROUPED[kind]] is weight and site.is_packed:
            call = Call(operation.inputs[0].shape[0])
        elif kind == "embedding" and operation["weight"] is weight:
            call = Call(math.prod(operation["indices"].shape), looks_up=True)
        elif kind in _CONVOLUTIONS and operation["weight"] is weight:
            call = self._convolution(site, operation["input"])
        elif kind in _RECURRENT:
            call = _recurrent(site, operation)
        return call

    def _product(self, operation: Operation, weight: Value) -> Call | None:
        first, second = (operation[name] for name in _FACTORS[operation.kind])
        if (first in self._held and second in self._held) or weight not in (first, second):
            return None
        if weight is second:
            return Call(math.prod(first.shape[:-1]))
        is_transposed = operation.kind != "linear" and len(second.shape) > 1
        summed = second.shape[-2 if is_transposed else -1]
        return Call(math.prod(second.shape) // max(summed, 1))

    def _convolution(self, site: Site, inputs: Value) -> Call:
        count = len(site.shape.kernel)
        sizes = inputs.shape[-count:]
        if site.window.padding_mode != "zeros":  # then they were padded by an operation before
            pairs = zip(sizes, site.window.margins, strict=True)
            sizes = tuple(size - sum(margins) for size, margins in pairs)
        batch = inputs.shape[0] if len(inputs.shape) == count + 2 else 1
        return Call(batch, sizes, channels_last=inputs in self._channels_last)


def _recurrent(site: Site, operation: Operation) -> Call:
    inputs, batch_first = operation["input"].shape, bool(operation["batch_first"])
    length = inputs[1 if batch_first and len(inputs) == 3 else 0]
    steps = 1 if site.part.startswith("weight_ih") else length
    return Call(math.prod(inputs[:-1]), steps=steps)


def _same_storage(one: Tensor, other: object) -> bool:
    return isinstance(other, Tensor) and (
        one.untyped_storage().data_ptr() == other.untyped_storage().data_ptr()
    )


def _share_memory(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors lie in one storage, and their places from first to last overlap."""
    if not _same_storage(one, other):
        return False
    (start, stop), (begin, end) = _places(one), _places(other)
    return start < end and begin < stop


def _places(tensor: Tensor) -> tuple[int, int]:
    steps = zip(tensor.shape, tensor.stride(), strict=True)
    extent = 1 + sum((size - 1) * stride for size, stride in steps)
    start = tensor.data_ptr()
    return start, start + (extent * tensor.element_size() if tensor.numel() else 0)


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


def flops(site: Site, format: Format, ranks: Ranks, calls: Iterable[Call]) -> int:
    """Operations of a site's weight in a format, core after core; a multiply-add counts two.

    Rows of an embedding are looked up in the cores that hold them, which costs nothing, and what is
    found is multiplied. A sample meets the place of one expert in the cores that hold experts.
    """
    if site.is_packed:
        legs, count = format.legs(site.shape), site.shape.kernel[0]
        each = sum(
            2 * math.prod(sizes) // (count if KERNEL[0] in legs[name] else 1)
            for name, sizes in format.core_shapes(site.shape, ranks).items()
        )
        return each * sum(call.samples for call in calls)
    return sum(
        format.row_flops(site.shape, ranks, call.samples)
        if call.looks_up
        else format.flops(site.shape, ranks, site.window, call.input_sizes, call.samples)
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
        key = (site.shape, site.window, site.weight.dtype, call, name, ranks)
        if key not in self._known:
            inputs = _inputs(site, call)
            used = (
                _dense(site, call)
                if format is None
                else _factorize(site, call, format, ranks).eval()
            )
            self._known[key] = call.steps * self._fastest(lambda: used(inputs))
        return self._known[key]

    def _fastest(self, call: Callable[[], object]) -> float:
        seconds = []
        with torch.no_grad():
            for _ in range(1 + self.repeats):
                seconds.append(_seconds(call))
        return min(seconds[1:])


def _inputs(site: Site, call: Call) -> Tensor:
    shape, device = site.shape, site.weight.device
    rows = -(-call.samples // call.steps)
    if call.looks_up:
        return torch.zeros(rows, dtype=torch.long, device=device)
    channels = site.groups * shape.in_size
    inputs = torch.randn(rows, channels, *call.input_sizes, dtype=site.weight.dtype, device=device)
    return inputs.contiguous(memory_format=torch.channels_last) if call.channels_last else inputs


def _dense(site: Site, call: Call) -> Callable[[Tensor], Tensor]:
    cores = {"weight": site.weight.flatten(0, 1)}
    if call.looks_up:
        return lambda numbers: DENSE.rows(cores, site.shape, numbers)
    return lambda inputs: DENSE.apply(inputs, cores, site.shape, site.window)


def _factorize(site: Site, call: Call, format: Format, ranks: Ranks) -> nn.Module:
    shape, weight = site.shape, site.weight
    cores = random_cores(
        format, shape, ranks, groups=site.groups, device=weight.device, dtype=weight.dtype
    )
    if call.looks_up:
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
    pairs = [
        [_seconds(partial(run, model, example)) for model in models] for _ in range(1 + repeats)
    ][1:]
    dense, compressed = zip(*pairs, strict=True)
    return Latency(
        batch_size,
        statistics.median(dense),
        statistics.median(compressed),
        statistics.median(after / before for before, after in pairs),
        repeats,
        torch.get_num_threads(),
    )


def _seconds(call: Callable[[], object]) -> float:
    """How long a call takes; one thread that waits for a busy machine does not count its waiting.

    With several threads, or on another device, the clock on the wall is all there is.
    """
    is_alone = torch.get_num_threads() == 1 and not torch.cuda.is_available()
    clock = time.thread_time if is_alone else time.perf_counter
    start = clock()
    call()
    return clock() - start
