"""How a separation rank is to be measured."""

import math
from dataclasses import dataclass, field
from pathlib import Path

from rankscope.errors import MeasurementError, PrimeError
from rankscope.progress import Report, ignore
from rankscope.separation.exact.primes import largest_prime_below, require_prime
from rankscope.workers import Workers

_PRIME_LIMIT = 2**31
_FAST_PRIME_LIMIT = 2**24  # below, elimination needs no second product


@dataclass(frozen=True)
class MeasureOptions:
    """How a separation rank is to be measured.

    Args:
        seed: draws the weights and the sample points, together with each prime.
        primes: all of these are used; None takes the largest below 2^24, one after the other,
            until the rank is exact or `max_failure` is reached, but no more than `max_primes`.
        is_graded: whether to measure the parts that are homogeneous in the right side one by
            one; None does so where the whole matrix would be large.
        max_failure: how unlikely a rank larger than the reported one shall be.
        max_primes: see `primes`.
        memory_limit: in bytes; None for four fifths of what is available.
        checkpoint: a folder to keep finished tiles in; the same call goes on from there.
        workers: who computes the tiles.
        report: told of every finished tile and elimination.

    Raises:
        MeasurementError: if a number is out of range.
        PrimeError: if a given prime is none, is 2^31 or more, or comes twice.
    """

    seed: int = 0
    primes: tuple[int, ...] | None = None
    is_graded: bool | None = None
    max_failure: float = 1e-6
    max_primes: int = 4
    memory_limit: int | None = None
    checkpoint: Path | None = None
    workers: Workers = field(default_factory=Workers)
    report: Report = ignore

    def __post_init__(self) -> None:
        if self.seed < 0:
            raise MeasurementError(f"MeasureOptions: the seed must be 0 or more, got {self.seed}.")
        if not 0 <= self.max_failure <= 1 or math.isnan(self.max_failure):
            raise MeasurementError(
                f"MeasureOptions: max_failure is a probability in 0..1, got {self.max_failure}."
            )
        if self.max_primes < 1:
            raise MeasurementError(
                f"MeasureOptions: max_primes must be at least 1, got {self.max_primes}."
            )
        if self.memory_limit is not None and self.memory_limit < 1:
            raise MeasurementError(
                f"MeasureOptions: memory_limit is a number of bytes, got {self.memory_limit}."
            )
        if self.primes is not None:
            _require_primes(self.primes)

    def primes_for(self, degree: int) -> tuple[int, ...]:
        """The primes to use, in order, for a polynomial of this degree.

        Example:
            >>> MeasureOptions(max_primes=3).primes_for(79)
            (16777213, 16777199, 16777183)

        Raises:
            PrimeError: if one of them is not larger than the degree.
        """
        primes = self.primes or _largest_primes_below(_FAST_PRIME_LIMIT, self.max_primes)
        for prime in primes:
            if prime <= degree:
                largest = largest_prime_below(_PRIME_LIMIT)
                advice = (
                    f"Use primes=({largest},)."
                    if degree < largest
                    else f"Even {largest}, the largest one that fits the arithmetic, is not."
                )
                raise PrimeError(
                    f"A polynomial of degree {degree} may vanish everywhere modulo a prime that "
                    f"is not larger, got {prime}. {advice}"
                )
        return primes


DEFAULT_OPTIONS = MeasureOptions()


def _require_primes(primes: tuple[int, ...]) -> None:
    if not primes or len(set(primes)) < len(primes):
        raise PrimeError(
            f"MeasureOptions: primes must be different and at least one, got {primes}. "
            f"Leave them out for the largest below 2^24."
        )
    for prime in primes:
        require_prime(prime, below=_PRIME_LIMIT, who="MeasureOptions")


def _largest_primes_below(limit: int, count: int) -> tuple[int, ...]:
    primes: list[int] = []
    while len(primes) < count:
        limit = largest_prime_below(limit)
        primes.append(limit)
    return tuple(primes)
