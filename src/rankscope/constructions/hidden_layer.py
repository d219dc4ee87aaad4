"""Piecewise-linear functions as ReLU networks with one hidden layer, and back."""

from collections import defaultdict
from fractions import Fraction
from itertools import accumulate

import numpy
from torch import nn

from rankscope.constructions.dense import (
    DenseLayer,
    Reals,
    dense_layers,
    relu_network,
    require_shape,
)
from rankscope.constructions.piecewise_linear import PiecewiseLinear
from rankscope.constructions.unit_counts import MOST_SEARCHED, fewest_units
from rankscope.errors import ConstructionError


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
    found = fewest_units(simple)
    if not found.was_searched:
        raise ConstructionError(
            f"with_fewest_units searches at most {MOST_SEARCHED} breakpoints, got {found.lower}. "
            f"one_hidden_layer builds a network of {found.upper} units, at most one too many."
        )
    if found.left_facing is None:
        return one_hidden_layer(simple)
    signs = numpy.ones(len(simple.breakpoints))
    signs[list(found.left_facing)] = -1.0
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
