"""Row layout: each row is a chain of tensors (its spine), in the order of evaluation."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rankscope.drawing.layout.placement import Dot, End, NodeEnd, Placement, Side, Tip, View, Wiring
from rankscope.drawing.layout.rows import Row
from rankscope.drawing.layout.sketch import (
    PRIVATE_STEP,
    Sketch,
    branches,
    convolutions,
    dots_off_rows,
    dots_on_rows,
    is_private,
    opposite,
    slide_rows,
    spread_columns,
)
from rankscope.drawing.layout.tensors import CONVOLUTION_DIAMETER, DIAMETER, UNIT, Frames
from rankscope.drawing.scene import Box, Point, union

# --- Which way open legs point, and where their tips are: all tips on one side share one line -----


COMB_SHARE, COMB_LEAST = 0.6, 3
BLOCKED, SHARED, SHARED_LEVEL = 6.0, 3.5, 6.0
SHADOW = 1.3  # a leg needs this much space before the next thing in its way
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
    legs = []
    for index in wiring.diagram.output:
        segment = wiring.at[Tip(index)][0]
        owner = segment.other(Tip(index))
        if isinstance(owner, Dot) and is_private(sketch, owner):
            continue
        legs.append(Leg(Tip(index), owner, index))
    for dot, arms in wiring.dots.items():
        if is_private(sketch, dot):
            legs.append(Leg(dot, arms[0], dot.index))
    return legs


def point_legs(sketch: Sketch, hinted: Mapping[str, Side]) -> dict[End, Side]:
    """A side for every loose end, and for the tips of private dots the side of their dot."""
    legs = loose_ends(sketch)
    around = _Surroundings.of(sketch, legs)
    sides: dict[End, Side] = {}
    loose: dict[End, list[Side]] = {}
    for leg in legs:
        taken = loose.setdefault(leg.owner, [])
        side = hinted.get(leg.index) or _best_side(sketch, leg, around, taken)
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
    for place, side in enumerate(_preferred_sides(sketch, leg, around)):
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
    offsets: dict[End, float] = {}
    for legs in groups.values():
        for place, leg in enumerate(legs):
            offsets[leg.end] = FAN * (place - (len(legs) - 1) / 2)
            offsets[Tip(leg.index)] = offsets[leg.end]
    return offsets


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
    comb_rows = []
    for row in sketch.rows:
        num_owners = sum(1 for name in row.nodes if NodeEnd(name) in owners)
        if num_owners >= max(COMB_LEAST, COMB_SHARE * len(row.nodes)):
            comb_rows.append(row.band)
    return comb_rows


def _preferred_sides(sketch: Sketch, leg: Leg, around: _Surroundings) -> tuple[Side, ...]:
    """Sides to try, best first."""
    owner, band = leg.owner, sketch.band[leg.owner]
    height = sketch.at[owner][1]
    upright = (sketch.outward(band), opposite(sketch.outward(band)))
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


# --- How far rows are apart, and the finished placement of a sketch -------------------------------


PITCH = 1.62
DOT_SHARE = 0.66  # a dot needs less space than the tensor it would be
LEG_ROOM = 0.75
BARRIER_SPACE = 0.42
LEG, LEG_FROM_FRAME = 46.0, 36.0


def finish(sketch: Sketch, sides: Mapping[End, Side]) -> Placement:
    """Give every row its height and every tip its place."""
    heights = _heights(sketch, sides)
    at = {end: (x, y + heights[sketch.band[end]]) for end, (x, y) in sketch.at.items()}
    return Placement(
        {end.name: point for end, point in at.items() if isinstance(end, NodeEnd)},
        {(end.index, end.region): point for end, point in at.items() if isinstance(end, Dot)},
        _tips(sketch, sides, at),
    )


def _heights(sketch: Sketch, sides: Mapping[End, Side]) -> list[float]:
    up, down = [0.0] * sketch.num_bands, [0.0] * sketch.num_bands
    for end, (_, y) in sketch.at.items():
        reach = abs(y) * (DOT_SHARE if isinstance(end, Dot) else 1.0)
        extent = up if y < 0 else down
        extent[sketch.band[end]] = max(extent[sketch.band[end]], reach)
    for leg in loose_ends(sketch):
        side, band = sides[leg.end], sketch.band[leg.owner]
        if side.is_vertical and isinstance(leg.end, Tip):
            extent = up if side is Side.UP else down
            reach = max(0.0, sketch.at[leg.owner][1] * side.vector[1]) + LEG_ROOM
            extent[band] = max(extent[band], reach)
    heights = [0.0]
    for band in range(1, sketch.num_bands):
        space = (
            PITCH + sketch.size - DIAMETER / UNIT + BARRIER_SPACE * _extra_barriers(sketch, band)
        )
        heights.append(heights[-1] + space + down[band - 1] + up[band])
    return heights


def _extra_barriers(sketch: Sketch, band: int) -> int:
    """How many borders beyond the first run between a row and the one above it."""
    structure = sketch.wiring.diagram.structure
    depths: dict[int, None] = {}
    openings: dict[int, None] = {}
    for region in sketch.wiring.diagram.region_by_name:
        bands = [
            sketch.band[NodeEnd(name)]
            for name in (*structure.nodes_inside[region], *structure.convolutions_inside[region])
        ]
        depth, outer = 0, structure.parent[region]
        while outer is not None:
            depth, outer = depth + 1, structure.parent[outer]
        if max(bands) == band - 1:
            depths[depth] = None
        if min(bands) == band:
            openings[depth] = None
    return max(0, len(depths) + len(openings) - 1)


def _tips(sketch: Sketch, sides: Mapping[End, Side], at: Mapping[End, Point]) -> dict[str, Point]:
    """Tips to the left share one x, to the right another; those of one row share one y."""
    frames = Frames.around_ends(sketch.wiring, _boxes(sketch, at))
    boxes = [*_boxes(sketch, at).values(), *frames.boxes.values()]
    reach = LEG_FROM_FRAME if frames.boxes else LEG
    left, _, right, _ = union(boxes)
    edges: dict[Side, float] = {Side.LEFT: left - reach, Side.RIGHT: right + reach}
    lines: dict[tuple[int, float, Side], float] = {}
    owners: dict[str, End] = {}
    for index in sketch.wiring.diagram.output:
        owner = owners[index] = sketch.wiring.at[Tip(index)][0].other(Tip(index))
        side = sides[Tip(index)]
        if side.is_vertical:
            key = (sketch.band[owner], sketch.at[owner][1], side)
            edge = _edge(sketch, owner, side, at, frames)
            best = max if side is Side.DOWN else min
            lines[key] = best(lines.get(key, edge), edge)
    offsets = fan_offsets(sketch, sides)
    tips: dict[str, Point] = {}
    for index, owner in owners.items():
        (x, y), side = at[owner], sides[Tip(index)]
        # A diagonal's dot has moved aside already, and its leg goes straight on.
        aside = 0.0 if isinstance(owner, Dot) else offsets[Tip(index)]
        if side.is_vertical:
            line = lines[(sketch.band[owner], sketch.at[owner][1], side)]
            tips[index] = (x + aside, line / UNIT)
        else:
            tips[index] = (edges[side] / UNIT, y + aside)
    return tips


def _boxes(sketch: Sketch, at: Mapping[End, Point]) -> dict[End, Box]:
    return {end: end_box(end, point, sketch) for end, point in at.items()}


def end_box(end: End, point: Point, sketch: Sketch) -> Box:
    """The pixels that a tensor, convolution or dot takes."""
    radius = sketch.size * UNIT / 2
    if isinstance(end, Dot):
        radius = 8.0
    elif isinstance(end, NodeEnd) and end.name in sketch.wiring.diagram.convolution_by_name:
        radius = CONVOLUTION_DIAMETER / 2
    x, y = point[0] * UNIT, point[1] * UNIT
    return (x - radius, y - radius, x + radius, y + radius)


def _edge(sketch: Sketch, owner: End, side: Side, at: Mapping[End, Point], frames: Frames) -> float:
    """Where a vertical leg may end: beyond its tensor and the barriers it leaves."""
    box = end_box(owner, at[owner], sketch)
    around = [
        frames.boxes[region]
        for region in sketch.wiring.regions_around(owner)
        if region is not None and region in frames.boxes
    ]
    reach = LEG_FROM_FRAME if around else LEG
    if side is Side.DOWN:
        return max([box[3], *(frame[3] for frame in around)]) + reach
    return min([box[1], *(frame[1] for frame in around)]) - reach


def place_rows(
    wiring: Wiring,
    rows: Sequence[Row],
    view: View,
    legs: Mapping[str, Side],
    dot_sides: Mapping[Dot, Side],
) -> Placement:
    """Place everything, given which tensors stand on which row."""
    sketch = Sketch(wiring, rows, view, dot_sides)
    spread_columns(sketch)
    dots_on_rows(sketch)
    branches(sketch)
    convolutions(sketch)
    dots_off_rows(sketch)
    slide_rows(sketch)
    sides = point_legs(sketch, legs)
    put_private_dots(sketch, sides)
    return finish(sketch, sides)
