"""Seeds that follow from names and numbers, so that no generator is carried from place to place.

What is drawn for one purpose does not depend on what was drawn before it: batch 7 of epoch 3 is the
same in a run that was interrupted, on another machine, and alone.
"""

import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def seed_of(*parts: str | int) -> int:
    """Derive a seed below 2^63 from names and numbers.

    Example:
        >>> seed_of("order", 0, 3) == seed_of("order", 0, 3), seed_of("a", 1) == seed_of("a", 2)
        (True, False)
    """
    digest = hashlib.sha256(repr(parts).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def generator_of(*parts: str | int) -> "torch.Generator":
    """Make a generator on the processor, seeded by `seed_of` the same parts."""
    import torch

    return torch.Generator().manual_seed(seed_of(*parts))
