"""Intervals rounded outwards, and functions to approximate that are known through them."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import numpy
from numpy.typing import NDArray

from rankscope.errors import ConstructionError
from rankscope.lab.constructions.dense import Reals, require_finite

# Arithmetic on arrays of intervals, rounded outwards: the result holds every true value.
#
# The functions of this module take intervals and plain arrays alike, so that one expression gives
# values and enclosures. Each operation moves its ends outwards by one float64 more than IEEE
# rounding can be wrong; sine, exponential and the like by four, which is what NumPy promises of
# its own.


# Floats by which a library function may miss the true value.
LIBRARY_ERROR = 4


@dataclass(frozen=True, eq=False)
class Interval:
    """The numbers between `low` and `high`, entry by entry.

    Example:
        >>> square = Interval.of(-1.0, 2.0) ** 2
        >>> bool(-1e-300 <= square.low <= 0.0), bool(4.0 <= square.high <= 4.001)
        (True, True)
    """

    low: Reals
    high: Reals

    def __post_init__(self) -> None:
        wrong = numpy.ravel(~(self.low <= self.high))
        if wrong.any():
            place = int(numpy.flatnonzero(wrong)[0])
            raise ConstructionError(
                f"Interval: the lower end must not be above the upper one, got "
                f"{numpy.ravel(self.low)[place]} and {numpy.ravel(self.high)[place]}."
            )

    @classmethod
    def of(cls, low: float, high: float) -> "Interval":
        """One interval."""
        return cls(numpy.array([low]), numpy.array([high]))

    def __add__(self, other: "Interval | Reals | float | int") -> "Interval":
        right = _interval(other)
        return _outwards(self.low + right.low, self.high + right.high)

    def __neg__(self) -> "Interval":
        return Interval(-self.high, -self.low)

    def __sub__(self, other: "Interval | Reals | float | int") -> "Interval":
        return self + -_interval(other)

    def __rsub__(self, other: "Interval | Reals | float | int") -> "Interval":
        return -self + other

    def __mul__(self, other: "Interval | Reals | float | int") -> "Interval":
        right = _interval(other)
        with numpy.errstate(invalid="ignore"):
            products = [a * b for a in (self.low, self.high) for b in (right.low, right.high)]
        # Zero times infinity is zero here: zero is an end of the interval, infinity is not in it.
        ends = numpy.stack([numpy.where(numpy.isnan(p), 0.0, p) for p in products])
        return _outwards(ends.min(axis=0), ends.max(axis=0))

    def __truediv__(self, other: "Interval | Reals | float | int") -> "Interval":
        right = _interval(other)
        holds_zero = (right.low <= 0) & (right.high >= 0)
        with numpy.errstate(divide="ignore", over="ignore"):
            low = numpy.where(holds_zero, -numpy.inf, 1 / right.high)
            high = numpy.where(holds_zero, numpy.inf, 1 / right.low)
        return self * _outwards(low, high)

    def __rtruediv__(self, other: "Interval | Reals | float | int") -> "Interval":
        return _interval(other) / self

    def __pow__(self, power: int) -> "Interval":
        if power < 0:
            return 1.0 / self**-power
        ends = numpy.stack([self.low**power, self.high**power])
        low, high = ends.min(axis=0), ends.max(axis=0)
        if power % 2 == 0 and power > 0:
            low = numpy.where((self.low <= 0) & (self.high >= 0), 0.0, low)
        return _outwards(low, high, floats=LIBRARY_ERROR)

    def __abs__(self) -> "Interval":
        low = numpy.maximum(numpy.maximum(self.low, -self.high), 0.0)
        return Interval(low, numpy.maximum(-self.low, self.high))

    # NumPy arrays on the left must leave the operation to us.
    __array_ufunc__ = None
    __radd__ = __add__
    __rmul__ = __mul__


Number = Interval | Reals | float | int


def exp(number: Number) -> Number:
    """The exponential."""
    return _increasing(numpy.exp, number, least=0.0)


def log(number: Number) -> Number:
    """The natural logarithm; minus infinity at zero.

    Raises:
        ConstructionError: if an interval reaches below zero.
    """
    _require_at_least_zero("log", number)
    with numpy.errstate(divide="ignore"):
        return _increasing(numpy.log, number)


def sqrt(number: Number) -> Number:
    """The square root.

    Raises:
        ConstructionError: if an interval reaches below zero.
    """
    _require_at_least_zero("sqrt", number)
    return _increasing(numpy.sqrt, number, least=0.0)


def tanh(number: Number) -> Number:
    """The hyperbolic tangent."""
    return _increasing(numpy.tanh, number, least=-1.0, most=1.0)


def sin(number: Number) -> Number:
    """The sine."""
    if not isinstance(number, Interval):
        return numpy.asarray(numpy.sin(number))
    return _wave(numpy.sin, number, highest=numpy.pi / 2)


def cos(number: Number) -> Number:
    """The cosine."""
    if not isinstance(number, Interval):
        return numpy.asarray(numpy.cos(number))
    return _wave(numpy.cos, number, highest=0.0)


def maximum(first: Number, second: Number) -> Number:
    """The larger of two numbers."""
    if isinstance(first, Interval) or isinstance(second, Interval):
        left, right = _interval(first), _interval(second)
        return Interval(numpy.maximum(left.low, right.low), numpy.maximum(left.high, right.high))
    return numpy.asarray(numpy.maximum(first, second))


def minimum(first: Number, second: Number) -> Number:
    """The smaller of two numbers."""
    return -maximum(-first, -second)


def _interval(number: Number) -> Interval:
    if isinstance(number, Interval):
        return number
    # NumPy turns results of arrays without axes into plain numbers.
    array = numpy.atleast_1d(numpy.asarray(number, dtype=float))
    return Interval(array, array)


def _outwards(low: Reals, high: Reals, *, floats: int = 1) -> Interval:
    for _ in range(floats):
        low, high = numpy.nextafter(low, -numpy.inf), numpy.nextafter(high, numpy.inf)
    return Interval(low, high)


def _increasing(
    function: Callable[[Reals], Reals],
    number: Number,
    *,
    least: float = -numpy.inf,
    most: float = numpy.inf,
) -> Number:
    if not isinstance(number, Interval):
        return numpy.asarray(function(numpy.asarray(number, dtype=float)))
    with numpy.errstate(over="ignore"):
        moved = _outwards(function(number.low), function(number.high), floats=LIBRARY_ERROR)
    return Interval(numpy.clip(moved.low, least, most), numpy.clip(moved.high, least, most))


def _wave(function: Callable[[Reals], Reals], number: Interval, *, highest: float) -> Interval:
    """A wave of period 2π that is 1 at `highest`."""
    is_finite = numpy.isfinite(number.low) & numpy.isfinite(number.high)
    if not is_finite.all():
        # Any interval that is longer than a period will do.
        number = Interval(
            numpy.where(is_finite, number.low, -10.0), numpy.where(is_finite, number.high, 10.0)
        )
    first, last = function(number.low), function(number.high)
    ends = _outwards(numpy.minimum(first, last), numpy.maximum(first, last), floats=LIBRARY_ERROR)
    high = numpy.where(_may_hold(number, highest), 1.0, numpy.minimum(ends.high, 1.0))
    low = numpy.where(_may_hold(number, highest + numpy.pi), -1.0, numpy.maximum(ends.low, -1.0))
    return Interval(low, high)


def _may_hold(number: Interval, point: float) -> NDArray[numpy.bool_]:
    """Whether the interval may hold the point or one that is multiples of 2π away."""
    period = 2 * numpy.pi
    # Far from zero a float64 knows its place in the period only roughly.
    slack = 1e-15 * numpy.maximum(numpy.abs(number.low), numpy.abs(number.high)) + 1e-15
    first = (number.low - point - slack) / period
    last = (number.high - point + slack) / period
    return numpy.asarray(~(numpy.floor(last) < numpy.ceil(first)))


def _require_at_least_zero(who: str, number: Number) -> None:
    lowest = float(numpy.min(_interval(number).low))
    if lowest < 0:
        raise ConstructionError(f"{who} needs numbers that are at least zero, got {lowest}.")


# Functions that are to be approximated, with what is known of them between sample points.


@dataclass(frozen=True)
class Target(ABC):
    """A real function of d real numbers, given coordinate by coordinate."""

    @abstractmethod
    def values(self, points: Reals) -> Reals:
        """The value at each row of `points`."""

    @abstractmethod
    def ranges(self, low: Reals, high: Reals) -> Interval:
        """Intervals that hold all values in the boxes between the rows of `low` and `high`."""


@dataclass(frozen=True)
class IntervalFunction(Target):
    """An expression that takes numbers and intervals alike, written with `interval_arithmetic`.

    Example:
        >>> from rankscope.lab.constructions.interval_arithmetic import sin
        >>> square = IntervalFunction(lambda x: x * sin(x))
        >>> square.values(numpy.array([[0.0]])).tolist()
        [0.0]
    """

    expression: Callable[..., Number]

    def values(self, points: Reals) -> Reals:
        return _checked(self.expression(*points.T), len(points))

    def ranges(self, low: Reals, high: Reals) -> Interval:
        result = self.expression(*map(Interval, low.T, high.T))
        if not isinstance(result, Interval):
            # A constant expression never touches its intervals.
            result = Interval(numpy.asarray(result, float), numpy.asarray(result, float))
        shape = (len(low),)
        return Interval(
            numpy.broadcast_to(result.low, shape), numpy.broadcast_to(result.high, shape)
        )


@dataclass(frozen=True)
class LipschitzFunction(Target):
    """A function on arrays with a Lipschitz constant (Euclidean norm) that is taken on trust.

    The constant is checked against the values that are computed, nowhere else; these are taken to
    be right to 1e-15 of their size.
    """

    function: Callable[..., Reals]
    constant: float

    def __post_init__(self) -> None:
        require_finite("LipschitzFunction", constant=self.constant)
        if self.constant < 0:
            raise ConstructionError(
                f"LipschitzFunction: the constant must be at least zero, got {self.constant}."
            )

    def values(self, points: Reals) -> Reals:
        return _checked(self.function(*points.T), len(points))

    def ranges(self, low: Reals, high: Reals) -> Interval:
        middle = (low + high) / 2
        # From the middle as it is rounded, which far from zero may be next to an end.
        radius = numpy.linalg.norm(numpy.maximum(high - middle, middle - low), axis=1)
        values = self.values(middle)
        self._check(middle, values)
        reach = self.constant * radius * (1 + 1e-12) + 1e-15 * numpy.abs(values)
        return Interval(values - reach, values + reach)

    def _check(self, points: Reals, values: Reals) -> None:
        steps = numpy.linalg.norm(numpy.diff(points, axis=0), axis=1)
        rises = numpy.abs(numpy.diff(values))
        # Rounding of the values themselves is no evidence.
        rounding = 1e-12 * numpy.maximum(numpy.abs(values[1:]), numpy.abs(values[:-1]))
        wrong = numpy.flatnonzero(rises > self.constant * steps * (1 + 1e-9) + rounding)
        if len(wrong):
            place = int(wrong[0])
            raise ConstructionError(
                f"LipschitzFunction: the constant {self.constant} is too small: between "
                f"{points[place].tolist()} and {points[place + 1].tolist()} the function changes "
                f"by {rises[place]:.6g} over a distance of {steps[place]:.6g}."
            )


def _checked(result: Number, count: int) -> Reals:
    values = numpy.asarray(result, dtype=float)
    require_finite("The function to be approximated", values=values)
    if values.shape not in ((), (count,)):
        raise ConstructionError(
            f"The function to be approximated must give one value for each of {count} points, "
            f"got shape {values.shape}."
        )
    return numpy.broadcast_to(values, (count,))
