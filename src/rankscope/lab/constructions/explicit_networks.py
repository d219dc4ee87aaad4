"""Networks built by hand: the 2-5-1 network, deep narrow ones, the sawtooth, Montúfar's."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction

import numpy
import torch
from torch import nn

from rankscope.errors import ConstructionError
from rankscope.lab.constructions.dense import (
    Box,
    DenseLayer,
    Reals,
    dense_layers,
    relu_network,
    require_finite,
    require_shape,
)
from rankscope.lab.constructions.piecewise_linear import PiecewiseLinear
from rankscope.lab.constructions.regions import (
    PlaneRegions,
    montufar_lower_bound,
    regions_in_plane,
    regions_on_line,
    zaslavsky_upper_bound,
)
from rankscope.theorem import Status, Theorem

# The lecture's first network: two inputs, five hidden ReLU units, one output.


SIZES = (2, 5, 1)
# The square that the lecture draws.
SQUARE = Box.of([-2.0, -2.0], [2.0, 2.0])


@dataclass(frozen=True, eq=False)
class TwoFiveOne:
    """One realization and its affine regions in the square [-2, 2]².

    Args:
        seed: that its weights follow from.
        network: Linear(2, 5), ReLU, Linear(5, 1) in float64.
        regions: where it is affine.
        most_regions: 10 if all biases are zero (five lines through one point), else 16.
    """

    seed: int
    network: nn.Sequential
    regions: PlaneRegions
    most_regions: int

    @property
    def num_parameters(self) -> int:
        """Weights and biases: 10 + 5 + 5 + 1."""
        return sum(parameter.numel() for parameter in self.network.parameters())


def two_five_one(seed: int, *, bias_spread: float = 0.0) -> TwoFiveOne:
    """Draw the network as the lecture does: Glorot-normal matrices, biases zero.

    With zero biases the function inherits the homogeneity of ReLU, f(αx) = α f(x) for α >= 0, so
    that all its breaks are lines through the origin. (Keras cuts its normal numbers off at two
    standard deviations; we do not.)

    Args:
        seed: any integer.
        bias_spread: standard deviation of the five hidden biases.

    Example:
        >>> two_five_one(0).num_parameters, two_five_one(0).regions.num_patterns
        (21, 10)

    Raises:
        ConstructionError: if the spread is negative or not finite.

    Reference:
        Diehl (2023), Example 1.2, and its program examples/nn251.py.
    """
    if not 0 <= bias_spread < float("inf"):
        raise ConstructionError(
            f"two_five_one needs a finite bias_spread of at least 0, got {bias_spread}."
        )
    generator = torch.Generator().manual_seed(seed)
    inputs, width, outputs = SIZES
    first = nn.Linear(inputs, width, dtype=torch.float64)
    last = nn.Linear(width, outputs, dtype=torch.float64)
    for layer in (first, last):
        nn.init.xavier_normal_(layer.weight, generator=generator)
        nn.init.zeros_(layer.bias)
    if bias_spread:
        nn.init.normal_(first.bias, std=bias_spread, generator=generator)
    network = nn.Sequential(first, nn.ReLU(), last)
    most = zaslavsky_upper_bound(num_inputs=inputs, width=width).value if bias_spread else 2 * width
    assert most is not None
    return TwoFiveOne(seed, network, regions_in_plane(network, SQUARE), most)


# Deep networks that are hardly wider than their input.


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


# Telgarsky's sawtooth: few units make many teeth when they are stacked deep.


TELGARSKY = Theorem(
    "Telgarsky (2016)",
    "by counting pieces: docs/proofs.md, section 30",
    "1602.04485",
    ("ReLU", "L >= 2", "at most L hidden layers and 2^L hidden units", "L1 on [0, 1]"),
    Status.PROVED_HERE,
)
# Beyond this, teeth are narrower than float64 can tell apart.
LARGEST_POWER = 50
MOST_TEETH = 22


def sawtooth_network(power: int) -> nn.Sequential:
    """The tent map applied `power` times: 2^power affine pieces on [0, 1] from 3 power units.

    Example:
        >>> import torch
        >>> points = torch.tensor([[0.0], [0.25], [0.375], [0.5]], dtype=torch.float64)
        >>> sawtooth_network(2)(points).flatten().tolist()
        [0.0, 1.0, 0.5, 0.0]

    Raises:
        ConstructionError: if the power is not in 1..50.
    """
    if not 1 <= power <= LARGEST_POWER:
        raise ConstructionError(
            f"sawtooth_network: power must be in 1..{LARGEST_POWER}, got {power}."
        )
    units = DenseLayer(numpy.ones((3, 1)), numpy.array([0.0, -0.5, -1.0]))
    tent = DenseLayer(numpy.array([[2.0, -4.0, 2.0]]), numpy.zeros(1))
    return relu_network([units, *[units.after(tent)] * (power - 1), tent])


def sawtooth_function(power: int) -> PiecewiseLinear:
    """The same function, tooth by tooth.

    Raises:
        ConstructionError: if the power is not in 1..22.
    """
    if not 1 <= power <= MOST_TEETH:
        raise ConstructionError(
            f"sawtooth_function: power must be in 1..{MOST_TEETH}, got {power}."
        )
    edges = numpy.arange(2**power + 1) / 2**power
    slopes = 2.0**power * (-1.0) ** numpy.arange(2**power)
    return PiecewiseLinear(edges, numpy.concatenate([[0.0], slopes, [0.0]]))


def most_pieces(*, num_layers: int, num_nodes: int) -> int:
    """Most affine pieces of a network R -> R with so many hidden layers and units in all.

    A layer of n units cuts each piece into at most n + 1, and shares as equal as integers can be
    make the product largest: at most (num_nodes / num_layers + 1)^num_layers, which is at most
    Telgarsky's (2m/L)^L.

    Example:
        >>> most_pieces(num_layers=2, num_nodes=4)
        9

    Raises:
        ConstructionError: if there are no layers or fewer units than layers.
    """
    if not 1 <= num_layers <= num_nodes:
        raise ConstructionError(
            f"most_pieces needs at least one layer and as many units, got {num_layers} layers and "
            f"{num_nodes} units."
        )
    share, wider = divmod(num_nodes, num_layers)
    return int((share + 2) ** wider * (share + 1) ** (num_layers - wider))


def sawtooth_distance_bound(*, power: int, num_pieces: int) -> Fraction:
    r"""How far, in L1([0, 1]), the sawtooth is from every function of p affine pieces, at least.

    .. math:: \|\Delta^k - g\|_1 \ge \tfrac18 \left(1 - 3 p \, 2^{-k}\right)

    The line at 1/2 cuts the sawtooth into N = 2^k + 1 triangles of area 2^-k / 4, above and below
    in turn; the first and the last are half as large. At most p - 1 of them lie in two pieces of
    g. Where g is affine on j whole triangles it crosses 1/2 once at most, so that of those it does
    not cross at least (j - 2) / 2 are on the other side of 1/2 than g, and g is farther from them
    than 1/2 is. Add up: (N - (p - 1) - 2p) / 2 triangles, less one for the two halves.

    Example:
        >>> sawtooth_distance_bound(power=6, num_pieces=16)
        Fraction(1, 32)

    Raises:
        ConstructionError: if a number is not positive.

    Reference:
        Telgarsky (2016), arXiv:1602.04485; the constant as in the author's lecture notes.
    """
    if power < 1 or num_pieces < 1:
        raise ConstructionError(
            "sawtooth_distance_bound needs a power and a number of pieces of at least 1, got "
            f"{power} and {num_pieces}."
        )
    return max(Fraction(0), (1 - Fraction(3 * num_pieces, 2**power)) / 8)


@dataclass(frozen=True)
class DepthSeparation:
    """A deep network that all shallower ones of exponentially many units are far from.

    Args:
        num_layers: hidden layers that competitors may have, L.
        num_nodes: hidden units that they may have, 2^L.
        power: how often the tent map is applied, L² + 2.
        competitor_pieces: most pieces of a competitor.
        distance: what every competitor is away in L1([0, 1]), at least; never below 1/32.
    """

    num_layers: int
    num_nodes: int
    power: int
    competitor_pieces: int
    distance: Fraction

    def __str__(self) -> str:
        return (
            f"tent map {self.power} times, {3 * self.power} units: L1 distance >= "
            f"{float(self.distance):.4g} from {self.num_layers} layers, {self.num_nodes} units"
        )


def depth_separation(num_layers: int) -> DepthSeparation:
    """Telgarsky's theorem for one L, computed.

    Example:
        >>> print(depth_separation(2))
        tent map 6 times, 18 units: L1 distance >= 0.07227 from 2 layers, 4 units

    Raises:
        ConstructionError: if there are fewer than two layers.

    Reference:
        Telgarsky (2016), Theorem 1.1, arXiv:1602.04485.
    """
    if num_layers < 2:
        raise ConstructionError(f"depth_separation needs at least 2 layers, got {num_layers}.")
    num_nodes, power = 2**num_layers, num_layers**2 + 2
    pieces = most_pieces(num_layers=num_layers, num_nodes=num_nodes)
    distance = sawtooth_distance_bound(power=power, num_pieces=pieces)
    return DepthSeparation(num_layers, num_nodes, power, pieces, distance)


@dataclass(frozen=True)
class SawtoothDistance:
    """How far a given network is from the sawtooth, and how far it must be."""

    distance: float
    num_pieces: int
    bound: Fraction


def distance_to_sawtooth(network: nn.Module, power: int) -> SawtoothDistance:
    """The L1([0, 1]) distance of a network R -> R from the sawtooth, piece by piece.

    Raises:
        ConstructionError: if the network has other sizes or the power is not in 1..22.
    """
    require_shape("distance_to_sawtooth", dense_layers(network), inputs=1, outputs=1)
    regions = regions_on_line(network, ends=(0.0, 1.0))
    distance = l1_distance(sawtooth_function(power), regions.function(), 0.0, 1.0)
    pieces = regions.num_affine_pieces
    return SawtoothDistance(
        distance, pieces, sawtooth_distance_bound(power=power, num_pieces=pieces)
    )


def l1_distance(first: PiecewiseLinear, second: PiecewiseLinear, low: float, high: float) -> float:
    """The integral of |first - second|, in closed form between breakpoints.

    Example:
        >>> zero = PiecewiseLinear.of([], [0.0])
        >>> l1_distance(PiecewiseLinear.of([], [1.0], value=-1.0), zero, 0.0, 2.0)
        1.0
    """
    kinks = numpy.concatenate([first.breakpoints, second.breakpoints, [low, high]])
    points = numpy.unique(numpy.clip(kinks, low, high))
    gaps = first(points) - second(points)
    before, after, widths = gaps[:-1], gaps[1:], numpy.diff(points)
    total = numpy.abs(before) + numpy.abs(after)
    # Where the sign changes there are two triangles instead of a trapezium.
    squares = numpy.where(before * after < 0, before**2 + after**2, total**2)
    return float((widths * squares / (2 * numpy.where(total > 0, total, 1.0))).sum())


# A network with as many affine regions as Montúfar's lower bound promises.


def montufar_network(*, num_inputs: int, widths: Sequence[int]) -> nn.Sequential:
    """A network with exactly the lower bound's activation patterns inside the unit box.

    Each layer but the last folds the box onto itself: p = ⌊n / d⌋ units for each coordinate make
    a zigzag of p pieces. The last layer cuts every folded copy by n_L hyperplanes in general
    position, all of whose crossings lie inside. Units that are left over are never switched on.

    With more units in the last layer than inputs, some unit of it is switched on everywhere, the
    function is constant nowhere, and folds are breaks: its maximal affine pieces are as many.

    Raises:
        ConstructionError: if a layer is narrower than the input.

    Reference:
        Montúfar, Pascanu, Cho & Bengio (2014), Theorem 4, arXiv:1402.1869.
    """
    montufar_lower_bound(num_inputs=num_inputs, widths=widths)  # refuses sizes that do not fit
    layers, reading = [], DenseLayer(numpy.eye(num_inputs), numpy.zeros(num_inputs))
    for width in widths[:-1]:
        fold, following = _folding(num_inputs, width)
        layers.append(fold.after(reading))
        reading = following
    layers.append(_cutting(num_inputs, widths[-1]).after(reading))
    # Weights without a pattern: no sum of some of them vanishes, nor do their gradients.
    outputs = numpy.sqrt(numpy.arange(2.0, widths[-1] + 2.0)) + 1.0
    layers.append(DenseLayer(outputs[None, :], numpy.zeros(1)))
    return relu_network(layers)


def _folding(num_inputs: int, width: int) -> tuple[DenseLayer, DenseLayer]:
    """Units that fold [0, 1] in each coordinate, and the map that reads the zigzags off them.

    With p folds the zigzag is p x - 2 (p x - 1)_+ + 2 (p x - 2)_+ - …
    """
    folds = width // num_inputs
    weight, bias = numpy.zeros((width, num_inputs)), numpy.full(width, -1.0)
    reading = numpy.zeros((num_inputs, width))
    for coordinate in range(num_inputs):
        units = range(coordinate * folds, (coordinate + 1) * folds)
        for number, unit in enumerate(units):
            weight[unit, coordinate], bias[unit] = folds, -number
            reading[coordinate, unit] = (-1) ** number * (2 if number else 1)
    return DenseLayer(weight, bias), DenseLayer(reading, numpy.zeros(num_inputs))


def _cutting(num_inputs: int, width: int) -> DenseLayer:
    """Hyperplanes in general position in the unit box.

    Those of v -> θ_i^d - v_0 - v_1 θ_i - … - v_{d-1} θ_i^{d-1}: d + 1 of them meet in a point only
    if a monic polynomial of degree d had d + 1 zeros. Nor can one be negative at the largest θ and
    change its sign between all the others, if there are more than d: with alternating signs, some
    unit is switched on everywhere.
    """
    nodes = numpy.linspace(-1.0, 1.0, width) if width > 1 else numpy.zeros(1)
    normals = -numpy.vander(nodes, num_inputs, increasing=True)
    offsets = nodes**num_inputs
    reach = _farthest_crossing(normals, offsets)
    signs = (-1.0) ** numpy.arange(width)[::-1]
    # v = 4 reach (x - 1/2) brings all crossings to within 1/4 of the centre.
    scale = 4.0 * max(reach, 0.25)
    weight = normals * scale
    bias = offsets - weight.sum(axis=1) / 2
    return DenseLayer(signs[:, None] * weight, signs * bias)


def _farthest_crossing(normals: Reals, offsets: Reals) -> float:
    """The largest coordinate of a point in which as many hyperplanes meet as there are inputs."""
    chosen = itertools.combinations(range(len(offsets)), normals.shape[1])
    return max(
        float(numpy.abs(numpy.linalg.solve(normals[list(rows)], -offsets[list(rows)])).max())
        for rows in chosen
    )
