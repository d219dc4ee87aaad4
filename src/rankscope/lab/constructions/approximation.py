"""Universal approximation with a proved error, in one dimension and in up to three."""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy
from torch import nn

from rankscope.errors import ConstructionError, TooLargeError
from rankscope.lab.constructions.dense import (
    Box,
    DenseLayer,
    Reals,
    dense_layers,
    relu_network,
    require_finite,
)
from rankscope.lab.constructions.interval_arithmetic import Interval, Target
from rankscope.lab.constructions.piecewise_linear import (
    PiecewiseLinear,
    exact_values,
    one_hidden_layer,
)
from rankscope.robust.rounding import FLOAT64, above
from rankscope.theorem import Theorem

# Universal approximation in one dimension, with a proved error.


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
        >>> from rankscope.lab.constructions.interval_arithmetic import exp
        >>> from rankscope.lab.constructions.interval_arithmetic import IntervalFunction
        >>> network = approximate_on_interval(IntervalFunction(exp), 0.0, 1.0, epsilon=0.01)
        >>> network.certified_error <= 0.01, network.num_units
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
    result = target.ranges(grid[:, :-1].reshape(-1, 1), grid[:, 1:].reshape(-1, 1))
    difference = Interval(result.low, result.high) - Interval(lowest.ravel(), highest.ravel())
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


# Sums of ridge exponentials, fitted to a function on a box.


TAYLOR_ORDER = 4
# Weight decay of the fit, tried from the left: small coefficients make small networks.
DECAYS = tuple(10.0**-power for power in range(2, 25, 2))


@dataclass(frozen=True, eq=False)
class ExponentialSum:
    r"""The function :math:`\sum_i \gamma_i \exp\langle\nu_i, x - c\rangle`, with c = `centre`."""

    coefficients: Reals
    directions: Reals
    centre: Reals

    def terms(self, points: Reals) -> Reals:
        """Each term (columns) at each point (rows)."""
        return numpy.asarray(
            self.coefficients * numpy.exp((points - self.centre) @ self.directions.T)
        )

    def variation(self, points: Reals, half: Reals) -> Reals:
        """How far the sum can be from its value at a point in the box around it.

        Taylor's formula: the derivatives at the point, in which large terms cancel, and a bound
        on those of the next order in the box of half sides `half`, in which they do not.
        """
        terms = self.terms(points)
        scaled = self.directions * half
        products = numpy.ones((len(scaled), 1))
        bound = numpy.zeros(len(points))
        for order in range(1, TAYLOR_ORDER + 1):
            products = (products[:, :, None] * scaled[:, None, :]).reshape(len(scaled), -1) / order
            bound += numpy.abs(terms @ products).sum(axis=1)
        reach = numpy.abs(scaled).sum(axis=1) * (1 + 2**-40)
        rest = numpy.exp(reach) * reach ** (TAYLOR_ORDER + 1) / math.factorial(TAYLOR_ORDER + 1)
        return numpy.asarray(bound * (1 + 2**-40) + numpy.abs(terms) @ rest * (1 + 2**-40))

    def rounding(self, points: Reals, terms: Reals) -> Reals:
        """What float64 can change of the sum at points, and of the derivatives in `variation`.

        Args:
            points: rows.
            terms: of the sum there.
        """
        exponents = numpy.abs(points - self.centre) @ numpy.abs(self.directions).T
        offsets = (numpy.abs(points) + numpy.abs(self.centre)) @ numpy.abs(self.directions).T
        count = 4 * len(self.coefficients) + 64
        sizes = numpy.abs(terms) * (2 + exponents + offsets * FLOAT64.unit)
        return numpy.asarray(4 * FLOAT64.gamma(count) * sizes.sum(axis=1))


def lattice(num_inputs: int, size: int) -> Reals:
    """All vectors of integers between -`size` and `size`."""
    return numpy.array(list(itertools.product(range(-size, size + 1), repeat=num_inputs)), float)


def fit_exponentials(
    samples: Reals, values: Reals, directions: Reals, is_enough: Callable[[float], bool]
) -> tuple[ExponentialSum, float]:
    """Least squares with the largest weight decay whose largest error at the samples is enough.

    Returns the last fit, and its error, if none is.
    """
    centre = (samples.min(axis=0) + samples.max(axis=0)) / 2
    columns = numpy.exp((samples - centre) @ directions.T)
    scales = columns.max(axis=0)
    left, singular_values, right = numpy.linalg.svd(columns / scales, full_matrices=False)
    error = numpy.inf
    for decay in DECAYS:
        damped = singular_values / (singular_values**2 + decay * singular_values[0] ** 2)
        coefficients = right.T @ (damped * (left.T @ values)) / scales
        error = float(numpy.abs(columns @ coefficients - values).max())
        if is_enough(error):
            break
    return ExponentialSum(coefficients, directions, centre), error


