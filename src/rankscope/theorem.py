"""Theorems and bounds: a number is kept together with the statement behind it."""

import decimal
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import StrEnum

from rankscope.display import fragment

# Longer integers are given by their logarithm only: nobody reads them, and Python itself refuses
# to print more than 4,300 digits.
MAX_DIGITS = 4_000
LARGEST_INTEGER = 10**MAX_DIGITS - 1
# Rounding that a bound given only by its logarithm may owe to its float64 formula: sums of up to
# 2^18 positive terms, each good to a few units in the last place.
RELATIVE_ROUNDING = 1e-10
# Longer integers are printed as a power of 3: columns stay readable.
_LARGEST_PRINTED = 10**40
# Digits of a logarithm that are printed.
LOGARITHM_DIGITS = 6
# Beyond this logarithm no integer is worked out from it: float64 would hold too few of its digits.
_LARGEST_ROUNDED = 30


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
        log3: logarithm to the base 3; minus infinity for zero, infinity if it fits no float.
        value: the integer itself, or None if it is longer than `MAX_DIGITS` digits or the source
            gives the logarithm only.
        log3_of_log3: the logarithm of the logarithm where that fits no float, else None.

    Example:
        >>> Magnitude.of(81)
        Magnitude(log3=4.0, value=81, log3_of_log3=None)
        >>> Magnitude(25069.0085).rounded_up(), Magnitude(25069.0085).rounded_down()
        ('3^25069.1', '3^25069')
    """

    log3: float
    value: int | None = None
    log3_of_log3: float | None = None

    @classmethod
    def of(cls, number: int) -> "Magnitude":
        """The magnitude of an integer that is at least zero."""
        return cls(log3(number), number if number <= LARGEST_INTEGER else None)

    @classmethod
    def of_power(cls, base: int, exponent: int) -> "Magnitude":
        """The magnitude of a power, however long the exponent.

        Example:
            >>> Magnitude.of_power(2, 10).value, Magnitude.of_power(1, 3**800).value
            (1024, 1)
            >>> print(Magnitude.of_power(3, 3**800))
            about 3^(3^800)
        """
        if base <= 1:
            return cls.of(base if exponent else 1)
        loglog = log3(exponent) + log3_of_float(log3(base)) if exponent else -math.inf
        if loglog > _LARGEST_LOGLOG:
            return cls(math.inf, None, loglog)
        logarithm = exponent * log3(base)
        return cls(logarithm) if logarithm > _LARGEST_EXACT else cls.of(base**exponent)

    def __mul__(self, other: "Magnitude") -> "Magnitude":
        if self.value is not None and other.value is not None:
            return Magnitude.of(self.value * other.value)
        if 0 in (self.value, other.value):
            return Magnitude.of(0)
        loglogs = [each.log3_of_log3 for each in (self, other) if each.log3_of_log3 is not None]
        if not loglogs:
            return Magnitude(self.log3 + other.log3)
        # At most twice the larger logarithm; one that fits a float adds nothing that is printed.
        return Magnitude(math.inf, None, max(loglogs) + (_LOG3_OF_2 if len(loglogs) > 1 else 0.0))

    def is_below(self, other: "Magnitude") -> bool:
        """Whether this is the smaller number; exact where both are written out."""
        if self.value is not None and other.value is not None:
            return self.value < other.value
        if self.log3_of_log3 is not None and other.log3_of_log3 is not None:
            return self.log3_of_log3 < other.log3_of_log3
        return self.log3 < other.log3

    def rounded_up(self) -> str:
        """Text of a number that is at least this one."""
        return self._text(decimal.ROUND_CEILING)

    def rounded_down(self) -> str:
        """Text of a number that is at most this one."""
        return self._text(decimal.ROUND_FLOOR)

    def __str__(self) -> str:
        return f"{'' if self._is_printed else 'about '}{self._text(decimal.ROUND_HALF_EVEN)}"

    @property
    def _is_printed(self) -> bool:
        return self.value is not None and self.value <= _LARGEST_PRINTED

    def _text(self, rounding: str) -> str:
        if self._is_printed:
            return f"{self.value:,}"
        if self.log3_of_log3 is not None:
            return f"3^(3^{_rounded(self.log3_of_log3, rounding, is_formula=True)})"
        return f"3^{_rounded(self.log3, rounding, is_formula=self.value is None)}"


def log3(number: int) -> float:
    """Logarithm to the base 3 of an integer of any length; minus infinity for zero.

    Example:
        >>> log3(0), log3(1)
        (-inf, 0.0)
    """
    return math.log(number) / math.log(3) if number > 0 else -math.inf


def log3_of_float(number: float) -> float:
    """Logarithm to the base 3 of a positive float."""
    return math.log(number) / math.log(3)


_LOG3_OF_2 = log3(2)
_LARGEST_EXACT = log3(LARGEST_INTEGER)
# The largest float is 3^646.05…; a logarithm below this one is held with space to add to it.
_LARGEST_LOGLOG = 640.0


def rounding_slack(logarithm: float) -> float:
    """What float64 may have taken off, or added to, a logarithm that stands for a bound."""
    return RELATIVE_ROUNDING * max(1.0, abs(logarithm)) if math.isfinite(logarithm) else 0.0


def _rounded(logarithm: float, rounding: str, *, is_formula: bool) -> str:
    """A logarithm with few digits, rounded in a direction beyond its own rounding error.

    `is_formula`: one that has few digits already is taken as it is, 0 where a bound was clipped.
    """
    short = f"{logarithm:.{LOGARITHM_DIGITS}g}"
    if is_formula and decimal.Decimal(short) == decimal.Decimal(logarithm):
        return short
    slack = {decimal.ROUND_CEILING: 1, decimal.ROUND_FLOOR: -1}.get(rounding, 0)
    exact = decimal.Decimal(logarithm) + decimal.Decimal(slack * rounding_slack(logarithm))
    few = decimal.Context(prec=LOGARITHM_DIGITS, rounding=rounding).plus(exact)
    return f"{float(few):.{LOGARITHM_DIGITS}g}"


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

    @property
    @abstractmethod
    def number(self) -> str:
        """The number as text, rounded outwards: what is printed holds as well."""

    @property
    @abstractmethod
    def integer(self) -> int | None:
        """An integer that bounds as well, rounded outwards; None if it would be too long."""

    @property
    @abstractmethod
    def outward_log3(self) -> float | None:
        """The logarithm to the base 3, rounded outwards; None if it is not finite."""

    @abstractmethod
    def holds_for(self, measured: int) -> bool:
        """Whether a measurement is consistent with the bound."""

    @property
    def statement(self) -> str:
        """What the bound says, without its source."""
        return f"{self.quantity} {self.relation} {self.number}"

    def __str__(self) -> str:
        return f"{self.statement}    [{self.theorem}]"

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.statement}>"

    def _repr_html_(self) -> str:
        assumptions = self.theorem.assumptions
        facts = (f"If: {'; '.join(assumptions)}.",) if assumptions else ()
        return fragment(self.statement, (str(self.theorem), *facts))

    def to_dict(self) -> dict[str, object]:
        """Plain data for JSON; the logarithm of zero, or one that fits no float, is None.

        Only in the second case there is `log3_of_log3`.
        """
        loglog = self.magnitude.log3_of_log3
        return {
            "quantity": self.quantity,
            "relation": self.relation,
            "value": self.value,
            "log3": self.log3 if math.isfinite(self.log3) else None,
            **({} if loglog is None else {"log3_of_log3": loglog}),
            "theorem": self.theorem.to_dict(),
        }


@dataclass(frozen=True, repr=False)
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

    @property
    def number(self) -> str:
        """The number as text, rounded up."""
        return self.magnitude.rounded_up()

    @property
    def integer(self) -> int | None:
        """The integer, or the largest one not above the power that the logarithm gives."""
        if self.value is not None or not self.log3 <= _LARGEST_ROUNDED:
            return self.value
        return math.floor(3 ** (self.log3 + rounding_slack(self.log3)))

    @property
    def outward_log3(self) -> float | None:
        """The logarithm to the base 3, rounded up; None if it is not finite."""
        return _outward(self.log3, 1)

    def holds_for(self, measured: int) -> bool:
        """Whether a measurement is at most the bound."""
        if self.value is not None:
            return measured <= self.value
        return log3(measured) <= self.log3 + rounding_slack(self.log3)


@dataclass(frozen=True, repr=False)
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

    @property
    def number(self) -> str:
        """The number as text, rounded down."""
        return self.magnitude.rounded_down()

    @property
    def integer(self) -> int | None:
        """The integer, or the least one that is not below the power that the logarithm gives."""
        if self.value is not None or not self.log3 <= _LARGEST_ROUNDED:
            return self.value
        return math.ceil(3 ** (self.log3 - rounding_slack(self.log3)))

    @property
    def outward_log3(self) -> float | None:
        """The logarithm to the base 3, rounded down; None if it is not finite."""
        return _outward(self.log3, -1)

    def holds_for(self, measured: int) -> bool:
        """Whether a measurement at almost every choice of weights is at least the bound."""
        if self.value is not None:
            return measured >= self.value
        return log3(measured) >= self.log3 - rounding_slack(self.log3)


def _outward(logarithm: float, direction: int) -> float | None:
    if not math.isfinite(logarithm):
        return None
    return logarithm + direction * rounding_slack(logarithm) if logarithm else 0.0
