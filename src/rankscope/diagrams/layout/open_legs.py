"""Which way open legs point, and where their tips are: all tips on one side share one line."""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from rankscope.diagrams.layout.hanging import PRIVATE_STEP, is_private
from rankscope.diagrams.layout.placement import Side
from rankscope.diagrams.layout.sketch import Sketch
from rankscope.diagrams.layout.tensors import DIAMETER, UNIT
from rankscope.diagrams.layout.wires import Dot, End, NodeEnd, Tip
from rankscope.diagrams.pictures.scene import Point

COMB_SHARE, COMB_LEAST = 0.6, 3
BLOCKED, SHARED, SHARED_LEVEL = 6.0, 3.5, 6.0
SHADOW = 1.3  # a leg needs this much room before the next thing in its way
NEAR = 1e-6
FAN = 0.36


@dataclass(frozen=True)
class Leg:
    """A loose end: an open leg, or a private dot, and the tensor or dot it leaves."""

    end: End
    owner: End
    index: str


def loose_ends(sketch: Sketch) -> list[Leg]:
    """Open legs in order of output, then summed legs and diagonals."""
    wiring = sketch.wiring
    found = []
    for index in wiring.diagram.output:
        segment = wiring.at[Tip(index)][0]
        owner = segment.other(Tip(index))
        if isinstance(owner, Dot) and is_private(sketch, owner):
            continue
        found.append(Leg(Tip(index), owner, index))
    for dot, arms in wiring.dots.items():
        if is_private(sketch, dot):
            found.append(Leg(dot, arms[0], dot.index))
    return found


def point_legs(sketch: Sketch, wished: Mapping[str, Side]) -> dict[End, Side]:
    """A side for every loose end, and for the tips of private dots the side of their dot."""
    legs = loose_ends(sketch)
    around = _Surroundings.of(sketch, legs)
    sides: dict[End, Side] = {}
    loose: dict[End, list[Side]] = {}
    for leg in legs:
        taken = loose.setdefault(leg.owner, [])
        side = wished.get(leg.index) or _best_side(sketch, leg, around, taken)
        taken.append(side)
        sides[leg.end] = side
        if isinstance(leg.end, Dot) and leg.index in sketch.wiring.diagram.output:
            sides[Tip(leg.index)] = side
    return sides


@dataclass(frozen=True)
class _Surroundings:
    """What legs must look out for.

    Args:
        used: sides of each end that wires to other placed things leave from.
        columns: everything placed, by row and coarse column.
        combs: rows where all legs hang down.
        extents: leftmost and rightmost x of each row.
        num_legs: how many loose ends each owner has.
    """

    used: Mapping[End, list[Side]]
    columns: Mapping[tuple[int, int], list[Point]]
    combs: list[int]
    extents: Mapping[int, tuple[float, float]]
    num_legs: Mapping[End, int]

    @classmethod
    def of(cls, sketch: Sketch, legs: list[Leg]) -> "_Surroundings":
        columns: dict[tuple[int, int], list[Point]] = {}
        extents: dict[int, tuple[float, float]] = {}
        for end, (x, y) in sketch.at.items():
            band = sketch.band[end]
            columns.setdefault((band, math.floor(x)), []).append((x, y))
            if abs(y) < NEAR:
                low, high = extents.get(band, (x, x))
                extents[band] = (min(low, x), max(high, x))
        num_legs = Counter(leg.owner for leg in legs)
        return cls(_used_sides(sketch), columns, _combs(sketch, legs), extents, num_legs)


def _best_side(sketch: Sketch, leg: Leg, around: _Surroundings, taken: list[Side]) -> Side:
    cost: dict[Side, float] = {}
    for place, side in enumerate(_preferred(sketch, leg, around)):
        num_blocking = around.used.get(leg.owner, []).count(side)
        if side.is_vertical and _is_shadowed(sketch, leg.owner, side, around):
            num_blocking += 1
        shared = SHARED if side.is_vertical else SHARED_LEVEL
        cost[side] = place + BLOCKED * num_blocking + shared * taken.count(side)
    return min(cost, key=lambda side: cost[side])


def fan_offsets(sketch: Sketch, sides: Mapping[End, Side]) -> dict[End, float]:
    """How far each loose end is moved aside, where several leave one side of a tensor."""
    groups: dict[tuple[End, Side], list[Leg]] = {}
    for leg in loose_ends(sketch):
        groups.setdefault((leg.owner, sides[leg.end]), []).append(leg)
    found: dict[End, float] = {}
    for legs in groups.values():
        for place, leg in enumerate(legs):
            found[leg.end] = FAN * (place - (len(legs) - 1) / 2)
            found[Tip(leg.index)] = found[leg.end]
    return found