# Universal approximation in up to three dimensions: ridge exponentials, each a ReLU network.


MOST_INPUTS = 3
# Exponents reach about ±size of the lattice times this over the box.
STEEPNESS = 3.0
LARGEST_LATTICE = {1: 12, 2: 9, 3: 4}
TRIED_LATTICES = 3
MAX_UNITS = 2**18
SAMPLES_PER_SIDE = {1: 400, 2: 41, 3: 17}
CHUNK = 4096


@dataclass(frozen=True, eq=False)
class RidgeApproximation:
    """A network with one hidden layer that is near a function on a box.

    Args:
        network: the ReLU network.
        exponentials: the sum of exponentials in between.
        box: where it is near.
        epsilon: the error that was asked for.
        fit_error: a bound on the error of the sum of exponentials, from the grid, rounded upwards.
        network_error: a bound on the distance of the network from the sum, in exact arithmetic on
            unrounded weights.
        rounding_error: what the rounding of the weights to float64 and the evaluation of the
            network in float64, sums in any order, can add to it.
        grid: cells along each side of the grid that bounds the error.
    """

    network: nn.Sequential
    exponentials: ExponentialSum
    box: Box
    epsilon: float
    fit_error: float
    network_error: float
    rounding_error: float
    grid: tuple[int, ...]

    @property
    def certified_error(self) -> float:
        """A bound on the largest error on the box, in real numbers and in float64."""
        return above(self.fit_error + self.network_error + self.rounding_error, 4)

    def __str__(self) -> str:
        units = sum(len(layer.bias) for layer in dense_layers(self.network)[:1])
        return (
            f"{len(self.exponentials.coefficients)} exponentials, {units} hidden units, "
            f"error <= {self.certified_error:.3g} (asked for {self.epsilon:g})"
        )


def approximate_on_box(
    target: Target, box: Box, *, epsilon: float, max_cells: int = 2**19
) -> RidgeApproximation:
    """A one-hidden-layer ReLU network that differs from a function on a box by at most `epsilon`.

    Half of epsilon is spent on a sum of exponentials of linear functions, fitted by least squares
    and bounded on a grid of cells, half on making each exponential a piecewise-linear function of
    its exponent. A cell is bounded by the range of the function in it (`target.ranges`: a
    Lipschitz constant or interval arithmetic) against the sum's value at its centre and variation.

    Raises:
        ConstructionError: if epsilon is not positive, there are more than three inputs, no sum of
            the lattice comes near enough, or the rounding of float64 is more than is left.
        TooLargeError: if the grid that the function needs is larger than `max_cells`, or the
            network would have more than 2^18 units.

    Reference:
        Diehl (2023), "Building blocks of modern machine learning", Theorem 1.5, proof.
    """
    if not epsilon > 0 or not numpy.isfinite(epsilon):
        raise ConstructionError(f"approximate_on_box: epsilon must be positive, got {epsilon}.")
    if epsilon < _LEAST_EPSILON:
        raise ConstructionError(
            f"approximate_on_box: epsilon must be at least {_LEAST_EPSILON:.3g}, got {epsilon}: "
            "products that small are flushed to zero in float64."
        )
    # Cells in which the function itself varies by a sixth of epsilon.
    grid = _grid(target, box, epsilon / 6)
    cells = int(numpy.prod([float(count) for count in grid]))
    if box.num_inputs > MOST_INPUTS:
        raise ConstructionError(
            f"approximate_on_box proves errors in at most {MOST_INPUTS} dimensions, got "
            f"{box.num_inputs}: a grid fine enough for epsilon {epsilon:g} has about {cells:.3g} "
            "cells."
        )
    if cells > max_cells:
        raise TooLargeError(
            what="approximate_on_box",
            entries=cells,
            limit=max_cells,
            instead="Raise epsilon or max_cells, or make the box smaller.",
        )
    exponentials = _fit(target, box, epsilon / 4)
    fit_error = _bound(target, box, exponentials, grid)
    if fit_error > epsilon / 2:
        # The sum itself varies more than the function: finer cells, as many as are allowed.
        factor = int((max_cells / cells) ** (1 / box.num_inputs))
        grid = tuple(count * max(factor, 1) for count in grid)
        fit_error = _bound(target, box, exponentials, grid)
    if fit_error >= epsilon:
        raise ConstructionError(
            f"approximate_on_box: the sum of {len(exponentials.coefficients)} exponentials is "
            f"within {fit_error:.3g} of the function on a grid of {grid} cells, not below epsilon "
            f"{epsilon:g}; float64 numbers there are {numpy.spacing(_largest(box)):.3g} apart. "
            "Raise epsilon or max_cells, or move the box to the origin."
        )
    network, network_error = _as_network(exponentials, box, (epsilon - fit_error) * _FOR_NETWORK)
    rounding = _rounding_error(network, exponentials, box)
    result = RidgeApproximation(
        network, exponentials, box, epsilon, fit_error, network_error, rounding, grid
    )
    if not result.certified_error <= epsilon:
        raise ConstructionError(
            f"approximate_on_box: rounding to float64 moves the network by up to {rounding:.3g} on "
            f"this box, whose coordinates reach {_largest(box):.3g}; with {fit_error:.3g} and "
            f"{network_error:.3g} that is more than epsilon {epsilon:g}. Move the box to the "
            "origin, or raise epsilon."
        )
    return result


