"""Timing in pairs, so that noise hits both sides."""

import statistics
import time
from collections.abc import Callable


def seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def processor_seconds(call: Callable[[], object]) -> float:
    start = time.process_time()
    call()
    return time.process_time() - start


def processor_time_ratio(
    first: Callable[[], object], second: Callable[[], object], *, repeats: int = 11
) -> tuple[float, float]:
    """As `time_ratio`, in processor time, which other work on the machine disturbs less.

    Which of the two comes first changes from pair to pair.
    """
    pairs = []
    for place in range(repeats + 1):
        if place % 2:
            time_of_second, time_of_first = processor_seconds(second), processor_seconds(first)
        else:
            time_of_first, time_of_second = processor_seconds(first), processor_seconds(second)
        pairs.append((time_of_first, time_of_second))
    ratio = statistics.median(a / b for a, b in pairs[1:])
    return ratio, statistics.median(a for a, _ in pairs[1:])


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