def put_private_dots(sketch: Sketch, sides: Mapping[End, Side]) -> None:
    """The ends of summed legs and of diagonals stand one step from their tensor."""
    offsets = fan_offsets(sketch, sides)
    for leg in loose_ends(sketch):
        if isinstance(leg.end, Dot):
            x, y = sketch.at[leg.owner]
            dx, dy = sides[leg.end].vector
            step = PRIVATE_STEP + (sketch.size - DIAMETER / UNIT) / 2
            aside = offsets[leg.end]
            point = (x + step * dx + aside * abs(dy), y + step * dy + aside * abs(dx))
            sketch.put(leg.end, point, sketch.band[leg.owner])


def _combs(sketch: Sketch, legs: list[Leg]) -> list[int]:
    """Rows where most tensors have an open leg: there, all legs hang down."""
    owners = {leg.owner for leg in legs if isinstance(leg.end, Tip)}
    found = []
    for row in sketch.rows:
        num_owners = sum(1 for name in row.nodes if NodeEnd(name) in owners)
        if num_owners >= max(COMB_LEAST, COMB_SHARE * len(row.nodes)):
            found.append(row.band)
    return found


def _preferred(sketch: Sketch, leg: Leg, around: _Surroundings) -> tuple[Side, ...]:
    """Sides to try, best first."""
    owner, band = leg.owner, sketch.band[leg.owner]
    height = sketch.at[owner][1]
    upright = (sketch.outward(band), _opposite(sketch.outward(band)))
    if isinstance(owner, NodeEnd) and owner.name in sketch.wiring.diagram.convolution_by_name:
        return (Side.RIGHT, Side.LEFT, Side.UP, Side.DOWN)
    if abs(height) > NEAR:
        return (Side.DOWN if height > 0 else Side.UP, Side.RIGHT, Side.LEFT)
    ends = _outer_sides(sketch, owner, around)
    if band in around.combs and isinstance(owner, NodeEnd):
        ends = ()
    elif len(ends) == 2 and around.num_legs[owner] == 1:
        ends = (Side.RIGHT,)
    return (*ends, *upright)


def _opposite(side: Side) -> Side:
    return Side.UP if side is Side.DOWN else Side.DOWN


def _is_shadowed(sketch: Sketch, owner: End, side: Side, around: _Surroundings) -> bool:
    """Whether something of the same row stands right above or below."""
    x, y = sketch.at[owner]
    return any(
        abs(other_x - x) < 0.3 and 0.1 < (other_y - y) * side.vector[1] < SHADOW
        for column in (math.floor(x) - 1, math.floor(x), math.floor(x) + 1)
        for other_x, other_y in around.columns.get((sketch.band[owner], column), ())
    )


def _outer_sides(sketch: Sketch, owner: End, around: _Surroundings) -> tuple[Side, ...]:
    """Left if nothing of the row is further left, right likewise."""
    low, high = around.extents[sketch.band[owner]]
    x = sketch.at[owner][0]
    sides = ((Side.LEFT, x <= low + NEAR), (Side.RIGHT, x >= high - NEAR))
    return tuple(side for side, is_outermost in sides if is_outermost)


def _used_sides(sketch: Sketch) -> dict[End, list[Side]]:
    """The sides of each end that wires to other placed things leave from."""
    used: dict[End, list[Side]] = {}
    for segment in sketch.wiring.segments:
        for end in dict.fromkeys(segment.ends):
            other = segment.other(end)
            if end in sketch.at and other in sketch.at:
                used.setdefault(end, []).append(_side(sketch, end, other))
            elif segment.first == segment.second:
                used.setdefault(end, []).append(Side.UP)
    return used


def _side(sketch: Sketch, end: End, other: End) -> Side:
    (x, y), (other_x, other_y) = sketch.at[end], sketch.at[other]
    if sketch.band[end] != sketch.band[other]:
        return Side.UP if sketch.band[other] < sketch.band[end] else Side.DOWN
    if end == other:
        return Side.UP
    # Wires arrive at dots and convolutions along the row, and leave tensors across it.
    is_small = isinstance(end, Dot) or (
        isinstance(end, NodeEnd) and end.name in sketch.wiring.diagram.convolution_by_name
    )
    is_level = abs(y - other_y) < NEAR
    if is_level or (is_small and abs(x - other_x) > NEAR):
        return Side.LEFT if other_x < x else Side.RIGHT
    return Side.UP if other_y < y else Side.DOWN
