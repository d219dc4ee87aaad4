"""Measured ranks: the split function that is measured, the options, and the result."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from pathlib import Path

import numpy
from numpy.typing import NDArray

from rankscope.display import Table, fragment
from rankscope.errors import MeasurementError, PrimeError
from rankscope.progress import Report, ignore
from rankscope.rank.residues import largest_prime_below, require_prime
from rankscope.theorem import UpperBound
from rankscope.workers import Workers

# --- A network's output as a function of two groups of inputs, modulo a prime ---------------------


Residues = NDArray[numpy.int64]  # in 0..p-1
Numbers = NDArray[numpy.int64]  # of sample points, from 0


class SplitFunction(ABC):
    """The values y(a_p, b_q) modulo a prime, by the numbers p and q of their sample points.

    Attributes:
        prime: all values are residues modulo it.
        num_points: how many points each side has: (rows, columns). None where points are drawn
            from the seed without end; a number where the inputs are finitely many templates.
        num_grades: the output is a sum of this many parts that are homogeneous in the right side;
            1 where nothing is gained by separating them.
    """

    prime: int
    num_points: tuple[int | None, int | None] = (None, None)
    num_grades: int = 1

    @abstractmethod
    def values(self, rows: Numbers, columns: Numbers) -> Residues:
        """The matrix (len(rows), len(columns)) of outputs."""

    def graded_values(self, rows: Numbers, columns: Numbers) -> Residues:
        """The parts (num_grades, len(rows), len(columns)), which add up to the outputs."""
        return self.values(rows, columns)[None]


# --- How a separation rank is to be measured ------------------------------------------------------


_PRIME_LIMIT = 2**31
_FAST_PRIME_LIMIT = 2**24  # below, elimination needs no second product


@dataclass(frozen=True)
class MeasureOptions:
    """Options of the measurement of a separation rank.

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
        max_seconds: of one core that a first sample (512 x 512 at most) may take; refused before
            it begins if the estimate is longer. None for an hour, or for ten seconds if what the
            best bound allows would not fit in memory.
        report: called after every finished tile and elimination.

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
    max_seconds: float | None = None

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
        if self.max_seconds is not None and not self.max_seconds > 0:
            raise MeasurementError(
                f"MeasureOptions: max_seconds must be above 0, got {self.max_seconds}."
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


# --- An exactly measured separation rank, with all that is needed to doubt or to certify it -------


@dataclass(frozen=True)
class Minor:
    """A largest minor found that is not 0 modulo the prime.

    Args:
        grade: which graded part was eliminated, or None for the whole function.
        rows: numbers of the sample points of the left side, ascending.
        columns: numbers of the sample points of the right side, ascending.
        upper: a proved upper bound of this rank, or None.
    """

    grade: int | None
    rows: tuple[int, ...]
    columns: tuple[int, ...]
    upper: int | None = None

    @property
    def size(self) -> int:
        """The rank it proves."""
        return len(self.rows)


@dataclass(frozen=True)
class Run:
    """One measurement modulo one prime; the ranks of graded parts add up.

    `samples` are the rows and columns of the largest matrix that was eliminated.
    """

    prime: int
    seed: int
    minors: tuple[Minor, ...]
    samples: tuple[int, int]

    @property
    def matrix_rank(self) -> int:
        """The rank found, never more than the separation rank of almost all weights."""
        return sum(minor.size for minor in self.minors)

    def failure_probability(self, degree: int) -> float:
        """How likely the run under-reports: one vanishing minor for each part not at its bound.

        By Schwartz and Zippel a minor of size r + 1 of a polynomial of this degree vanishes at
        random residues with probability at most (r + 1) degree / p, unless it vanishes modulo p
        everywhere. Where nothing was drawn (degree 0) nothing can be said.
        """
        open_sizes = [minor.size + 1 for minor in self.minors if minor.size != minor.upper]
        if open_sizes and degree == 0:
            return 1.0
        return min(1.0, sum(open_sizes) * degree / self.prime)


@dataclass(frozen=True)
class MeasuredRank:
    """A certified lower bound of the separation rank, and what bounds it from above.

    Args:
        runs: one for each prime.
        upper: a proved upper bound for all weights, or None.
        degree: of the output in everything that was drawn at random, for the failure probability.
        seconds: how long it took.
        has_given_weights: whether the weights were given rather than drawn: then `lower` holds
            for them and for almost all, and the failure probability is about them alone.
    """

    runs: tuple[Run, ...]
    upper: UpperBound | None
    degree: int
    seconds: float
    has_given_weights: bool = False

    method = "exact"

    @property
    def best(self) -> Run:
        """The run with the largest rank."""
        return max(self.runs, key=lambda run: run.matrix_rank)

    @property
    def lower(self) -> int:
        """The separation rank of almost all weights is at least this."""
        return self.best.matrix_rank

    @property
    def is_exact(self) -> bool:
        """Whether the lower bound meets the proved upper one."""
        return self.upper is not None and self.upper.value == self.lower

    @property
    def failure_probability(self) -> float:
        """How likely the rank of the weights it is about exceeds `lower`; 0 if it cannot be."""
        if self.is_exact:
            return 0.0
        agreeing = [run for run in self.runs if run.matrix_rank == self.lower]
        return math.prod(run.failure_probability(self.degree) for run in agreeing)

    @property
    def failure_condition(self) -> str | None:
        """What the failure probability leaves out, as docs/proofs.md, section 3 has it."""
        if self.failure_probability == 0:
            return None
        primes = " and ".join(str(run.prime) for run in self.runs)
        return f"unless every larger minor of the sample vanishes identically modulo {primes}"

    def __str__(self) -> str:
        whose = (
            "these weights and almost all others"
            if self.has_given_weights
            else "almost all weights"
        )
        if self.is_exact:
            return f"separation rank {self.lower:,} exactly, for {whose}"
        upper = (
            "" if self.upper is None or self.upper.value is None else f" <= {self.upper.value:,}"
        )
        these = "for these weights " if self.has_given_weights else ""
        return (
            f"separation rank >= {self.lower:,}{upper} for {whose}; more than {self.lower:,} "
            f"{these}with probability at most {self.failure_probability:.1e}, "
            f"{self.failure_condition}"
        )

    def __repr__(self) -> str:
        return f"<MeasuredRank: {self}>"

    def _repr_html_(self) -> str:
        rows = [
            (
                str(run.prime),
                str(run.seed),
                f"{run.samples[0]:,} × {run.samples[1]:,}",
                f"{run.matrix_rank:,}",
            )
            for run in self.runs
        ]
        facts = () if self.upper is None else (f"Upper bound: {self.upper}",)
        head = ("modulo", "seed", "samples", "rank")
        return fragment(str(self), facts, Table(head, rows, numbers=(0, 1, 2, 3)))

    def to_dict(self) -> dict[str, object]:
        """Plain data for JSON."""
        return {
            "lower": self.lower,
            "upper": None if self.upper is None else self.upper.value,
            "method": self.method,
            "prime": [run.prime for run in self.runs],
            "samples": list(self.best.samples),
            "seed": self.best.seed,
            "has_given_weights": self.has_given_weights,
            "failure_probability": self.failure_probability,
            "failure_condition": self.failure_condition,
            "degree": self.degree,
            "ranks": [run.matrix_rank for run in self.runs],
            "grades": [minor.size for minor in self.best.minors],
            "theorem": None if self.upper is None else str(self.upper.theorem),
            "seconds": round(self.seconds, 3),
        }
