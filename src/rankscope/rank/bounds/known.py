"""All that theory says of one network and one split, and the best of it that is proved.

A network lists every theorem that applies to its sizes; the others are left out, not shown as
empty. What is disputed, only measured, or recalled without its source at hand is listed as such
and never makes the best interval.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from rankscope.errors import BoundError
from rankscope.rank.bounds.attention import Growth
from rankscope.theorem import Bound, LowerBound, Status, UpperBound

PROVED = (Status.PUBLISHED, Status.PROVED_HERE)
Sizes = TypeVar("Sizes")
Found = TypeVar("Found")


def applicable(bound: Callable[[Sizes], Found], sizes: Sizes) -> Found | None:
    """A bound, or None if its theorem does not cover the sizes."""
    try:
        return bound(sizes)
    except BoundError:
        return None


@dataclass(frozen=True)
class KnownBounds:
    """What theorems say of a network's separation rank; None where no theorem applies.

    Args:
        lower: for almost all weights; as published where there is a published one.
        published: an upper bound, as published.
        count: our own upper bound, for all weights.
        further: bounds that apply besides these.
        growths: published growth rates, which bound no number.
    """

    lower: LowerBound | None
    published: UpperBound | None
    count: UpperBound | None
    further: tuple[Bound, ...] = ()
    growths: tuple[Growth, ...] = ()

    @property
    def bounds(self) -> tuple[Bound, ...]:
        """Every bound that applies, each once."""
        named = [each for each in (self.lower, self.published, self.count) if each is not None]
        return tuple(dict.fromkeys([*named, *self.further]))

    @property
    def best_lower(self) -> LowerBound | None:
        """The largest proved lower bound; holds for almost all weights."""
        best: LowerBound | None = None
        for bound in self.bounds:
            if not isinstance(bound, LowerBound) or bound.theorem.status not in PROVED:
                continue
            if best is None or best.magnitude.is_below(bound.magnitude):
                best = bound
        return best

    @property
    def best_upper(self) -> UpperBound | None:
        """The smallest proved upper bound; holds for all weights."""
        best: UpperBound | None = None
        for bound in self.bounds:
            if not isinstance(bound, UpperBound) or bound.theorem.status not in PROVED:
                continue
            if best is None or bound.magnitude.is_below(best.magnitude):
                best = bound
        return best
