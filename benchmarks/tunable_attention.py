"""Forms of attention with a softmax, against multi-head attention that never builds its maps.

Memory is that of the tensors that one training step holds at once; what operations free themselves
is not seen.
"""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from benchmarks.live_memory import peak_bytes
from benchmarks.timing import time_ratio
from rankscope.factorize.attention import CPAttention, FactorizedMultiheadAttention
from rankscope.factorize.tunable_attention import TunableAttention

NAME = "tunable_attention"
CHANNELS, HEADS, TOKENS = 64, 8, 256
BATCHES = (1, 8)


def run() -> Iterator[dict[str, object]]:
    """The forms compute the same function as heads where they contain them."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    for batch in BATCHES:
        yield tunable_core(batch)
        yield channels_as_heads(batch)


def tunable_core(batch: int) -> dict[str, object]:
    """At most twice the memory of heads, by blocks; the time is that of R² products."""
    dense = nn.MultiheadAttention(CHANNELS, HEADS, batch_first=True)
    heads = FactorizedMultiheadAttention.of(dense)
    tunable = TunableAttention.from_multihead(dense)
    whole = TunableAttention.from_multihead(dense)
    whole.max_entries = 2**40
    inputs = _inputs(batch, CHANNELS)
    _require_same(tunable, heads, inputs)
    memory = {
        name: peak_bytes(_training(layer, inputs))
        for name, layer in {"heads": heads, "tunable": tunable, "whole": whole}.items()
    }
    over_heads, seconds = time_ratio(
        _training(tunable, inputs), _training(heads, inputs), repeats=3
    )
    return {
        "case": f"tunable core, {CHANNELS} channels, {TOKENS} tokens, batch {batch}",
        "heads_bytes": memory["heads"],
        "bytes": memory["tunable"],
        "memory_over_heads": round(memory["tunable"] / memory["heads"], 2),
        "without_blocks_over_heads": round(memory["whole"] / memory["heads"], 2),
        "time_over_heads": round(over_heads, 1),
        "seconds": round(seconds, 4),
    }


def channels_as_heads(batch: int) -> dict[str, object]:
    """CP attention with R = H against PyTorch's attention of as many heads of size 1."""
    dense = nn.MultiheadAttention(HEADS, HEADS, batch_first=True)
    layer = CPAttention.from_multihead(dense)
    inputs = _inputs(batch, HEADS)
    _require_same(layer, dense, inputs)
    ratio, seconds = time_ratio(_training(layer, inputs), _training(dense, inputs), repeats=41)
    return {
        "case": f"CP, {HEADS} channels, {TOKENS} tokens, batch {batch}",
        "time_over_heads_of_size_1": round(ratio, 3),
        "seconds": round(seconds, 5),
    }


def _inputs(batch: int, features: int) -> Tensor:
    return torch.randn(batch, TOKENS, features, requires_grad=True)


def _require_same(layer: nn.Module, other: nn.Module, inputs: Tensor) -> None:
    outputs, wanted = (
        each(inputs, inputs, inputs, need_weights=False)[0] for each in (layer, other)
    )
    torch.testing.assert_close(outputs, wanted, rtol=1e-3, atol=1e-4)


def _training(layer: nn.Module, inputs: Tensor) -> Callable[[], object]:
    def step() -> None:
        layer.zero_grad(set_to_none=True)
        inputs.grad = None
        layer(inputs, inputs, inputs, need_weights=False)[0].sum().backward()

    return step
