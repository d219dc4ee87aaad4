"""What an operation does to distances and to intervals."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, eq=False)
class Affine:
    """Linear in all inputs together, plus a constant.

    Args:
        spread: half widths of intervals at the inputs to those at the output: the same map with
            the absolute values of its entries, and no constant.
    """

    spread: Callable[..., Tensor]


@dataclass(frozen=True)
class ConvexCurve:
    """Of each entry alone: convex, straight below zero and above it.

    Args:
        lowest: where it is smallest; -inf if it never falls.
    """

    lowest: float = -float("inf")


@dataclass(frozen=True)
class Largest:
    """The largest of some entries: convex and increasing, but not of each entry alone."""


@dataclass(frozen=True)
class Increasing:
    """No output falls when an input rises."""


@dataclass(frozen=True)
class Unshaped:
    """Nothing is known but how fast it changes."""


Form = Affine | ConvexCurve | Largest | Increasing | Unshaped


@dataclass(frozen=True, eq=False)
class Meaning:
    """How an operation treats a change of its inputs.

    Args:
        rule: where its constants come from, in words.
        growth: by how much a change of each input can grow, in the Euclidean norm; computed when
            asked for, as it may take singular values.
        form: its shape, for those who propagate intervals.
        is_joint: whether every output depends on entries of one input, or the largest of several:
            then changes add up by their squares.
        is_selection: whether its outputs are some of the entries of its one input.
    """

    rule: str
    growth: Callable[[], tuple[float, ...]]
    form: Form
    is_joint: bool = False
    is_selection: bool = False


def fixed(*constants: float) -> Callable[[], tuple[float, ...]]:
    """Growth that is known already."""
    return lambda: constants
