"""Softmax-free attention on all pairs of half-inputs, against PyTorch's batched float64 forward.

Ours draws the points, computes their moments and evaluates every pair exactly modulo a prime;
PyTorch gets its inputs ready-made, in batches that fit the cache. Eight tokens, one thread.
"""

from collections.abc import Iterator

import numpy
import torch

from benchmarks.timing import seconds, time_ratio
from rankscope.rank.networks.self_attention import SelfAttention
from rankscope.rank.partition import Partition

NAME = "attention"
PRIME = 16777213
POINTS = 256
BATCH = 4096
CASES = ((2, 4, 1), (3, 4, 1), (3, 8, 2))  # depth, width, heads


def run() -> Iterator[dict[str, object]]:
    """Check that both evaluate the same network, then time them in pairs."""
    torch.set_num_threads(1)
    for depth, width, heads in CASES:
        network = SelfAttention(depth=depth, width=width, heads=heads, num_tokens=8).double()
        case = f"depth {depth}, width {width}, {heads} heads"
        yield {"case": case, **_against_torch(network)}


def _against_torch(network: SelfAttention) -> dict[str, object]:
    partition = Partition.interleaved(8)
    function = network.split(partition, seed=0, prime=PRIME)
    few, points = numpy.arange(16), numpy.arange(POINTS)
    expected = network.reference_split(partition, seed=0, prime=PRIME).values(few, few)
    assert numpy.array_equal(function.values(few, few), expected)
    assert numpy.array_equal(function.graded_values(few, few).sum(0) % PRIME, expected)
    inputs = torch.randn(POINTS**2 // BATCH, BATCH, 8, network.width, dtype=torch.float64)

    def forward() -> None:
        with torch.no_grad():
            for batch in inputs:
                network(batch)

    ratio, slow = time_ratio(forward, lambda: function.values(points, points), repeats=7)
    graded = min(seconds(lambda: function.graded_values(points, points)) for _ in range(3))
    return {
        "torch_pairs_per_second": round(POINTS**2 / slow),
        "pairs_per_second": round(POINTS**2 / slow * ratio),
        "times_torch": round(ratio, 1),
        "grades": function.num_grades,
        "pairs_per_second_all_grades": round(POINTS**2 / graded),
    }
