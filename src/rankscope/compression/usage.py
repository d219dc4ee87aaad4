"""How a model uses its weights on one example batch: how often, and on inputs of which sizes."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence
from torch.utils.flop_counter import FlopCounterMode

from rankscope.compression.observers import bound_arguments
from rankscope.compression.scores import Batch, run
from rankscope.compression.sites import Site
from rankscope.errors import CompressionError
from rankscope.layers.convolution import ConvolutionSettings
from rankscope.layers.formats.format import Format, Ranks
from rankscope.modes import inference


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
    """What one example batch does to a model.

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
    """What hooks have seen so far."""

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
            f"The model does not take the example ({_described(example)}): {error}"
        ) from error


def _described(example: Batch) -> str:
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
