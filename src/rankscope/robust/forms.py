"""The shapes of operations that bounds are known for, and what the rules of the table share."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from rankscope.reading.trace import Value
from rankscope.robust.graph import Node, sample_shape
from rankscope.robust.relaxations import Smooth
from rankscope.robust.rounding import Arithmetic, Rounding

PRODUCT = "it multiplies values that both depend on the input, so that nothing bounds it"
QUOTIENT = "it divides by a value that depends on the input, which may be as small as it likes"


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
    """A function of each entry alone that is convex, and straight below and above zero.

    Args:
        lowest: where it is smallest; -inf if it never falls.
        steepest: bound on its slope.
    """

    lowest: float = -float("inf")
    steepest: float = 1.0


@dataclass(frozen=True)
class Largest:
    """The largest of some entries: convex and increasing, but not of each entry alone."""


@dataclass(frozen=True)
class Increasing:
    """No output falls when an input rises.

    Args:
        since: of a function of each entry alone, from where on; before it never rises.
    """

    since: float = -float("inf")


@dataclass(frozen=True)
class Unshaped:
    """Nothing is known but how fast it changes."""


Form = Affine | ConvexCurve | Largest | Increasing | Smooth | Unshaped


@dataclass(frozen=True, eq=False)
class TransferFunction:
    """How an operation treats a change of its inputs.

    Args:
        rule: where its constants come from, in words.
        growth: by how much a change of each input can grow, in the Euclidean norm; computed when
            asked for, as it may take singular values.
        form: its shape, for those who propagate intervals.
        is_joint: whether every output depends on entries of one input, or the largest of several:
            then changes add up by their squares.
        is_selection: whether its outputs are some of the entries of its one input.
        rounding: by how much the computed output differs from the exact one; None for an operation
            that only moves, compares or negates entries.
        is_move: whether every output is one entry of one input, or fixed: bounds go through it as
            values do, without any rounding.
        has_constants: whether some of the outputs of such an operation are fixed, and not zero.
    """

    rule: str
    growth: Callable[[], tuple[float, ...]]
    form: Form
    is_joint: bool = False
    is_selection: bool = False
    rounding: Rounding | None = None
    is_move: bool = False
    has_constants: bool = False


def known_growth(*constants: float) -> Callable[[], tuple[float, ...]]:
    """Growth that is known already."""
    return lambda: constants


def no_growth(node: Node, reason: str) -> Callable[[], tuple[float, ...]]:
    """Growth of an operation that has bounds on a box only."""

    def refuse() -> tuple[float, ...]:
        raise node.refusal(f"{reason}; use the method intervals or linear-bounds")

    return refuse


def own_arithmetic(node: Node) -> Arithmetic:
    """The floats in which the model computes an operation: the shortest of its values'."""
    dtypes = [value.dtype for value in (*node.inputs, node.output) if value.dtype is not None]
    return max(map(Arithmetic.of, dtypes), key=lambda arithmetic: arithmetic.unit)


def relative(count: int) -> Rounding:
    """Errors that are a share of the result."""
    return Rounding(count, infinite, of_box=lambda ends, results: results)


def infinite(sizes: Tensor) -> Tensor:
    """A bound that says nothing."""
    return torch.full_like(sizes, math.inf)


def repeats(node: Node, value: Value) -> float:
    """Factor by which a value grows because its entries are used several times."""
    return math.sqrt(math.prod(sample_shape(node.output)) / math.prod(sample_shape(value)))


def fixed_argument(node: Node, argument: str) -> Tensor:
    """An argument that must not depend on the input."""
    if isinstance(node[argument], Value):
        raise node.refusal(f"its {argument} depends on the input: {PRODUCT}")
    weight: Tensor = node[argument]
    return weight
