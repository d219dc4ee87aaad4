"""Values by the defining equations against the definition's, and certificates on all cores."""

from collections.abc import Iterator
from pathlib import Path
from time import perf_counter, process_time

import numpy

from rankscope.rank import (
    Certificate,
    CertifiedMinor,
    DrawnWeights,
    Partition,
    SelfAttention,
    estimate_verification,
    read_certificate,
    verify,
)
from rankscope.rank.defining_equations import DefinedFunction, evaluation_cost
from rankscope.rank.networks.network import PairwiseFunction

PRIME = 16_777_213
POINTS = numpy.arange(40)
KEPT = Path(__file__).parents[1] / "docs/certificates/attention-depth-2-width-8-heads-2.json"


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
    yield verified("rank 989", read_certificate(KEPT))
    yield verified("256 tokens, width 64, a minor of 18", small_certificate())


def verified(name: str, certificate: Certificate) -> dict[str, object]:
    """Wall time of checking a certificate, and what was estimated before."""
    estimated = estimate_verification(certificate).seconds
    started = perf_counter()
    verdict = verify(certificate)
    assert verdict.is_proved, verdict.reason
    return {
        "certificate": name,
        "wall_seconds": round(perf_counter() - started, 1),
        "estimated_seconds": round(estimated, 1),
    }


def small_certificate() -> Certificate:
    """A minor that takes a verifier long for its size: long sequences of wide tokens."""
    network = SelfAttention(depth=2, width=64, heads=1, num_tokens=256)
    points = tuple(range(18))
    return Certificate(
        family=network.family,
        settings=network.settings,
        partition=Partition.interleaved(network.num_positions),
        weights=DrawnWeights(0),
        points_seed=0,
        prime=PRIME,
        lower=18,
        minors=(CertifiedMinor(None, points, points),),
    )
