"""Telgarsky's sawtooth: few units make many teeth when they are stacked deep."""

from dataclasses import dataclass
from fractions import Fraction

import numpy
from torch import nn

from rankscope.constructions.dense import DenseLayer, dense_layers, relu_network, require_shape
from rankscope.constructions.piecewise_linear import PiecewiseLinear
from rankscope.constructions.regions_line import regions_on_line
from rankscope.errors import ConstructionError
from rankscope.theorem import Status, Theorem

TELGARSKY = Theorem(
    "Telgarsky (2016)",
    "by counting pieces: the docstring of `sawtooth_distance_bound`",
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
