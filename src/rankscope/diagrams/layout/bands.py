"""How far rows are apart, and the finished placement of a sketch."""

from collections.abc import Mapping

from rankscope.diagrams.layout.frames import Frames
from rankscope.diagrams.layout.open_legs import fan_offsets, loose_ends
from rankscope.diagrams.layout.placement import Placement, Side
from rankscope.diagrams.layout.sketch import Sketch
from rankscope.diagrams.layout.tensors import CONVOLUTION_DIAMETER, DIAMETER, UNIT
from rankscope.diagrams.layout.wires import Dot, End, NodeEnd, Tip
from rankscope.diagrams.pictures.scene import Box, Point, union

PITCH = 1.62
DOT_SHARE = 0.66  # a dot needs less room than the tensor it would be
LEG_ROOM = 0.75
BARRIER_ROOM = 0.42
LEG, LEG_FROM_FRAME = 46.0, 36.0


def finished(sketch: Sketch, sides: Mapping[End, Side]) -> Placement:
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
        room = PITCH + sketch.size - DIAMETER / UNIT + BARRIER_ROOM * _extra_barriers(sketch, band)
        heights.append(heights[-1] + room + down[band - 1] + up[band])
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
