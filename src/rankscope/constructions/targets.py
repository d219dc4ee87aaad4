"""Functions that are to be approximated, with what is known of them between sample points."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import numpy

from rankscope.constructions.dense import Reals, require_finite
from rankscope.constructions.interval_arithmetic import Interval, Number
from rankscope.errors import ConstructionError


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
        >>> from rankscope.constructions.interval_arithmetic import sin
        >>> square = IntervalFunction(lambda x: x * sin(x))
        >>> square.values(numpy.array([[0.0]])).tolist()
        [0.0]
    """

    expression: Callable[..., Number]

    def values(self, points: Reals) -> Reals:
        return _checked(self.expression(*points.T), len(points))

    def ranges(self, low: Reals, high: Reals) -> Interval:
        found = self.expression(*map(Interval, low.T, high.T))
        if not isinstance(found, Interval):
            # A constant expression never touches its intervals.
            found = Interval(numpy.asarray(found, float), numpy.asarray(found, float))
        shape = (len(low),)
        return Interval(numpy.broadcast_to(found.low, shape), numpy.broadcast_to(found.high, shape))


@dataclass(frozen=True)
class LipschitzFunction(Target):
    """A function on arrays with a Lipschitz constant for the Euclidean norm, which is believed.

    The constant is checked against the values that are computed, nowhere else.
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
        radius = numpy.linalg.norm(high - low, axis=1) / 2
        middle = (low + high) / 2
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


def _checked(found: Number, count: int) -> Reals:
    values = numpy.asarray(found, dtype=float)
    require_finite("The function to be approximated", values=values)
    if values.shape not in ((), (count,)):
        raise ConstructionError(
            f"The function to be approximated must give one value for each of {count} points, "
            f"got shape {values.shape}."
        )
    return numpy.broadcast_to(values, (count,))