_FOR_NETWORK = 0.999  # of what is left of epsilon; the rest is for rounding
_LEAST_EPSILON = 2.0**40 * FLOAT64.smallest


def _largest(box: Box) -> float:
    return float(numpy.maximum(numpy.abs(box.low), numpy.abs(box.high)).max())


def _rounding_error(network: nn.Sequential, exponentials: ExponentialSum, box: Box) -> float:
    """What rounding of weights and of the evaluation can change of the network on the box.

    Weights of the first layer are products with a direction, its biases are differences with a
    product of the direction and the centre; the second layer's are slopes that were subtracted.
    Each met a few roundings, relative to the sizes of what was added up.
    """
    first, last = dense_layers(network)
    corner = numpy.maximum(numpy.abs(box.low), numpy.abs(box.high))
    centre = numpy.abs(exponentials.centre)
    inner = numpy.abs(first.weight)
    # Exponents where a unit begins to rise: its bias without the part of the centre.
    sizes = inner @ (corner + centre) + numpy.abs(first.bias) + inner @ centre
    dimension = len(corner)
    hidden = FLOAT64.gamma(2 * dimension + 16) * sizes
    outer = numpy.abs(last.weight)[0]
    units = len(outer)
    # Of the second layer: its weights are differences of slopes, quotients of differences of
    # exponentials, each with about ten roundings that add up from kink to kink; and its sums.
    reached = float(outer @ (sizes + hidden)) + float(numpy.abs(last.bias).sum())
    error = float(outer @ hidden) + FLOAT64.gamma(32 * units + 64) * reached
    error += (1 + float(outer.sum())) * FLOAT64.absolute(32 * units + 64)
    return above(error, units + 16)


def _grid(target: Target, box: Box, allowed: float) -> tuple[int, ...]:
    """Cells along each side so that the function varies by at most `allowed` from a centre."""
    count = 1
    while count < 2**40:
        # A few cells of the size are enough to see how wide their ranges are.
        half = (box.high - box.low) / (2 * count)
        corners = box.points(4) if box.num_inputs <= MOST_INPUTS else box.diagonal(64)
        centres = numpy.clip(corners, box.low + half, box.high - half)
        result = target.ranges(centres - half, centres + half)
        if float((result.high - result.low).max()) / 2 <= allowed:
            break
        count += 1 + count // 4
    return (count,) * box.num_inputs


def _fit(target: Target, box: Box, wanted: float) -> ExponentialSum:
    """The sum that needs the fewest units, out of the first lattice that is near and some more."""
    dimension = box.num_inputs
    samples = box.points(SAMPLES_PER_SIDE[dimension])
    values = target.values(samples)
    error, result = numpy.inf, []
    for size in range(1, LARGEST_LATTICE[dimension] + 1):
        directions = lattice(dimension, size) * STEEPNESS / (box.high - box.low)
        fit, error = fit_exponentials(samples, values, directions, lambda e: e <= wanted)
        result += [fit] if error <= wanted else []
        if len(result) == TRIED_LATTICES:
            break
    if result:
        return min(result, key=lambda fit: float(_weights(fit, box).sum()))
    raise ConstructionError(
        f"approximate_on_box: {(2 * LARGEST_LATTICE[dimension] + 1) ** dimension} exponentials are "
        f"still {error:.3g} away from the function at samples, more than {wanted:.3g}. "
        "Raise epsilon or make the box smaller."
    )


def _bound(target: Target, box: Box, exponentials: ExponentialSum, grid: tuple[int, ...]) -> float:
    # Cells overlap by more than rounding can move their centres and sides.
    rounded = 8 * FLOAT64.unit * (numpy.abs(box.low) + numpy.abs(box.high))
    half = (box.high - box.low) / (2 * numpy.array(grid)) + rounded
    worst = 0.0
    for centres in box.cell_centres(grid, CHUNK):
        result = target.ranges(centres - half, centres + half)
        terms = exponentials.terms(centres)
        sums = terms.sum(axis=1)
        error = numpy.maximum(result.high - sums, sums - result.low)
        error += exponentials.variation(centres, half) + exponentials.rounding(centres, terms)
        worst = max(worst, float(error.max()))
    return above(worst, 8)


