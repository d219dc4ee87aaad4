"""Networks of dense layers with ReLU between them, and the boxes of inputs they are studied on."""

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy
import torch
from numpy.typing import NDArray
from scipy import special
from torch import nn

from rankscope.errors import ConstructionError

# Networks of dense layers with ReLU between them, read as matrices and built from them.


Reals = NDArray[numpy.float64]
# Object arrays of Fraction: a float is a fraction, so these compute without rounding.
Rationals = NDArray[numpy.object_]


@dataclass(frozen=True, eq=False)
class DenseLayer:
    """The affine map x -> `weight` x + `bias`."""

    weight: Reals
    bias: Reals

    def __call__(self, points: Reals) -> Reals:
        """Apply the map to each row."""
        return numpy.asarray(points @ self.weight.T + self.bias)

    def after(self, other: "DenseLayer") -> "DenseLayer":
        """The affine map that applies `other` first."""
        return DenseLayer(self.weight @ other.weight, self.weight @ other.bias + self.bias)


def dense_layers(network: nn.Module) -> tuple[DenseLayer, ...]:
    """The affine maps of a network, between which there are ReLUs.

    Example:
        >>> network = nn.Sequential(nn.Linear(2, 5), nn.ReLU(), nn.Linear(5, 1))
        >>> [layer.weight.shape for layer in dense_layers(network)]
        [(5, 2), (1, 5)]

    Raises:
        ConstructionError: if the network is not Linear, ReLU, Linear, …, Linear, or holds a
            weight that is not finite.
    """
    parts = _flatten(network)
    for place, part in enumerate(parts):
        wanted = (nn.Linear, nn.ReLU)[place % 2]
        if not isinstance(part, wanted):
            raise ConstructionError(
                f"dense_layers reads Linear, ReLU, Linear, …, Linear; part {place} is a "
                f"{type(part).__name__} where a {wanted.__name__} belongs."
            )
    if len(parts) % 2 == 0:
        raise ConstructionError(
            f"dense_layers reads networks that end with a Linear; this one has {len(parts)} parts. "
            "Append a Linear, the identity if need be."
        )
    return tuple(_read(part) for part in parts if isinstance(part, nn.Linear))


def _flatten(network: nn.Module) -> list[nn.Module]:
    if isinstance(network, nn.Sequential):
        return [part for child in network for part in _flatten(child)]
    return [network]


def _read(linear: nn.Linear) -> DenseLayer:
    weight = linear.weight.detach().cpu().double().numpy().copy()
    bias = numpy.zeros(linear.out_features)
    if linear.bias is not None:
        bias = linear.bias.detach().cpu().double().numpy().copy()
    if not (numpy.isfinite(weight).all() and numpy.isfinite(bias).all()):
        bad = int((~numpy.isfinite(weight)).sum() + (~numpy.isfinite(bias)).sum())
        raise ConstructionError(
            f"dense_layers needs finite weights; {bad} of {weight.size + bias.size} in a "
            f"{linear.in_features} -> {linear.out_features} layer are not."
        )
    return DenseLayer(weight, bias)


def relu_network(layers: Sequence[DenseLayer]) -> nn.Sequential:
    """The float64 network of these affine maps with ReLUs between them."""
    parts: list[nn.Module] = []
    for layer in layers:
        parts += [nn.ReLU(), _linear(layer)]
    return nn.Sequential(*parts[1:])


def _linear(layer: DenseLayer) -> nn.Linear:
    outputs, inputs = layer.weight.shape
    with warnings.catch_warnings():
        # A constant function has no hidden unit, and torch warns that there is nothing to draw.
        warnings.filterwarnings("ignore", message="Initializing zero-element tensors")
        linear = nn.Linear(inputs, outputs, dtype=torch.float64)
    with torch.no_grad():
        linear.weight.copy_(torch.from_numpy(layer.weight.copy()))
        linear.bias.copy_(torch.from_numpy(layer.bias.copy()))
    return linear


def evaluate(network: nn.Module, points: Reals) -> Reals:
    """Outputs of a network at each row of `points`, in its own precision."""
    precision = next(network.parameters()).dtype
    with torch.no_grad():
        outputs = network(torch.from_numpy(numpy.ascontiguousarray(points)).to(precision))
    return numpy.asarray(outputs.double().numpy())


def rational(values: Reals) -> Rationals:
    """The same numbers as fractions."""
    exact = numpy.empty(values.shape, dtype=object)
    for place, value in numpy.ndenumerate(values):
        exact[place] = Fraction(float(value))
    return exact


def require_shape(who: str, layers: Sequence[DenseLayer], *, inputs: int, outputs: int) -> None:
    """Refuse a network of other sizes.

    Raises:
        ConstructionError: if the sizes differ.
    """
    result = layers[0].weight.shape[1], layers[-1].weight.shape[0]
    if result != (inputs, outputs):
        raise ConstructionError(
            f"{who} needs a network from R^{inputs} to R^{outputs}, "
            f"got one from R^{result[0]} to R^{result[1]}."
        )


