"""Values by the defining equations: the verifier's arithmetic against that of the definition."""

from collections.abc import Iterator
from time import process_time

import numpy

from rankscope.rank import Partition, SelfAttention
from rankscope.rank.defining_equations import DefinedFunction, evaluation_cost
from rankscope.rank.networks.network import PairwiseFunction

PRIME = 16_777_213
POINTS = numpy.arange(40)


def run() -> Iterator[dict[str, object]]:
    """Processor time of both for the same values, and what was estimated before."""
    for width, heads in ((8, 2), (32, 1)):
        network = SelfAttention(depth=2, width=width, heads=heads)
        partition = Partition.interleaved(network.num_positions)
        weights = network.draw_weights(0, PRIME)
        functions = [
            kind(network, partition, seed=0, prime=PRIME, weights=weights)
            for kind in (DefinedFunction, PairwiseFunction)
        ]
        seconds, values = [], []
        for function in functions:
            function.values(POINTS[:4], POINTS[:4])
            started = process_time()
            values.append(function.values(POINTS, POINTS))
            seconds.append((process_time() - started) / len(POINTS) ** 2)
        assert (values[0] == values[1]).all()
        estimated = evaluation_cost(network).seconds
        yield {
            "width": width,
            "heads": heads,
            "microseconds": round(seconds[0] * 1e6, 1),
            "times_faster": round(seconds[1] / seconds[0], 2),
            "estimate_over_measured": round(estimated / seconds[0], 2),
        }
