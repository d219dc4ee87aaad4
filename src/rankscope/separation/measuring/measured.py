"""An exactly measured separation rank, with all that is needed to doubt or to certify it."""

import math
from dataclasses import dataclass

from rankscope.theorem import UpperBound


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
            f"{these}with probability at most {self.failure_probability:.1e}"
        )

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
            "degree": self.degree,
            "ranks": [run.matrix_rank for run in self.runs],
            "grades": [minor.size for minor in self.best.minors],
            "theorem": None if self.upper is None else str(self.upper.theorem),
            "seconds": round(self.seconds, 3),
        }
