"""How few ReLU units a piecewise-linear function of one variable needs, decided exactly."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from rankscope.constructions.piecewise_linear import PiecewiseLinear
from rankscope.theorem import Status, Theorem

# Beyond this many breakpoints the sums of jumps are not searched.
MOST_SEARCHED = 20
FEWEST_UNITS = Theorem(
    "Rankscope, after Diehl (2023), Lemma 1.3",
    "k units are enough if and only if minus the leftmost slope is a sum of some of the jumps",
    None,
    ("one hidden layer", "ReLU", "k >= 1 breakpoints with non-zero jumps", "equality on all of R"),
    Status.PROVED_HERE,
)


@dataclass(frozen=True)
class FewestUnits:
    """How many hidden units a function needs.

    Args:
        lower: what every network needs.
        upper: what a network exists with.
        left_facing: the breakpoints whose units are switched on to their left in a network with
            one unit for each breakpoint; None if there is no such network or it was not searched.
        was_searched: whether the sums of jumps were searched.
    """

    lower: int
    upper: int
    left_facing: tuple[int, ...] | None
    was_searched: bool

    def __str__(self) -> str:
        if self.lower == self.upper:
            return f"{self.lower} hidden units, no fewer"
        return f"{self.lower} or {self.upper} hidden units: more than {MOST_SEARCHED} breakpoints"


def fewest_units(function: PiecewiseLinear) -> FewestUnits:
    r"""Bounds on the hidden units of a one-hidden-layer ReLU network that equals the function.

    Each of the k breakpoints needs a unit of its own. With k units, the one at t_i is
    c_i ReLU(x - t_i) or c_i ReLU(t_i - x), where c_i is the jump J_i of the slope in both cases;
    only those that face left (i in S) have a slope left of all breakpoints, so that

    .. math:: -\lambda_0 = \sum_{i \in S} J_i .

    With k + 1 units there is always a network; an affine function needs two units unless it is
    constant. Slopes are the float64 numbers that they are, without rounding or tolerance.

    Example:
        >>> print(fewest_units(PiecewiseLinear.of([0.0], [-1.0, 1.0])))  # the absolute value
        2 hidden units, no fewer
        >>> fewest_units(PiecewiseLinear.of([0.0, 1.0], [-1.0, 0.0, 5.0]))
        FewestUnits(lower=2, upper=2, left_facing=(0,), was_searched=True)

    Reference:
        Diehl (2023), "Building blocks of modern machine learning", Lemma 1.3; ours (proved above).
    """
    simple = function.simplified()
    count = len(simple.breakpoints)
    if count == 0:
        needed = 0 if simple.slopes[0] == 0 else 2
        return FewestUnits(needed, needed, None, was_searched=True)
    if count > MOST_SEARCHED:
        return FewestUnits(count, count + 1, None, was_searched=False)
    slopes = [Fraction(float(slope)) for slope in simple.slopes]
    jumps = [after - before for before, after in itertools.pairwise(slopes)]
    chosen = subset_with_sum(jumps, -slopes[0])
    needed = count + (chosen is None)
    return FewestUnits(needed, needed, chosen, was_searched=True)


def subset_with_sum(numbers: Sequence[Fraction], total: Fraction) -> tuple[int, ...] | None:
    """Positions of numbers that add up to `total`, or None: all sums of one half meet the other's.

    Example:
        >>> subset_with_sum([Fraction(3), Fraction(-5), Fraction(7)], Fraction(2))
        (1, 2)
    """
    # Integers are much faster to add than fractions.
    scale = math.lcm(*(number.denominator for number in (*numbers, total)))
    integers = [int(number * scale) for number in numbers]
    half = len(integers) // 2
    first, second = _sums(integers[:half]), _sums(integers[half:])
    wanted = int(total * scale)
    for value, chosen in first.items():
        if wanted - value in second:
            return _positions(chosen | second[wanted - value] << half)
    return None


def _sums(numbers: Sequence[int]) -> dict[int, int]:
    """Each sum of some of the numbers, with the bits of one choice that gives it."""
    sums = {0: 0}
    for place, number in enumerate(numbers):
        sums = {value + number: bits | 1 << place for value, bits in sums.items()} | sums
    return sums


def _positions(bits: int) -> tuple[int, ...]:
    return tuple(place for place in range(bits.bit_length()) if bits >> place & 1)
