"""Timing in pairs, so that noise hits both sides."""

import statistics
import time
from collections.abc import Callable


def seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def time_ratio(
    first: Callable[[], object], second: Callable[[], object], *, repeats: int = 21, warm: int = 3
) -> tuple[float, float]:
    """Median of time(first) / time(second) over paired calls, and the median time of the first."""
    pairs = [(seconds(first), seconds(second)) for _ in range(warm + repeats)][warm:]
    ratio = statistics.median(a / b for a, b in pairs)
    return ratio, statistics.median(a for a, _ in pairs)
