"""Continuous piecewise-linear functions of one variable, and ReLU networks that equal them."""

import itertools
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import accumulate

import numpy
from torch import nn

from rankscope.errors import ConstructionError
from rankscope.lab.constructions.dense import (
    DenseLayer,
    Reals,
    dense_layers,
    relu_network,
    require_finite,
    require_shape,
)
from rankscope.theorem import Status, Theorem

# Continuous piecewise-linear functions of one variable.


@dataclass(frozen=True, eq=False)
class PiecewiseLinear:
    """The continuous function with these slopes between these breakpoints, and one given value.

    Args:
        breakpoints: t_1 < … < t_k, where the slope may change.
        slopes: k + 1 slopes, from the leftmost piece to the rightmost.
        point: where the value is given.
        value: the value there.

    Example:
        >>> tent = PiecewiseLinear.of([0.0, 0.5, 1.0], [0.0, 2.0, -2.0, 0.0])
        >>> tent(numpy.array([-1.0, 0.25, 0.5, 0.75, 3.0])).tolist()
        [0.0, 0.5, 1.0, 0.5, 0.0]

    Raises:
        ConstructionError: if the breakpoints do not increase, the counts do not fit, or a number
            is not finite.
    """

    breakpoints: Reals
    slopes: Reals
    point: float = 0.0
    value: float = 0.0

    def __post_init__(self) -> None:
        who = "PiecewiseLinear"
        require_finite(who, breakpoints=self.breakpoints, slopes=self.slopes)
        require_finite(who, point=self.point, value=self.value)
        if len(self.slopes) != len(self.breakpoints) + 1:
            raise ConstructionError(
                f"{who}: {len(self.breakpoints)} breakpoints need {len(self.breakpoints) + 1} "
                f"slopes, got {len(self.slopes)}."
            )
        wrong = numpy.flatnonzero(self.breakpoints[1:] <= self.breakpoints[:-1])
        if len(wrong):
            place = int(wrong[0])
            before, after = self.breakpoints[place : place + 2]
            problem = "is repeated" if before == after else "comes after"
            raise ConstructionError(
                f"{who}: breakpoints must increase, but {after} {problem}"
                f"{'' if before == after else f' {before}'} at position {place + 1}. "
                "Sort them, and give each once."
            )
        with numpy.errstate(over="ignore", invalid="ignore"):
            require_finite(who, jumps=self.jumps, breakpoint_values=self.breakpoint_values)

    @classmethod
    def of(
        cls,
        breakpoints: Sequence[float],
        slopes: Sequence[float],
        *,
        point: float = 0.0,
        value: float = 0.0,
    ) -> "PiecewiseLinear":
        """The function of plain numbers."""
        return cls(numpy.array(breakpoints, float), numpy.array(slopes, float), point, value)

    @classmethod
    def through(cls, points: Reals, values: Reals) -> "PiecewiseLinear":
        """The function that joins points by straight pieces and goes on straight outside them.

        Raises:
            ConstructionError: if there are fewer than two points or as many values.
        """
        if len(points) < 2 or len(points) != len(values):
            raise ConstructionError(
                "PiecewiseLinear.through needs at least two points and a value for each, "
                f"got {len(points)} points and {len(values)} values."
            )
        with numpy.errstate(divide="ignore", over="ignore", invalid="ignore"):
            slopes = numpy.diff(values) / numpy.diff(points)
        # Repeated points are reported as such rather than as infinite slopes.
        slopes = numpy.where(numpy.diff(points) == 0, 0.0, slopes)
        inner = cls(points, numpy.concatenate([slopes[:1], slopes, slopes[-1:]]))
        return cls(inner.breakpoints[1:-1], inner.slopes[1:-1], float(points[0]), float(values[0]))

    @property
    def jumps(self) -> Reals:
        """Change of the slope at each breakpoint."""
        return numpy.diff(self.slopes)

    @cached_property
    def breakpoint_values(self) -> Reals:
        """The value at each breakpoint, by prefix sums that lose no digit a float64 could keep."""
        if not len(self.breakpoints):
            return numpy.zeros(0)
        rises = self.slopes[1:-1].astype(numpy.longdouble) * numpy.diff(self.breakpoints)
        heights = numpy.concatenate([numpy.zeros(1), numpy.cumsum(rises)])
        place = max(int(numpy.searchsorted(self.breakpoints, self.point)) - 1, 0)
        slope = self.slopes[place + 1 if self.point > self.breakpoints[place] else 0]
        offset = slope * (self.point - self.breakpoints[place])
        return numpy.asarray(heights - heights[place] + (self.value - offset), dtype=float)

    @cached_property
    def _pieces(self) -> tuple[Reals, Reals]:
        """A point of each piece, and the value there."""
        if not len(self.breakpoints):
            return numpy.array([self.point]), numpy.array([self.value])
        first = slice(0, 1)
        return (
            numpy.concatenate([self.breakpoints[first], self.breakpoints]),
            numpy.concatenate([self.breakpoint_values[first], self.breakpoint_values]),
        )

    def __call__(self, points: Reals) -> Reals:
        """The value at each point, in the logarithm of the number of breakpoints."""
        piece = numpy.searchsorted(self.breakpoints, points, side="right")
        starts, values = self._pieces
        return numpy.asarray(values[piece] + self.slopes[piece] * (points - starts[piece]))

    def simplified(self) -> "PiecewiseLinear":
        """The same function without breakpoints at which nothing breaks."""
        breaks = self.jumps != 0
        slopes = numpy.concatenate([self.slopes[:1], self.slopes[1:][breaks]])
        return PiecewiseLinear(self.breakpoints[breaks], slopes, self.point, self.value)


