"""Affine regions of a ReLU network along a line, found exactly."""

from dataclasses import dataclass

import numpy
from numpy.typing import NDArray
from torch import nn

from rankscope.constructions.dense import Rationals, Reals, dense_layers, rational, require_finite
from rankscope.constructions.piecewise_linear import PiecewiseLinear
from rankscope.errors import ConstructionError

# Slopes that differ by less, relative to the largest, are equal in float64.
SAME_SLOPE = 1e-9
Column = Reals | Rationals


@dataclass(frozen=True, eq=False)
class LineRegions:
    """The pieces of t -> network(start + t direction).

    Args:
        edges: where activation patterns change, with both ends (which may be infinite).
        patterns: for each piece (rows), which hidden units are switched on, layer after layer.
        slopes: of each output (columns) in each piece.
        intercepts: values that the affine pieces have at t = 0.
        is_exact: whether numbers are fractions and nothing was rounded.
    """

    edges: Column
    patterns: NDArray[numpy.bool_]
    slopes: Column
    intercepts: Column
    is_exact: bool

    @property
    def num_patterns(self) -> int:
        """Activation patterns with interior."""
        return len(self.patterns)

    @property
    def num_affine_pieces(self) -> int:
        """Maximal affine pieces: patterns between which no slope changes count once."""
        return 1 + int(self._breaks().sum())

    @property
    def smallest_margin(self) -> float:
        """Length of the shortest piece: how near two breaks are to being one."""
        return float(min(numpy.diff(self.edges)))

    def function(self, output: int = 0) -> PiecewiseLinear:
        """One output as a piecewise-linear function of t, extended beyond finite ends."""
        breaks = self._breaks()
        starts = numpy.concatenate([[True], breaks])
        slopes = numpy.asarray(self.slopes[starts, output], dtype=float)
        kinks = numpy.asarray(self.edges[1:-1][breaks], dtype=float)
        intercepts = numpy.asarray(self.intercepts[starts, output], dtype=float)
        if not len(kinks):
            return PiecewiseLinear(kinks, slopes, 0.0, float(intercepts[0]))
        value = float(self.slopes[0, output] * self.edges[1:-1][breaks][0])
        return PiecewiseLinear(kinks, slopes, float(kinks[0]), value + float(intercepts[0]))

    def _breaks(self) -> NDArray[numpy.bool_]:
        """Whether some slope changes at each inner edge."""
        changes = numpy.abs(numpy.diff(self.slopes, axis=0))
        threshold = 0.0 if self.is_exact else SAME_SLOPE * float(numpy.abs(self.slopes).max())
        return numpy.asarray((changes > threshold).any(axis=1), dtype=bool)


def regions_on_line(
    network: nn.Module,
    start: Reals | None = None,
    direction: Reals | None = None,
    *,
    ends: tuple[float, float] = (-numpy.inf, numpy.inf),
    exactly: bool = False,
) -> LineRegions:
    """Cut a line into the pieces on which a network is affine.

    Layer after layer, the zeros of the units inside each piece are computed and cut it.

    Args:
        network: Linear, ReLU, …, Linear.
        start: the point at t = 0; the origin if None.
        direction: the step of t; needed if the network has more than one input.
        ends: least and largest t.
        exactly: compute with fractions, which is slow.

    Example:
        >>> from rankscope.constructions.sawtooth import sawtooth_network
        >>> regions_on_line(sawtooth_network(5), ends=(0.0, 1.0)).num_affine_pieces
        32

    Raises:
        ConstructionError: if the line does not fit the network or its ends are not in order.
    """
    layers = dense_layers(network)
    begin, step = _line(start, direction, layers[0].weight.shape[1])
    if not ends[0] < ends[1]:
        raise ConstructionError(f"regions_on_line: the ends must be in order, got {ends}.")
    convert = rational if exactly else numpy.asarray
    edges: Column = (
        convert(numpy.array(ends))
        if numpy.isfinite(ends).all()
        else numpy.array(ends, dtype=object if exactly else float)
    )
    slopes, intercepts = convert(step)[None, :], convert(begin)[None, :]
    patterns = numpy.zeros((1, 0), dtype=bool)
    for layer in layers[:-1]:
        weight = convert(layer.weight).T
        slopes, intercepts = slopes @ weight, intercepts @ weight + convert(layer.bias)
        zeros = _zeros(slopes, intercepts)
        inside = (zeros > edges[:-1, None]) & (zeros < edges[1:, None])
        finer = numpy.unique(numpy.concatenate([edges, zeros[inside]]))
        parents = numpy.searchsorted(edges, finer[:-1], side="right") - 1
        edges = finer
        slopes, intercepts, zeros = slopes[parents], intercepts[parents], zeros[parents]
        # Zeros are edges now, so that comparing the two is free of rounding.
        is_on = numpy.where(
            slopes == 0,
            intercepts > 0,
            numpy.where(slopes > 0, zeros <= edges[:-1, None], zeros >= edges[1:, None]),
        ).astype(bool)
        slopes, intercepts = slopes * is_on, intercepts * is_on
        patterns = numpy.hstack([patterns[parents], is_on])
    weight = convert(layers[-1].weight).T
    return LineRegions(
        edges, patterns, slopes @ weight, intercepts @ weight + convert(layers[-1].bias), exactly
    )


def _zeros(slopes: Column, intercepts: Column) -> Column:
    """Where each affine function is zero; infinity where it never is, or always."""
    zeros = slopes * 0 + numpy.inf
    moving = slopes != 0
    with numpy.errstate(over="ignore"):
        zeros[moving] = -intercepts[moving] / slopes[moving]
    return zeros


def _line(start: Reals | None, direction: Reals | None, inputs: int) -> tuple[Reals, Reals]:
    begin = numpy.zeros(inputs) if start is None else start
    if direction is None and inputs > 1:
        raise ConstructionError(
            f"regions_on_line: a network with {inputs} inputs needs a direction to cut along."
        )
    step = numpy.ones(1) if direction is None else direction
    require_finite("regions_on_line", start=begin, direction=step)
    if begin.shape != (inputs,) or step.shape != (inputs,) or not step.any():
        raise ConstructionError(
            f"regions_on_line: start and direction must be vectors of {inputs} numbers, the "
            f"direction not zero, got {begin.tolist()} and {step.tolist()}."
        )
    return begin, step
