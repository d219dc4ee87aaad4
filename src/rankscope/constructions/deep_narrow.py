"""Deep networks that are hardly wider than their input."""

from dataclasses import dataclass
from enum import StrEnum

import numpy
from torch import nn

from rankscope.constructions.box import Box
from rankscope.constructions.dense import (
    DenseLayer,
    Reals,
    dense_layers,
    relu_network,
    require_finite,
)
from rankscope.errors import ConstructionError
from rankscope.theorem import Status, Theorem

NARROW = Theorem(
    "Hanin & Sellke (2017)",
    "Proposition 2: max-min strings at width d + 1",
    "1710.11278",
    ("ReLU", "one output", "inputs from a box"),
    Status.RECALLED,
)


class Step(StrEnum):
    """What a string does with its next affine function."""

    MAX = "max"
    MIN = "min"


@dataclass(frozen=True, eq=False)
class MaxMinString:
    r"""The function s_n(… s_2(l_1, l_2) …, l_n) of affine functions, each s a maximum or minimum.

    Args:
        weight: the gradients of l_1, …, l_n, one in each row.
        bias: their values at zero.
        steps: n - 1 times maximum or minimum.

    Example:
        >>> hat = MaxMinString(
        ...     numpy.array([[1.0], [-1.0], [0.0]]),
        ...     numpy.array([0.0, 2.0, 0.0]),
        ...     (Step.MIN, Step.MAX),
        ... )
        >>> hat(numpy.array([[-1.0], [1.0], [1.5]])).tolist()
        [0.0, 1.0, 0.5]
    """

    weight: Reals
    bias: Reals
    steps: tuple[Step, ...]

    def __post_init__(self) -> None:
        require_finite("MaxMinString", weight=self.weight, bias=self.bias)
        counts = len(self.weight), len(self.bias), len(self.steps) + 1
        if len(set(counts)) > 1 or not len(self.bias):
            raise ConstructionError(
                "MaxMinString needs n >= 1 gradients, n values and n - 1 steps, got "
                f"{counts[0]}, {counts[1]} and {counts[2] - 1}."
            )

    @classmethod
    def maximum(cls, weight: Reals, bias: Reals) -> "MaxMinString":
        """The largest of affine functions: every convex piecewise-linear function."""
        return cls(weight, bias, (Step.MAX,) * (len(bias) - 1))

    def __call__(self, points: Reals) -> Reals:
        """The value at each row."""
        affine = points @ self.weight.T + self.bias
        value = affine[:, 0]
        for step, column in zip(self.steps, affine.T[1:], strict=True):
            value = (
                numpy.maximum(value, column) if step is Step.MAX else numpy.minimum(value, column)
            )
        return value


def narrow_network(string: MaxMinString, box: Box) -> nn.Sequential:
    r"""A ReLU network of width d + 1 that equals a max-min string on a box.

    d units carry the input, moved so that no coordinate is negative; the last one holds
    r_j = ReLU(±(h_j - l_{j+1})), from which

    .. math:: \max(h, l) = l + (h - l)_+, \qquad \min(h, l) = l - (l - h)_+ .

    n affine functions take n affine layers, n - 1 of them hidden.

    Example:
        >>> hat = MaxMinString.maximum(numpy.array([[1.0, 1.0], [0.0, 0.0]]), numpy.zeros(2))
        >>> narrow_network(hat, Box.unit(2))
        Sequential(
          (0): Linear(in_features=2, out_features=3, bias=True)
          (1): ReLU()
          (2): Linear(in_features=3, out_features=1, bias=True)
        )

    Raises:
        ConstructionError: if the box has another dimension.

    Reference:
        Hanin & Sellke (2017), Proposition 2, arXiv:1710.11278.
    """
    count, dimension = string.weight.shape
    _require_dimension("narrow_network", dimension, box)
    # All affine functions in the moved coordinates, with a zero for the last unit.
    bias = string.bias + string.weight @ box.low
    functions = DenseLayer(numpy.hstack([string.weight, numpy.zeros((count, 1))]), bias)
    signs = [1.0 if step is Step.MAX else -1.0 for step in string.steps]
    layers, running = [], (functions.weight[0], float(bias[0]))
    for place, sign in enumerate(signs, start=1):
        gap = sign * (running[0] - functions.weight[place]), sign * (running[1] - bias[place])
        carried = numpy.eye(dimension, dimension + 1)
        layers.append(
            DenseLayer(
                numpy.vstack([carried, gap[0]]), numpy.append(numpy.zeros(dimension), gap[1])
            )
        )
        running = functions.weight[place] + sign * numpy.eye(dimension + 1)[-1], float(bias[place])
    layers.append(DenseLayer(running[0][None, :], numpy.array([running[1]])))
    return _with_moved_input(layers, box)


def narrow_form(network: nn.Module, box: Box) -> nn.Sequential:
    """A deep network of width d + 2 that equals a one-hidden-layer network on a box.

    d units carry the input, one computes the hidden units in turn, and one adds them up, moved by
    a constant that keeps it positive on the box. N hidden units become N hidden layers.

    Raises:
        ConstructionError: if the network has no or several hidden layers, several outputs, or the
            box another dimension.
    """
    layers = dense_layers(network)
    if len(layers) != 2 or len(layers[1].bias) != 1:
        raise ConstructionError(
            f"narrow_form needs one hidden layer and one output, got {len(layers) - 1} and "
            f"{len(layers[-1].bias)}."
        )
    hidden, heights, bias = layers[0], layers[1].weight[0], layers[1].bias
    count, dimension = hidden.weight.shape
    _require_dimension("narrow_form", dimension, box)
    if count == 0:
        raise ConstructionError("narrow_form needs at least one hidden unit, got 0.")
    moved = hidden.bias + hidden.weight @ box.low
    # No unit is larger than its highest value, so no partial sum is lower than these.
    highest = numpy.maximum(-box.lowest(DenseLayer(-hidden.weight, -hidden.bias)), 0.0)
    shifts = numpy.cumsum(numpy.maximum(-heights * highest, 0.0))
    result = []
    for unit in range(count):
        weight = numpy.zeros((dimension + 2, dimension + 2))
        weight[:dimension, :dimension] = numpy.eye(dimension)
        weight[dimension, :dimension] = hidden.weight[unit]
        offset = numpy.zeros(dimension + 2)
        offset[dimension] = moved[unit]
        if unit > 0:
            weight[-1, -2:] = heights[unit - 1], 1.0
            offset[-1] = shifts[unit - 1] - (shifts[unit - 2] if unit > 1 else 0.0)
        result.append(DenseLayer(weight, offset))
    last = numpy.zeros((1, dimension + 2))
    last[0, -2:] = heights[-1], 1.0
    result.append(DenseLayer(last, bias - (shifts[-2] if count > 1 else 0.0)))
    return _with_moved_input(result, box)


def _with_moved_input(layers: list[DenseLayer], box: Box) -> nn.Sequential:
    """Let the first layer read x instead of (x - low, 0, …)."""
    first = layers[0]
    kept = first.weight[:, : box.num_inputs]
    return relu_network([DenseLayer(kept, first.bias - kept @ box.low), *layers[1:]])


def _require_dimension(who: str, dimension: int, box: Box) -> None:
    if box.num_inputs != dimension:
        raise ConstructionError(
            f"{who}: the function has {dimension} inputs, the box {box.num_inputs}."
        )
