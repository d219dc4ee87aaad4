"""What a request may cost, checked before anything is allocated.

One sentence for every refusal: who, which quantity, how much was wanted, and what fits. A limit is
a plain number that the caller knows (entries, positions, seconds); nothing is measured or guessed
here. `Deadline` is the same for time: work that was begun stops when its seconds are spent.
"""

import time
from dataclasses import dataclass, field

from rankscope.errors import BudgetError, readable


def require_within(who: str, what: str, wanted: int, limit: int) -> None:
    """Refuse a quantity above its limit.

    Example:
        >>> require_within("bounds", "--tokens", 200_000_000, 2**20)
        Traceback (most recent call last):
        ...
        rankscope.errors.BudgetError: bounds: --tokens may be at most 1,048,576, got 200,000,000.

    Raises:
        BudgetError: if it is.
    """
    if wanted > limit:
        raise BudgetError(f"{who}: {what} may be at most {limit:,}, got {readable(wanted)}.")


@dataclass(frozen=True)
class Deadline:
    """A moment after which work is given up.

    Args:
        seconds: from now on; None for never.

    Example:
        >>> Deadline(None).require("anything")
    """

    seconds: float | None
    _started: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        if self.seconds is not None and not self.seconds > 0:
            raise BudgetError(f"A time limit must be a positive number, got {self.seconds}.")

    def require(self, what: str) -> None:
        """Give up if the time is spent.

        Raises:
            BudgetError: if it is.
        """
        if self.seconds is not None and time.monotonic() - self._started > self.seconds:
            raise BudgetError(
                f"{what} was not finished within {self.seconds:g} seconds; allow more."
            )

    def require_estimate(self, what: str, estimated: float) -> None:
        """Refuse work that is estimated to take longer than there is time.

        Raises:
            BudgetError: if it is.
        """
        if self.seconds is not None and estimated > self.seconds:
            raise BudgetError(
                f"{what} is estimated to take {readable_seconds(estimated)}, more than the "
                f"{readable_seconds(self.seconds)} allowed; allow more, or ask for less."
            )


def readable_seconds(seconds: float) -> str:
    """A duration with the unit that people use for it.

    Example:
        >>> [readable_seconds(number) for number in (0.25, 61, 9_000, 400_000)]
        ['0.25 s', '61 s', '150 min', '4.6 days']
    """
    for name, size, least in (("days", 86_400, 172_800), ("h", 3_600, 18_000), ("min", 60, 300)):
        if seconds >= least:
            return (
                f"{seconds / size:.3g} {name}" if name != "days" else f"{seconds / size:.2g} days"
            )
    return f"{seconds:.2g} s"
