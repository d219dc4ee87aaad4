"""Universal approximation in one dimension, with a proved error."""

from dataclasses import dataclass
from fractions import Fraction

import numpy
from torch import nn

from rankscope.constructions.dense import Reals, require_finite
from rankscope.constructions.hidden_layer import exact_values, one_hidden_layer
from rankscope.constructions.interval_arithmetic import Interval
from rankscope.constructions.piecewise_linear import PiecewiseLinear
from rankscope.constructions.targets import Target
from rankscope.errors import ConstructionError
from rankscope.theorem import Theorem

UNIVERSAL_APPROXIMATION = Theorem(
    "Leshno, Lin, Pinkus & Schocken (1993)",
    "one hidden layer approximates every continuous function unless the activation is a polynomial",
    None,
    ("continuous function", "compact set", "arbitrary width"),
)
# What is left of epsilon for the rounding of the weights.
SHARE = 0.999
FIRST_CELLS = 8


@dataclass(frozen=True, eq=False)
class LineApproximation:
    """A network with one hidden layer that is near a function on an interval.

    Args:
        network: the ReLU network.
        function: the piecewise-linear function that it equals up to rounding.
        ends: the interval.
        epsilon: the error that was asked for.
        certified_error: a bound on the largest error on the interval, for the network with its
            float64 weights and real arithmetic.
        evaluations: intervals on which the function was evaluated.
    """

    network: nn.Sequential
    function: PiecewiseLinear
    ends: tuple[float, float]
    epsilon: float
    certified_error: float
    evaluations: int

    @property
    def num_units(self) -> int:
        """Hidden units of the network."""
        first = self.network[0]
        assert isinstance(first, nn.Linear)
        return first.out_features

    def __str__(self) -> str:
        return (
            f"{self.num_units} hidden units, error <= {self.certified_error:.3g} on "
            f"[{self.ends[0]:g}, {self.ends[1]:g}] (asked for {self.epsilon:g})"
        )


def approximate_on_interval(
    target: Target,
    low: float,
    high: float,
    *,
    epsilon: float,
    max_evaluations: int = 2**22,
) -> LineApproximation:
    """A one-hidden-layer ReLU network that differs from a function by at most `epsilon`.

    Where a straight piece is too far from sampled values it is halved; where it is near enough,
    the piece is cut into cells, and the range of the function on each, from `target.ranges`, is
    compared with that of the straight piece, in more and more cells until the bound is below
    `epsilon`.

    Example:
        >>> from rankscope.constructions.interval_arithmetic import exp
        >>> from rankscope.constructions.targets import IntervalFunction
        >>> found = approximate_on_interval(IntervalFunction(exp), 0.0, 1.0, epsilon=0.01)
        >>> found.certified_error <= 0.01, found.num_units
        (True, 8)

    Raises:
        ConstructionError: if the interval or epsilon is not positive, or the bound cannot be
            proved with `max_evaluations` intervals.

    Reference:
        Diehl (2023), "Building blocks of modern machine learning", Theorem 1.5, one dimension.
    """
    _require_request(low, high, epsilon)
    pending = numpy.array([[low, high]])
    cells, evaluations, worst = FIRST_CELLS, 0, 0.0
    points = {low, high}
    while len(pending):
        evaluations += len(pending) * cells
        if evaluations > max_evaluations:
            raise ConstructionError(
                f"approximate_on_interval could not prove an error of {epsilon:g} with "
                f"{max_evaluations:,} intervals; {len(pending)} pieces are left, the first from "
                f"{pending[0, 0]:.17g} to {pending[0, 1]:.17g}. Raise max_evaluations, or make the "
                "function continuous there."
            )
        sampled, proved = _errors(target, pending, cells)
        done = proved <= SHARE * epsilon
        worst = max(worst, float(proved[done].max(initial=0.0)))
        halved = pending[~done & (sampled > epsilon / 2)]
        middles = halved.mean(axis=1)
        points.update(middles.tolist())
        pending = numpy.concatenate(
            [
                pending[~done & (sampled <= epsilon / 2)],
                numpy.column_stack([halved[:, 0], middles]),
                numpy.column_stack([middles, halved[:, 1]]),
            ]
        )
        cells *= 2
    return _finish(target, numpy.array(sorted(points)), epsilon, worst, evaluations)


def _require_request(low: float, high: float, epsilon: float) -> None:
    who = "approximate_on_interval"
    require_finite(who, low=low, high=high, epsilon=epsilon)
    if not low < high:
        raise ConstructionError(f"{who}: the interval must go upwards, got {low} to {high}.")
    if epsilon <= 0:
        raise ConstructionError(f"{who}: epsilon must be positive, got {epsilon}.")


def _errors(target: Target, pieces: Reals, cells: int) -> tuple[Reals, Reals]:
    """The largest error at the ends of cells, and a bound on that in them, for each piece."""
    low, high = pieces[:, :1], pieces[:, 1:]
    grid = low + (high - low) * (numpy.arange(cells + 1) / cells)
    grid[:, -1:] = high
    values = target.values(grid.reshape(-1, 1)).reshape(grid.shape)
    bottom, top = Interval(low, low), Interval(high, high)
    line = ((top - grid) * values[:, :1] + (grid - bottom) * values[:, -1:]) / (top - bottom)
    sampled = numpy.abs(values - (line.low + line.high) / 2).max(axis=1)
    lowest = numpy.minimum(line.low[:, :-1], line.low[:, 1:])
    highest = numpy.maximum(line.high[:, :-1], line.high[:, 1:])
    found = target.ranges(grid[:, :-1].reshape(-1, 1), grid[:, 1:].reshape(-1, 1))
    difference = Interval(found.low, found.high) - Interval(lowest.ravel(), highest.ravel())
    bound = numpy.maximum(difference.high, -difference.low)
    return sampled, bound.reshape(len(pieces), cells).max(axis=1)


def _finish(
    target: Target, points: Reals, epsilon: float, worst: float, evaluations: int
) -> LineApproximation:
    values = target.values(points[:, None])
    function = PiecewiseLinear.through(points, values)
    network = one_hidden_layer(function)
    reached = exact_values(network, points)
    rounding = max(
        abs(Fraction(value) - exact) for value, exact in zip(values.tolist(), reached, strict=True)
    )
    certified = float(numpy.nextafter(worst + float(rounding), numpy.inf))
    if certified > epsilon:
        raise ConstructionError(
            f"approximate_on_interval: epsilon {epsilon:g} is below what float64 weights can do "
            f"here, which is {certified:g}."
        )
    ends = (float(points[0]), float(points[-1]))
    return LineApproximation(network, function, ends, epsilon, certified, evaluations)
