"""Theorems and bounds: a number is kept together with the statement behind it."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import StrEnum

# Longer integers are given by their logarithm only: nobody reads them, and Python itself refuses
# to print more than 4,300 digits.
MAX_DIGITS = 4_000
LARGEST_INTEGER = 10**MAX_DIGITS - 1
# Rounding that a bound given only by its logarithm may owe to its float64 formula.
RELATIVE_ROUNDING = 1e-12


class Status(StrEnum):
    """How a statement is known: published, proved here, measured or disputed."""

    PUBLISHED = "published"
    RECALLED = "published, as recalled"
    PROVED_HERE = "proved here"
    MEASURED = "measured, unproved"
    DISPUTED = "published, disputed: see docs/errata.md"


@dataclass(frozen=True)
class Theorem:
    """Where a statement comes from, shown wherever its number is shown.

    Args:
        citation: authors and year, or the name of our own statement.
        label: theorem or equation number.
        arxiv: arXiv id, or None where there is none.
        assumptions: all that must hold; those that can be checked are checked by the function.
        status: published, recalled, proved here, measured or disputed.
    """

    citation: str
    label: str
    arxiv: str | None
    assumptions: tuple[str, ...]
    status: Status = Status.PUBLISHED

    def __str__(self) -> str:
        link = f", arXiv:{self.arxiv}" if self.arxiv else ""
        return f"{self.citation}, {self.label}{link} ({self.status})"

    def to_dict(self) -> dict[str, object]:
        """Plain data for JSON."""
        return {
            "citation": self.citation,
            "label": self.label,
            "arxiv": self.arxiv,
            "assumptions": list(self.assumptions),
            "status": str(self.status),
        }


@dataclass(frozen=True)
class Magnitude:
    """A number that may be too large to write down.

    Args:
        log3: logarithm to the base 3; minus infinity for zero.
        value: the integer itself, or None if it is longer than `MAX_DIGITS` digits or the source
            gives the logarithm only.

    Example:
        >>> Magnitude.of(81)
        Magnitude(log3=4.0, value=81)
    """

    log3: float
    value: int | None = None

    @classmethod
    def of(cls, number: int) -> "Magnitude":
        """The magnitude of an integer that is at least zero."""
        return cls(log3(number), number if number <= LARGEST_INTEGER else None)

    def __str__(self) -> str:
        return f"3^{self.log3:.6g}" if self.value is None else f"{self.value:,}"


def log3(number: int) -> float:
    """Logarithm to the base 3 of an integer of any length; minus infinity for zero.

    Example:
        >>> log3(0), log3(1)
        (-inf, 0.0)
    """
    return math.log(number) / math.log(3) if number > 0 else -math.inf


@dataclass(frozen=True)
class Bound(ABC):
    """A number with its promise; `UpperBound` and `LowerBound` are the two kinds."""

    magnitude: Magnitude
    theorem: Theorem
    quantity: str = "separation rank"

    @property
    def log3(self) -> float:
        """Logarithm to the base 3."""
        return self.magnitude.log3

    @property
    def value(self) -> int | None:
        """The integer, where it fits."""
        return self.magnitude.value

    @property
    @abstractmethod
    def relation(self) -> str:
        """How the quantity compares with the number: <= or >=."""

    @abstractmethod
    def holds_for(self, measured: int) -> bool:
        """Whether a measurement is consistent with the bound."""

    def __str__(self) -> str:
        return f"{self.quantity} {self.relation} {self.magnitude}    [{self.theorem}]"

    def to_dict(self) -> dict[str, object]:
        """Plain data for JSON; the logarithm of zero is None."""
        return {
            "quantity": self.quantity,
            "relation": self.relation,
            "value": self.value,
            "log3": self.log3 if math.isfinite(self.log3) else None,
            "theorem": self.theorem.to_dict(),
        }

    def _rounding(self) -> float:
        return RELATIVE_ROUNDING * max(1.0, abs(self.log3)) if math.isfinite(self.log3) else 0.0


@dataclass(frozen=True)
class UpperBound(Bound):
    """A number no network of the class exceeds.

    Example:
        >>> theorem = Theorem("Nobody (1900)", "Thm 1", None, ())
        >>> bound = UpperBound(Magnitude.of(1234), theorem)
        >>> print(bound)
        separation rank <= 1,234    [Nobody (1900), Thm 1 (published)]
        >>> bound.holds_for(1234), bound.holds_for(1235)
        (True, False)
    """

    @property
    def relation(self) -> str:
        """Always `<=`."""
        return "<="

    def holds_for(self, measured: int) -> bool:
        """Whether a measurement is at most the bound."""
        if self.value is not None:
            return measured <= self.value
        return log3(measured) <= self.log3 + self._rounding()


@dataclass(frozen=True)
class LowerBound(Bound):
    """A number that almost every network of the class reaches.

    Example:
        >>> theorem = Theorem("Nobody (1900)", "Thm 2", None, ())
        >>> print(LowerBound(Magnitude.of(16), theorem, quantity="CP rank"))
        CP rank >= 16    [Nobody (1900), Thm 2 (published)]
    """

    @property
    def relation(self) -> str:
        """Always `>=`."""
        return ">="

    def holds_for(self, measured: int) -> bool:
        """Whether a measurement at almost every choice of weights is at least the bound."""
        if self.value is not None:
            return measured >= self.value
        return log3(measured) >= self.log3 - self._rounding()