# How few ReLU units a piecewise-linear function of one variable needs, decided exactly.


# Beyond this many breakpoints the sums of jumps are not searched.
MOST_SEARCHED = 20
FEWEST_UNITS = Theorem(
    "Rankscope, after Diehl (2023), Lemma 1.3",
    "k units are enough if and only if minus the leftmost slope is a sum of some of the jumps: "
    "docs/proofs.md, section 32",
    None,
    ("one hidden layer", "ReLU", "k >= 1 breakpoints with non-zero jumps", "equality on all of R"),
    Status.PROVED_HERE,
)


@dataclass(frozen=True)
class FewestUnits:
    """The least number of hidden units that a function needs.

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
        Diehl (2023), "Building blocks of modern machine learning", Lemma 1.3; ours (proved here,
        docs/proofs.md, section 32).
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


# Piecewise-linear functions as ReLU networks with one hidden layer, and back.


def one_hidden_layer(function: PiecewiseLinear) -> nn.Sequential:
    r"""The ReLU network that equals a piecewise-linear function on all of R.

    .. math:: f(x) = f(t_1) + \lambda_1 (x - t_1)_+ - \lambda_0 (t_1 - x)_+
              + \sum_{i=2}^k (\lambda_i - \lambda_{i-1}) (x - t_i)_+

    It has k + 1 hidden units for k >= 1 breakpoints, two for an affine function and none for a
    constant; `with_fewest_units` finds the networks with k units.

    Example:
        >>> tent = PiecewiseLinear.of([0.0, 0.5, 1.0], [0.0, 2.0, -2.0, 0.0])
        >>> one_hidden_layer(tent)
        Sequential(
          (0): Linear(in_features=1, out_features=4, bias=True)
          (1): ReLU()
          (2): Linear(in_features=4, out_features=1, bias=True)
        )

    Reference:
        Diehl (2023), "Building blocks of modern machine learning", Lemma 1.3.
    """
    simple = function.simplified()
    if len(simple.breakpoints):
        kinks = numpy.concatenate([simple.breakpoints[:1], simple.breakpoints])
        signs = numpy.ones(len(kinks))
        signs[0] = -1.0
        heights = numpy.concatenate([-simple.slopes[:1], simple.slopes[1:2], simple.jumps[1:]])
        return _network(signs, kinks, heights, float(simple.breakpoint_values[0]))
    slope = float(simple.slopes[0])
    if slope == 0:
        return _network(numpy.zeros(0), numpy.zeros(0), numpy.zeros(0), simple.value)
    kinks = numpy.full(2, simple.point)
    return _network(numpy.array([1.0, -1.0]), kinks, numpy.array([slope, -slope]), simple.value)


def with_fewest_units(function: PiecewiseLinear) -> nn.Sequential:
    """The ReLU network that equals the function with as few hidden units as any.

    Raises:
        ConstructionError: if there are too many breakpoints to decide how few.
    """
    simple = function.simplified()
    result = fewest_units(simple)
    if not result.was_searched:
        raise ConstructionError(
            f"with_fewest_units searches at most {MOST_SEARCHED} breakpoints, got {result.lower}. "
            f"one_hidden_layer builds a network of {result.upper} units, at most one too many."
        )
    if result.left_facing is None:
        return one_hidden_layer(simple)
    signs = numpy.ones(len(simple.breakpoints))
    signs[list(result.left_facing)] = -1.0
    first = simple.breakpoints[0]
    reached = numpy.maximum(signs * (first - simple.breakpoints), 0.0)
    bias = float(simple.breakpoint_values[0] - reached @ simple.jumps)
    return _network(signs, simple.breakpoints, simple.jumps, bias)


def _network(signs: Reals, kinks: Reals, heights: Reals, bias: float) -> nn.Sequential:
    """Sum of height · ReLU(sign · (x - kink)), plus the bias."""
    return relu_network(
        [
            DenseLayer(signs[:, None], -signs * kinks),
            DenseLayer(heights[None, :], numpy.array([bias])),
        ]
    )


def read_piecewise_linear(network: nn.Module) -> PiecewiseLinear:
    """The function that a one-hidden-layer ReLU network from R to R equals: its sorted form.

    Units are sorted by their kinks and their slopes added up from left to right, without rounding
    until the end; kinks that cancel are no breakpoints. Evaluating the result takes the logarithm
    of the number of units at each point.

    Example:
        >>> function = PiecewiseLinear.of([-1.0, 2.0], [3.0, 0.5, -4.0], value=7.0)
        >>> read_piecewise_linear(one_hidden_layer(function)).slopes.tolist()
        [3.0, 0.5, -4.0]

    Raises:
        ConstructionError: if the network is of another kind.
    """
    first, last = _two_layers("read_piecewise_linear", network)
    # The affine function left of all kinks.
    slope, intercept = Fraction(0), Fraction(float(last.bias[0]))
    jumps: dict[float, Fraction] = defaultdict(Fraction)
    for weight, bias, height in _units(first, last):
        if weight < 0 or (weight == 0 and bias > 0):
            slope, intercept = slope + height * weight, intercept + height * bias
        if weight:
            jumps[_as_float(-bias / weight)] += height * abs(weight)
    kinks = sorted(kink for kink, jump in jumps.items() if jump)
    slopes = accumulate((jumps[kink] for kink in kinks), initial=slope)
    point = kinks[0] if kinks else 0.0
    value = slope * Fraction(point) + intercept
    return PiecewiseLinear.of(
        kinks, [_as_float(piece) for piece in slopes], point=point, value=_as_float(value)
    )


def _as_float(number: Fraction) -> float:
    try:
        return float(number)
    except OverflowError as error:
        digits = len(str(abs(int(number)))) - 1
        raise ConstructionError(
            "read_piecewise_linear: a breakpoint, slope or value is about 10^"
            f"{digits}, beyond what float64 holds. Make the weights smaller."
        ) from error


def exact_values(network: nn.Module, points: Reals) -> list[Fraction]:
    """What a one-hidden-layer ReLU network from R to R is at increasing points, without rounding.

    Slopes and intercepts of the switched-on units are kept from one point to the next, so that
    the cost is that of sorting the units.
    """
    first, last = _two_layers("exact_values", network)
    slope, intercept = Fraction(0), Fraction(float(last.bias[0]))
    events: list[tuple[Fraction, Fraction, Fraction]] = []
    for weight, bias, height in _units(first, last):
        if weight < 0 or (weight == 0 and bias > 0):
            slope, intercept = slope + height * weight, intercept + height * bias
        if weight:
            # Passing its kink, a unit is switched on, or off: both add the same to the sums.
            events.append((-bias / weight, height * abs(weight), height * bias * _sign(weight)))
    events.sort(key=lambda event: event[0], reverse=True)
    values = []
    for point in map(Fraction, points.tolist()):
        while events and events[-1][0] < point:
            _, rise, shift = events.pop()
            slope, intercept = slope + rise, intercept + shift
        values.append(slope * point + intercept)
    return values


def _sign(number: Fraction) -> int:
    return 1 if number > 0 else -1


def _units(first: DenseLayer, last: DenseLayer) -> list[tuple[Fraction, Fraction, Fraction]]:
    columns = (first.weight[:, 0], first.bias, last.weight[0])
    exact = [[Fraction(value) for value in column.tolist()] for column in columns]
    return list(zip(*exact, strict=True))


def _two_layers(who: str, network: nn.Module) -> tuple[DenseLayer, DenseLayer]:
    layers = dense_layers(network)
    require_shape(who, layers, inputs=1, outputs=1)
    if len(layers) != 2:
        raise ConstructionError(
            f"{who} needs one hidden layer, got {len(layers) - 1}. "
            "regions_on_line reads deeper networks."
        )
    return layers[0], layers[1]
