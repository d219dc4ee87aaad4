"""Continuous piecewise-linear functions of one variable."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy

from rankscope.constructions.dense import Reals, require_finite
from rankscope.errors import ConstructionError


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
        """By how much the slope changes at each breakpoint."""
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