def _ends(exponentials: ExponentialSum, box: Box) -> tuple[Reals, Reals]:
    """The least and the largest exponent of each term on the box."""
    middle = exponentials.directions @ (box.low + box.high - 2 * exponentials.centre) / 2
    reach = numpy.abs(exponentials.directions) @ (box.high - box.low) / 2
    return middle - reach, middle + reach


def _weights(exponentials: ExponentialSum, box: Box) -> Reals:
    """How to share out errors e_i so that all pieces, s_i √(γ_i / 8 e_i) of them, are fewest."""
    low, high = _ends(exponentials, box)
    spread = 2 * (numpy.exp(high / 2) - numpy.exp(low / 2))
    return numpy.asarray((spread**2 * numpy.abs(exponentials.coefficients)) ** (1 / 3))


def _as_network(
    exponentials: ExponentialSum, box: Box, allowed: float
) -> tuple[nn.Sequential, float]:
    """All terms as piecewise-linear functions in one network, and a bound on its distance."""
    weights = _weights(exponentials, box)
    units = int(weights.sum() ** 1.5 / numpy.sqrt(8 * allowed))
    if units > MAX_UNITS:
        raise TooLargeError(
            what="approximate_on_box", entries=units, limit=MAX_UNITS, instead="Raise epsilon."
        )
    shares = allowed * weights / max(float(weights.sum()), 1e-300)
    low, high = _ends(exponentials, box)
    firsts, lasts, total, spent = [], [], numpy.zeros(1), 0.0
    for place, direction in enumerate(exponentials.directions):
        function, error = _piecewise_exponential(
            float(exponentials.coefficients[place]),
            (float(low[place]), float(high[place])),
            float(shares[place]),
        )
        first, last = dense_layers(one_hidden_layer(function))
        offset = first.weight[:, 0] * float(direction @ exponentials.centre)
        firsts.append(DenseLayer(first.weight @ direction[None, :], first.bias - offset))
        lasts.append(last.weight)
        total, spent = total + last.bias, spent + error
    return relu_network([_stack(firsts), DenseLayer(numpy.hstack(lasts), total)]), spent


def _stack(layers: Sequence[DenseLayer]) -> DenseLayer:
    return DenseLayer(
        numpy.vstack([layer.weight for layer in layers]),
        numpy.concatenate([layer.bias for layer in layers]),
    )


def _piecewise_exponential(
    coefficient: float, ends: tuple[float, float], allowed: float
) -> tuple[PiecewiseLinear, float]:
    """γ exp on an interval by chords that are about equally far away, and a bound on their error.

    Short chords over [a, b] are (b - a)² exp / 8 away, so that exp(t / 2) is evenly spaced; where
    γ exp(t) itself is below the error, one chord is enough.
    """
    low, high = ends
    if high == low or coefficient == 0:
        return PiecewiseLinear.of([], [0.0], value=coefficient * float(numpy.exp(low))), 0.0
    start = min(max(low, float(numpy.log(allowed / abs(coefficient)))), high)
    spread = 2 * (numpy.exp(high / 2) - numpy.exp(start / 2))
    count = 1 + int(spread * numpy.sqrt(abs(coefficient) / (8 * allowed)))
    while True:
        roots: Reals = numpy.linspace(numpy.exp(start / 2), numpy.exp(high / 2), count + 1)
        inner = 2 * numpy.log(roots[1:-1])
        points = numpy.sort(numpy.concatenate([list({low, start, high}), inner]))
        error = abs(coefficient) * float(_chord_errors(points).max())
        if error <= allowed:
            return PiecewiseLinear.through(points, coefficient * numpy.exp(points)), error
        count += 1 + count // 16


def _chord_errors(points: Reals) -> Reals:
    """How far the chords of exp between points are from it, at most.

    With r = (e^h - 1) / h the chord over [a, a + h] is e^a (r (log r - 1) + 1) away, where the
    tangent has its slope; for short ones that formula cancels, and e^(a + h) h² / 8 is a bound.
    """
    widths = numpy.diff(points)
    slopes = numpy.expm1(widths) / widths
    exact = numpy.exp(points[:-1]) * (slopes * (numpy.log(slopes) - 1) + 1)
    return numpy.asarray(
        numpy.where(widths < 1e-3, numpy.exp(points[1:]) * widths**2 / 8, exact * (1 + 1e-9))
    )