def require_finite(who: str, **numbers: Reals | float) -> None:
    """Refuse numbers that are not finite, naming the first.

    Raises:
        ConstructionError: if there is one.
    """
    for name, values in numbers.items():
        flat = numpy.ravel(values)
        bad = numpy.flatnonzero(~numpy.isfinite(flat))
        if len(bad):
            raise ConstructionError(
                f"{who}: {name} must be finite, got {flat[bad[0]]} at position {bad[0]}."
            )


# Boxes in d dimensions, and points in them.


@dataclass(frozen=True, eq=False)
class Box:
    """The points between `low` and `high`, coordinate by coordinate.

    Example:
        >>> Box.of([0.0, -1.0], [1.0, 1.0]).points(2).tolist()
        [[0.0, -1.0], [0.0, 1.0], [1.0, -1.0], [1.0, 1.0]]

    Raises:
        ConstructionError: if an end is not finite or the box is empty.
    """

    low: Reals
    high: Reals

    def __post_init__(self) -> None:
        require_finite("Box", low=self.low, high=self.high)
        if self.low.shape != self.high.shape or self.low.ndim != 1:
            raise ConstructionError(
                f"Box: low and high must be vectors of one length, got shapes {self.low.shape} "
                f"and {self.high.shape}."
            )
        wrong = numpy.flatnonzero(self.low >= self.high)
        if len(wrong):
            place = int(wrong[0])
            raise ConstructionError(
                f"Box: coordinate {place} goes from {self.low[place]} to {self.high[place]}; "
                "a box must go upwards."
            )

    @classmethod
    def of(cls, low: Sequence[float], high: Sequence[float]) -> "Box":
        """The box of plain numbers."""
        return cls(numpy.array(low, float), numpy.array(high, float))

    @classmethod
    def unit(cls, num_inputs: int) -> "Box":
        """All coordinates between zero and one."""
        return cls(numpy.zeros(num_inputs), numpy.ones(num_inputs))

    @property
    def num_inputs(self) -> int:
        """The dimension d."""
        return len(self.low)

    def lowest(self, layer: DenseLayer) -> Reals:
        """The least value of each output of an affine map on the box."""
        return numpy.asarray(
            numpy.minimum(layer.weight * self.low, layer.weight * self.high).sum(axis=1)
            + layer.bias
        )

    def points(self, per_side: int) -> Reals:
        """A grid that includes the corners."""
        sides = [
            numpy.linspace(low, high, per_side)
            for low, high in zip(self.low, self.high, strict=True)
        ]
        return numpy.stack(numpy.meshgrid(*sides, indexing="ij"), axis=-1).reshape(
            -1, self.num_inputs
        )

    def diagonal(self, count: int) -> Reals:
        """Points from the lowest corner to the highest."""
        return numpy.linspace(self.low, self.high, count)

    def cell_centres(self, grid: tuple[int, ...], chunk: int) -> Iterator[Reals]:
        """Centres of the cells of a grid, at most `chunk` at a time."""
        sides = (self.high - self.low) / numpy.array(grid)
        total = int(numpy.prod(grid))
        for start in range(0, total, chunk):
            numbers = numpy.arange(start, min(start + chunk, total))
            places = numpy.stack(numpy.unravel_index(numbers, grid), axis=-1)
            yield self.low + (places + 0.5) * sides


# --- The activation functions of the lecture, and what is true of each ----------------------------


# From here on all five are constant or affine to within float64, on both sides.
REACH = 40.0
GELU_STEEPEST = math.sqrt(2)


@dataclass(frozen=True)
class GeluMinimum:
    """Where GELU is least: between `low` and `high`; `value` is its value there."""

    low: float
    high: float
    value: float


def gelu_minimum() -> GeluMinimum:
    """Bracket the only zero of GELU's slope, by bisection.

    With the normal density φ and its integral Φ the slope is Φ(x) + x φ(x), and its own slope is
    (2 - x²) φ(x): it falls from 0 to its least value at -√2, rises to its greatest at √2, and falls
    to 1. Hence there is one zero, between -√2 and 0.

    Example:
        >>> least = gelu_minimum()
        >>> -0.7518 < least.low < least.high < -0.7517, least.high - least.low < 1e-11
        (True, True)
    """
    low, high = -GELU_STEEPEST, 0.0
    # Rounding of the slope is near 1e-16: at this width the sign at both ends is still certain.
    while high - low > 1e-12:
        middle = (low + high) / 2
        low, high = (middle, high) if _gelu_slope(numpy.array(middle)) < 0 else (low, middle)
    return GeluMinimum(low, high, float(_gelu(numpy.array((low + high) / 2))))


