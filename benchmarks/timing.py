"""Timing in pairs, so that noise hits both sides."""

import statistics
import time
from collections.abc import Callable


def seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def time_ratio(
    first: Callable[[], object],
    second: Callable[[], object],
    *,
    repeats: int = 21,
    warm: int = 3,
    warm_each: bool = False,
) -> tuple[float, float]:
    """Median of time(first) / time(second) over paired calls, and the median time of the first.

    With `warm_each`, every timed call follows an untimed one of the same side.
    """
    time_of = _warm_seconds if warm_each else seconds
    pairs = [(time_of(first), time_of(second)) for _ in range(warm + repeats)][warm:]
    ratio = statistics.median(a / b for a, b in pairs)
    return ratio, statistics.median(a for a, _ in pairs)


def _warm_seconds(call: Callable[[], object]) -> float:
    call()
    return seconds(call)
