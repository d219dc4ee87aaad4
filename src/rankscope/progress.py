"""Progress of long computations, and the callback that receives it."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Progress:
    """One step of `total` steps of `what` is finished; the count starts again for each `what`."""

    what: str
    done: int
    total: int

    def __str__(self) -> str:
        return f"{self.what}: {self.done:,} of {self.total:,}"


Report = Callable[[Progress], None]


def ignore(progress: Progress) -> None:
    """Ignore progress: the report where none was asked for."""
    del progress
