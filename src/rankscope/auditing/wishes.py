"""What a planned shape should look like, beside its budget."""

import math
from dataclasses import dataclass

from rankscope.errors import PlanError

# A convention and no theorem: the GPT-3 family has heads of 64, and of 128 from its 1.3e9 model on.
HEAD_SIZE = 64
WIDE_HEAD_SIZE = 128
WIDE = 2048


@dataclass(frozen=True)
class Wishes:
    """Limits and rounding.

    Args:
        heads: attention heads; the width becomes a multiple of them.
        head_size: size of a head; the width becomes a multiple of it, or `heads` x `head_size`.
        max_depth: the most blocks.
        multiple_of: what the width should be a multiple of, such as 64 for hardware.
    """

    heads: int | None = None
    head_size: int | None = None
    max_depth: int | None = None
    multiple_of: int = 1

    def __post_init__(self) -> None:
        for name in ("heads", "head_size", "max_depth", "multiple_of"):
            size = getattr(self, name)
            if size is not None and size < 1:
                raise PlanError(f"plan: {name.replace('_', ' ')} must be at least 1, got {size}.")
        width = self.fixed_width
        if width is not None and width % self.multiple_of:
            raise PlanError(
                f"plan: {self.heads} heads of size {self.head_size} fix the width at {width:,}, "
                f"which is no multiple of {self.multiple_of}; leave one of the three out."
            )

    @property
    def fixed_width(self) -> int | None:
        """Heads x head size, if both are given: more or less than the width is never planned."""
        if self.heads is None or self.head_size is None:
            return None
        return self.heads * self.head_size

    @property
    def step(self) -> int:
        """Every planned width is a multiple of this."""
        return math.lcm(self.multiple_of, self.head_size or self.heads or 1)

    def rounded(self, width: float) -> int:
        """The nearest width that has the wished form.

        Raises:
            PlanError: if even the smallest one is too wide.
        """
        if round(width) < self.step:
            raise PlanError(
                f"plan: the budget affords a width of {width:,.1f}, but heads and rounding ask for "
                f"multiples of {self.step:,}; wish for a divisor of at most {round(width):,}, or "
                "give a larger budget."
            )
        return self.step * round(width / self.step)

    def heads_at(self, width: int) -> tuple[int, int]:
        """Heads and their size at a width; together never wider than it.

        Example:
            >>> Wishes().heads_at(768), Wishes(heads=8).heads_at(768), Wishes().heads_at(13461)
            ((12, 64), (8, 96), (105, 128))
        """
        if self.head_size is not None:
            return width // self.head_size, self.head_size
        usual = WIDE_HEAD_SIZE if width >= WIDE else HEAD_SIZE
        heads = self.heads or max(1, round(width / usual))
        return heads, width // heads
