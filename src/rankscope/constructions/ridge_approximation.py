"""Universal approximation in up to three dimensions: ridge exponentials, each a ReLU network."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy
from torch import nn

from rankscope.constructions.box import Box
from rankscope.constructions.dense import DenseLayer, Reals, dense_layers, relu_network
from rankscope.constructions.exponential_fit import ExponentialSum, fit_exponentials, lattice
from rankscope.constructions.hidden_layer import one_hidden_layer
from rankscope.constructions.piecewise_linear import PiecewiseLinear
from rankscope.constructions.targets import Target
from rankscope.errors import ConstructionError, TooLargeError

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
        fit_error: a bound on the error of the sum of exponentials, from the grid.
        network_error: a bound on the distance of the network from the sum.
        grid: cells along each side of the grid that bounds the error.
    """

    network: nn.Sequential
    exponentials: ExponentialSum
    box: Box
    epsilon: float
    fit_error: float
    network_error: float
    grid: tuple[int, ...]

    @property
    def certified_error(self) -> float:
        """A bound on the largest error on the box, up to the rounding of float64 evaluations."""
        return self.fit_error + self.network_error

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
        ConstructionError: if epsilon is not positive, there are more than three inputs, or no sum
            of the lattice comes near enough.
        TooLargeError: if the grid that the function needs is larger than `max_cells`, or the
            network would have more than 2^18 units.

    Reference:
        Diehl (2023), "Building blocks of modern machine learning", Theorem 1.5, proof.
    """
    if not epsilon > 0 or not numpy.isfinite(epsilon):
        raise ConstructionError(f"approximate_on_box: epsilon must be positive, got {epsilon}.")
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
            f"{epsilon:g}. Raise epsilon or max_cells."
        )
    network, network_error = _as_network(exponentials, box, epsilon - fit_error)
    return RidgeApproximation(network, exponentials, box, epsilon, fit_error, network_error, grid)


def _grid(target: Target, box: Box, allowed: float) -> tuple[int, ...]:
    """Cells along each side so that the function varies by at most `allowed` from a centre."""
    count = 1
    while count < 2**40:
        # A few cells of the size are enough to see how wide their ranges are.
        half = (box.high - box.low) / (2 * count)
        corners = box.points(4) if box.num_inputs <= MOST_INPUTS else box.diagonal(64)
        centres = numpy.clip(corners, box.low + half, box.high - half)
        found = target.ranges(centres - half, centres + half)
        if float((found.high - found.low).max()) / 2 <= allowed:
            break
        count += 1 + count // 4
    return (count,) * box.num_inputs


def _fit(target: Target, box: Box, wanted: float) -> ExponentialSum:
    """The sum that needs the fewest units, out of the first lattice that is near and some more."""
    dimension = box.num_inputs
    samples = box.points(SAMPLES_PER_SIDE[dimension])
    values = target.values(samples)
    error, found = numpy.inf, []
    for size in range(1, LARGEST_LATTICE[dimension] + 1):
        directions = lattice(dimension, size) * STEEPNESS / (box.high - box.low)
        fit, error = fit_exponentials(samples, values, directions, lambda e: e <= wanted)
        found += [fit] if error <= wanted else []
        if len(found) == TRIED_LATTICES:
            break
    if found:
        return min(found, key=lambda fit: float(_weights(fit, box).sum()))
    raise ConstructionError(
        f"approximate_on_box: {(2 * LARGEST_LATTICE[dimension] + 1) ** dimension} exponentials are "
        f"still {error:.3g} away from the function at samples, more than {wanted:.3g}. "
        "Raise epsilon or make the box smaller."
    )


def _bound(target: Target, box: Box, exponentials: ExponentialSum, grid: tuple[int, ...]) -> float:
    half = (box.high - box.low) / (2 * numpy.array(grid))
    worst = 0.0
    for centres in box.cell_centres(grid, CHUNK):
        found = target.ranges(centres - half, centres + half)
        sums = exponentials.terms(centres).sum(axis=1)
        error = numpy.maximum(found.high - sums, sums - found.low)
        worst = max(worst, float((error + exponentials.variation(centres, half)).max()))
    return worst


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
    return relu_network([_stacked(firsts), DenseLayer(numpy.hstack(lasts), total)]), spent


def _stacked(layers: Sequence[DenseLayer]) -> DenseLayer:
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
