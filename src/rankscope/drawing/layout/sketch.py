"""A row layout while it is being made: positions relative to the row that a thing belongs to."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rankscope.drawing.layout.placement import Dot, End, NodeEnd, Side, Tip, View, Wiring
from rankscope.drawing.layout.rows import Row, solve
from rankscope.drawing.layout.tensors import (
    DIAMETER,
    UNIT,
    WIRE_FONT,
    diameter,
    index_text,
    least_width,
)
from rankscope.drawing.scene import Point
from rankscope.drawing.typesetting import text_width

GAP, GAP_WITH_DOT, GAP_WITH_ARCS = 1.25, 1.6, 1.5
BARRIER_GAP = 0.45
LABEL_ROOM = 22.0
FRAME_PADDING = 30.0
BESIDE_FRAME = 0.72  # from a border to the next tensor there is space for a mark and a label


@dataclass
class Sketch:
    """Where things stand: `at` is x and the distance below the row, `band` which row.

    Args:
        wiring: the diagram.
        rows: its rows.
        view: what will be written on the wires.
        dot_sides: where off-row dots should go, other than by default.
    """

    wiring: Wiring
    rows: Sequence[Row]
    view: View
    dot_sides: Mapping[Dot, Side] = field(default_factory=dict)
    at: dict[End, Point] = field(default_factory=dict)
    band: dict[End, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.size = diameter(self.wiring.diagram) / UNIT
        self.num_bands = max(row.band for row in self.rows) + 1

    def put(self, end: End, point: Point, band: int) -> None:
        """Place something."""
        self.at[end] = point
        self.band[end] = band

    def is_taken(self, point: Point, band: int, *, reach: float = 0.9) -> bool:
        """Whether something stands near a point already."""
        return any(
            self.band[end] == band and abs(x - point[0]) < reach and abs(y - point[1]) < reach
            for end, (x, y) in self.at.items()
        )

    def outward(self, band: int) -> Side:
        """Up for the top row of several, else down: away from other rows."""
        return Side.UP if band == 0 and self.num_bands > 1 else Side.DOWN

    def inward(self, band: int) -> Side:
        """Towards the other rows; down if there are none."""
        return Side.UP if band == self.num_bands - 1 and self.num_bands > 1 else Side.DOWN


def spread_columns(sketch: Sketch) -> None:
    """Place all spines: equal steps, wider where a label, a dot or a barrier needs space."""
    needs = [(row.columns, _needs(sketch, row)) for row in sketch.rows]
    at = solve([*needs, *_needs_of_frames(sketch, {})])
    widened = _needs_of_tags(sketch, at)
    if sketch.wiring.diagram.regions:
        at = solve([*needs, *_needs_of_frames(sketch, widened)])
    for row in sketch.rows:
        for name, column in zip(row.nodes, row.columns, strict=True):
            sketch.put(NodeEnd(name), (at[column], 0.0), row.band)


def _needs(sketch: Sketch, row: Row) -> list[float]:
    """How far apart the centres of neighbours on a row must be."""
    pairs = zip(row.nodes, row.nodes[1:], row.links, strict=False)
    return [_need(sketch, *pair) for pair in pairs]


def _need(sketch: Sketch, first: str, second: str, index: str | None) -> float:
    wiring = sketch.wiring
    ends = (NodeEnd(first), NodeEnd(second))
    between = [
        segment for segment in wiring.at.get(ends[0], ()) if segment.other(ends[0]) == ends[1]
    ]
    has_dot = any(
        isinstance(arm, Dot) and ends[1] in wiring.dots[arm]
        for segment in wiring.at.get(ends[0], ())
        for arm in segment.ends
    )
    gap = GAP_WITH_DOT if has_dot else GAP_WITH_ARCS if len(between) > 1 else GAP
    gap += sketch.size - DIAMETER / UNIT
    for segment in between:
        text = index_text(wiring.diagram.index_by_name[segment.index], sketch.view)
        gap = max(gap, (text_width(text, WIRE_FONT) + LABEL_ROOM) / UNIT + sketch.size)
    if index is None:
        gap = max(gap, GAP)
    return gap + BARRIER_GAP * len(_barriers_between(wiring, *ends))


def _barriers_between(wiring: Wiring, first: End, second: End) -> list[str]:
    around = [wiring.regions_around(end) for end in (first, second)]
    return [
        region
        for region in dict.fromkeys((*around[0], *around[1]))
        if region is not None and (region in around[0]) != (region in around[1])
    ]


def _needs_of_tags(sketch: Sketch, at: Mapping[int, float]) -> dict[str, float]:
    """Distance by which each side of a barrier must move out so that its tag fits."""
    diagram = sketch.wiring.diagram
    place = {
        name: at[column]
        for row in sketch.rows
        for name, column in zip(row.nodes, row.columns, strict=True)
    }
    needs: dict[str, float] = {}
    for region in diagram.regions:
        inside = [place[n] for n in diagram.structure.nodes_inside[region.name] if n in place]
        if inside:
            width = (max(inside) - min(inside) + sketch.size) * UNIT + 2 * FRAME_PADDING
            least = least_width(sketch.wiring, region.name)
            if least > width:
                needs[region.name] = (least - width) / 2 / UNIT
    return needs


def _needs_of_frames(
    sketch: Sketch, widened: Mapping[str, float]
) -> list[tuple[tuple[int, int], tuple[float]]]:
    """Space between each region and what stands beside it on any of its rows."""
    places = {
        name: (row.band, column)
        for row in sketch.rows
        for name, column in zip(row.nodes, row.columns, strict=True)
    }
    needs: list[tuple[tuple[int, int], tuple[float]]] = []
    for region in sketch.wiring.diagram.region_by_name:
        inside = sketch.wiring.diagram.structure.nodes_inside[region]
        own = [places[name] for name in inside if name in places]
        if not own:
            continue
        low, high = min(column for _, column in own), max(column for _, column in own)
        top, bottom = min(band for band, _ in own), max(band for band, _ in own)
        need = sketch.size + BESIDE_FRAME + widened.get(region, 0.0)
        beside = [
            (name, column)
            for name, (band, column) in places.items()
            if name not in inside and top <= band <= bottom
        ]
        for name, column in beside:
            barriers = len(_barriers_between(sketch.wiring, NodeEnd(name), NodeEnd(inside[0])))
            space = need + BARRIER_GAP * (barriers - 1)
            if column > high:
                needs.append(((high, column), (space,)))
            elif column < low:
                needs.append(((column, low), (space,)))
    return needs


# --- What hangs off a row: side branches, convolutions, and dots that are not on it ---------------


BRANCH, BRANCH_FROM_DOT = 1.15, 0.95  # length of a wire to a side branch
CONVOLUTION_LIFT, CONVOLUTION_STEP = 1.12, 0.8
DOT_LIFT, LANE, BARRIER_LIFT = 0.72, 0.42, 0.45
END_STEP = 0.78
PRIVATE_STEP = 0.78


def dots_on_rows(sketch: Sketch) -> None:
    """A hyperedge that a spine runs through gets its dot on the row, midway."""
    for row in sketch.rows:
        for first, second, index in zip(row.nodes, row.nodes[1:], row.links, strict=False):
            for dot, arms in sketch.wiring.dots.items():
                is_between = {NodeEnd(first), NodeEnd(second)} <= {*arms}
                if dot.index == index and is_between and dot not in sketch.dot_sides:
                    middle = sketch.at[NodeEnd(first)][0] + sketch.at[NodeEnd(second)][0]
                    sketch.put(dot, (middle / 2, 0.0), row.band)


def slide_rows(sketch: Sketch) -> None:
    """Move a row sideways so that a dot on it stands straight under what it is wired to.

    Only a row that is not lined up with the rows above by a plain wire, and is alone.
    """
    for row in sketch.rows:
        here = [end for end, band in sketch.band.items() if band == row.band]
        is_alone = sum(1 for other in sketch.rows if other.band == row.band) == 1
        steps = [
            sketch.at[other][0] - sketch.at[end][0]
            for end in here
            for other in _above(sketch, end, row.band)
        ]
        is_aligned = any(abs(step) < 1e-6 for step in steps)
        from_dots = [
            sketch.at[other][0] - sketch.at[end][0]
            for end in here
            if isinstance(end, Dot)
            for other in _above(sketch, end, row.band)
        ]
        if is_alone and from_dots and not is_aligned:
            for end in here:
                x, y = sketch.at[end]
                sketch.put(end, (x + from_dots[0], y), row.band)


def _above(sketch: Sketch, end: End, band: int) -> list[End]:
    """What an end is wired to on earlier rows of its own region."""
    region = sketch.wiring.region_of(end)
    others = [segment.other(end) for segment in sketch.wiring.at.get(end, ())]
    return [
        other
        for other in others
        if sketch.band.get(other, band) < band and region in sketch.wiring.regions_around(other)
    ]


def branches(sketch: Sketch) -> None:
    """Tensors off the spine hang from a neighbour: below, then above, then beside."""
    for row in sketch.rows:
        waiting = [
            NodeEnd(name)
            for name in row.members
            if NodeEnd(name) not in sketch.at and name in sketch.wiring.diagram.node_by_name
        ]
        while waiting:
            end = next(
                (end for end in waiting if _neighbour_of(sketch, end) is not None), waiting[0]
            )
            waiting.remove(end)
            _place_off_row(sketch, end, _neighbour_of(sketch, end), row)


def _neighbours(sketch: Sketch, end: End) -> list[End]:
    """Ends that a wire leads to, dots first, then what lies behind dots that have no place."""
    neighbours: list[End] = []
    for segment in sketch.wiring.at.get(end, ()):
        other = segment.other(end)
        neighbours.append(other)
        if isinstance(other, Dot) and other not in sketch.at:
            neighbours += [arm for arm in sketch.wiring.dots[other] if arm != end]
    return sorted(neighbours, key=lambda other: not isinstance(other, Dot))


def _neighbour_of(sketch: Sketch, end: NodeEnd) -> End | None:
    band = {sketch.band.get(other) for other in _neighbours(sketch, end)} - {None}
    latest = max((b for b in band if b is not None), default=None)
    for other in _neighbours(sketch, end):
        if other in sketch.at and sketch.band[other] == latest:
            return other
    return None


def _place_off_row(sketch: Sketch, end: NodeEnd, neighbour: End | None, row: Row) -> None:
    if neighbour is None:
        right = max(sketch.at[NodeEnd(name)][0] for name in row.nodes)
        sketch.put(end, (right + GAP, 0.0), row.band)
        return
    x, y = sketch.at[neighbour]
    reaches_up = any(
        sketch.band.get(other, row.band) < row.band for other in _neighbours(sketch, end)
    )
    first = Side.UP if y < 0 or (y == 0 and reaches_up) else Side.DOWN
    sides = (first,) if y != 0 or reaches_up else (first, opposite(first))
    branch = BRANCH_FROM_DOT if isinstance(neighbour, Dot) else BRANCH
    branch += sketch.size - DIAMETER / UNIT
    for shift in (0.0, GAP, -GAP, 2 * GAP, -2 * GAP, 3 * GAP, -3 * GAP):
        for side in sides:
            point = (x + shift, y + branch * side.vector[1])
            if not sketch.is_taken(point, row.band):
                sketch.put(end, point, row.band)
                return
    sketch.put(end, (x, y + BRANCH * (len(sketch.at) + 1)), row.band)


def opposite(side: Side) -> Side:
    """Up for down, and down for up."""
    return Side.UP if side is Side.DOWN else Side.DOWN


def convolutions(sketch: Sketch) -> None:
    """A convolution stands above or below the owner of its kernel, in the lane of its input."""
    diagram = sketch.wiring.diagram
    count: dict[End, int] = {}
    for row in sketch.rows:
        for name in row.members:
            end = NodeEnd(name)
            if name not in diagram.convolution_by_name or end in sketch.at:
                continue
            convolution = diagram.convolution_by_name[name]
            owner = _holder(sketch, convolution.kernel, end)
            source = _holder(sketch, convolution.input, end)
            place = count.get(owner, 0)
            count[owner] = place + 1
            lift = CONVOLUTION_LIFT + CONVOLUTION_STEP * (place // 2)
            y = -lift if place % 2 == 0 else lift
            if isinstance(source, NodeEnd) and source.name in diagram.convolution_by_name:
                y = sketch.at.get(source, (0.0, y))[1]
            x, owner_y = sketch.at.get(owner, (0.0, 0.0))
            x += 0.75 * (place // 2)
            while sketch.is_taken((x, owner_y + y), row.band, reach=0.5):
                x += GAP / 2
            sketch.put(end, (x, owner_y + y), row.band)


def _holder(sketch: Sketch, index: str, convolution: NodeEnd) -> End:
    owners = sketch.wiring.diagram.structure.owners[index]
    return next(NodeEnd(name) for name in owners if name != convolution.name)


def is_private(sketch: Sketch, dot: Dot) -> bool:
    """Whether a dot belongs to one tensor: the end of a summed leg, or of a diagonal."""
    arms = sketch.wiring.dots[dot]
    owners = dict.fromkeys(arm for arm in arms if not isinstance(arm, Tip))
    return len(owners) == 1 and isinstance(next(iter(owners)), NodeEnd)


def dots_off_rows(sketch: Sketch) -> None:
    """The other dots stand beside their row, each in a lane of its own where arms overlap."""
    lanes: dict[tuple[int, Side], list[tuple[float, float, int]]] = {}
    waiting = [
        dot for dot in sketch.wiring.dots if dot not in sketch.at and not is_private(sketch, dot)
    ]
    bands = {dot: _band(sketch, dot) for dot in waiting}
    # Narrow brackets first: they nest inside wide ones.
    for dot in sorted(waiting, key=lambda dot: (bands[dot], _span(sketch, dot, bands[dot]))):
        band = bands[dot]
        here = _arms(sketch, dot, band)
        side = sketch.dot_sides.get(dot) or _usual_side(sketch, band, here)
        if side.is_vertical:
            _put_in_lane(sketch, dot, band, side, lanes)
        else:
            xs = [point[0] for end, point in sketch.at.items() if sketch.band[end] == band]
            x = max(xs) + END_STEP if side is Side.RIGHT else min(xs) - END_STEP
            sketch.put(dot, (x, 0.0), band)


def _band(sketch: Sketch, dot: Dot) -> int:
    """The row of a dot: the last one of its own tensors, or the one below what comes in."""
    arms = sketch.wiring.dots[dot]
    own = [
        sketch.band[arm]
        for arm in arms
        if arm in sketch.band and sketch.wiring.region_of(arm) == dot.region
    ]
    around = [sketch.band[arm] for arm in arms if arm in sketch.band]
    return max(own or around, default=sketch.num_bands - 1)


def _arms(sketch: Sketch, dot: Dot, band: int) -> list[End]:
    return [
        arm
        for arm in dict.fromkeys(sketch.wiring.dots[dot])
        if isinstance(arm, NodeEnd) and sketch.band.get(arm) == band
    ]


def _span(sketch: Sketch, dot: Dot, band: int) -> float:
    xs = [sketch.at[arm][0] for arm in _arms(sketch, dot, band)]
    return max(xs) - min(xs) if xs else 0.0


def _usual_side(sketch: Sketch, band: int, arms: list[End]) -> Side:
    """The side between the rows; for a single tensor at the end of its row, the side beyond it."""
    on_row = [point[0] for end, point in sketch.at.items() if sketch.band[end] == band]
    if len(arms) == 1 and sketch.at[arms[0]][1] == 0.0:
        if sketch.at[arms[0]][0] == max(on_row):
            return Side.RIGHT
        if sketch.at[arms[0]][0] == min(on_row):
            return Side.LEFT
    return sketch.inward(band)


def _put_in_lane(
    sketch: Sketch,
    dot: Dot,
    band: int,
    side: Side,
    lanes: dict[tuple[int, Side], list[tuple[float, float, int]]],
) -> None:
    xs = [sketch.at[arm][0] for arm in _arms(sketch, dot, band)]
    others = [sketch.at[arm][0] for arm in sketch.wiring.dots[dot] if arm in sketch.at]
    x = sum(xs) / len(xs) if xs else sum(others) / max(len(others), 1)
    partners = [
        sketch.at[arm][0]
        for arm in sketch.wiring.dots[dot]
        if isinstance(arm, Dot) and arm in sketch.at
    ]
    # Straight under the dot of the same index across the barrier, if that is between the arms.
    if partners and xs and min(xs) <= partners[0] <= max(xs):
        x = partners[0]
    low, high = min([*xs, x]), max([*xs, x])
    used = lanes.setdefault((band, side), [])
    lane = 0
    while any(lane == other and low <= b and a <= high for a, b, other in used):
        lane += 1
    used.append((low, high, lane))
    lift = DOT_LIFT + LANE * lane + BARRIER_LIFT * _depth(sketch, dot, band)
    sketch.put(dot, (x, lift * side.vector[1]), band)


def _depth(sketch: Sketch, dot: Dot, band: int) -> int:
    """How many barriers the arms of a dot come out of, beside their row."""
    around = [sketch.wiring.regions_around(arm) for arm in _arms(sketch, dot, band)]
    return max(
        (regions.index(dot.region) for regions in around if dot.region in regions), default=0
    )