@dataclass(frozen=True)
class Activation:
    """A function R -> R, its slope, and what is true of it.

    Args:
        name: as PyTorch's class.
        formula: as in the lecture.
        values: the function, entry by entry.
        slopes: its derivative; at the kink of ReLU the left one, as in PyTorch.
        infimum: greatest lower bound of its values.
        limits: at minus and plus infinity.
        lipschitz_constant: the least, which is the greatest size of the slope.
        is_monotone: whether it never falls.
        is_homogeneous: whether f(αx) = α f(x) for all α >= 0.
        is_odd: whether f(-x) = -f(x).
    """

    name: str
    formula: str
    values: Callable[[Reals], Reals]
    slopes: Callable[[Reals], Reals]
    infimum: float
    limits: tuple[float, float]
    lipschitz_constant: float
    is_monotone: bool = True
    is_homogeneous: bool = False
    is_odd: bool = False

    @property
    def supremum(self) -> float:
        """Least upper bound of its values: for all five, the limit on the right."""
        return self.limits[1]


def _relu(points: Reals) -> Reals:
    return numpy.maximum(points, 0.0)


def _relu_slope(points: Reals) -> Reals:
    return numpy.asarray(points > 0, dtype=float)


def _tanh_slope(points: Reals) -> Reals:
    # Not 1 - tanh², of which nothing is left once tanh rounds to 1.
    return numpy.asarray(4 * special.expit(2 * points) * special.expit(-2 * points))


def _sigmoid(points: Reals) -> Reals:
    return numpy.asarray(special.expit(points))


def _sigmoid_slope(points: Reals) -> Reals:
    return numpy.asarray(special.expit(points) * special.expit(-points))


def _gelu(points: Reals) -> Reals:
    return numpy.asarray(points * special.ndtr(points))


def _gelu_slope(points: Reals) -> Reals:
    density = numpy.exp(-(points**2) / 2) / math.sqrt(2 * math.pi)
    return numpy.asarray(special.ndtr(points) + points * density)


def _elu(points: Reals) -> Reals:
    return numpy.where(points > 0, points, numpy.expm1(numpy.minimum(points, 0.0)))


def _elu_slope(points: Reals) -> Reals:
    return numpy.asarray(numpy.exp(numpy.minimum(points, 0.0)))


RELU = Activation(
    "ReLU", "max{0, x}", _relu, _relu_slope, 0.0, (0.0, math.inf), 1.0, is_homogeneous=True
)
TANH = Activation("Tanh", "tanh x", numpy.tanh, _tanh_slope, -1.0, (-1.0, 1.0), 1.0, is_odd=True)
SIGMOID = Activation(
    "Sigmoid", "1 / (1 + exp(-x))", _sigmoid, _sigmoid_slope, 0.0, (0.0, 1.0), 0.25
)
GELU = Activation(
    "GELU",
    "x (1 + erf(x / √2)) / 2",
    _gelu,
    _gelu_slope,
    gelu_minimum().value,
    (0.0, math.inf),
    float(_gelu_slope(numpy.array(GELU_STEEPEST))),
    is_monotone=False,
)
ELU = Activation(
    "ELU", "x for x > 0, else exp(x) - 1", _elu, _elu_slope, -1.0, (-1.0, math.inf), 1.0
)
ACTIVATIONS = (RELU, TANH, SIGMOID, GELU, ELU)


@dataclass(frozen=True)
class MeasuredActivation:
    """What an activation does on a grid, beside what is true of it.

    Args:
        name: of the activation.
        least_value: on the grid; the infimum is no greater.
        least_at: where.
        steepest: greatest size of the slope on the grid; the Lipschitz constant is no less.
        homogeneity_error: greatest |f(2x) - 2 f(x)| relative to 1 + |2 f(x)|.
        oddness_error: greatest |f(-x) + f(x)| relative to 1 + |f(x)|.
    """

    name: str
    least_value: float
    least_at: float
    steepest: float
    homogeneity_error: float
    oddness_error: float


def measure_activation(activation: Activation, *, num_points: int = 8001) -> MeasuredActivation:
    """Measure an activation on an even grid that holds zero.

    Example:
        >>> measure_activation(RELU).homogeneity_error, measure_activation(TANH).oddness_error
        (0.0, 0.0)
    """
    points = numpy.linspace(-REACH, REACH, num_points | 1)
    values = activation.values(points)
    doubled, mirrored = activation.values(2 * points), activation.values(-points)
    least = int(values.argmin())
    return MeasuredActivation(
        activation.name,
        float(values[least]),
        float(points[least]),
        float(numpy.abs(activation.slopes(points)).max()),
        float((numpy.abs(doubled - 2 * values) / (1 + numpy.abs(2 * values))).max()),
        float((numpy.abs(mirrored + values) / (1 + numpy.abs(values))).max()),
    )
