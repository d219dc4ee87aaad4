"""A row layout while it is being made: positions relative to the row that a thing belongs to."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rankscope.diagrams.layout.columns import solve
from rankscope.diagrams.layout.frames import least_width
from rankscope.diagrams.layout.placement import Side, View
from rankscope.diagrams.layout.rows import Row
from rankscope.diagrams.layout.tensors import (
    DIAMETER,
    UNIT,
    WIRE_FONT,
    diameter,
)
from rankscope.diagrams.layout.wires import Dot, End, NodeEnd, Wiring
from rankscope.diagrams.layout.wording import index_text
from rankscope.diagrams.pictures.mathtext import text_width
from rankscope.diagrams.pictures.scene import Point

GAP, GAP_WITH_DOT, GAP_WITH_ARCS = 1.25, 1.6, 1.5
BARRIER_GAP = 0.45
LABEL_ROOM = 22.0
FRAME_PADDING = 30.0
BESIDE_FRAME = 0.72  # from a border to the next tensor there is room for a mark and a label


@dataclass
class Sketch:
    """Where things stand: `at` is x and the distance below the row, `band` which row.

    Args:
        wiring: the diagram.
        rows: its rows.
        view: what will be written on the wires.
        wishes: where off-row dots should go, other than by default.
    """

    wiring: Wiring
    rows: Sequence[Row]
    view: View
    wishes: Mapping[Dot, Side] = field(default_factory=dict)
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
    """Place all spines: equal steps, wider where a label, a dot or a barrier needs room."""
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
    """By how much each side of a barrier must move out so that its tag fits."""
    diagram = sketch.wiring.diagram
    place = {
        name: at[column]
        for row in sketch.rows
        for name, column in zip(row.nodes, row.columns, strict=True)
    }
    found: dict[str, float] = {}
    for region in diagram.regions:
        inside = [place[n] for n in diagram.structure.nodes_inside[region.name] if n in place]
        if inside:
            width = (max(inside) - min(inside) + sketch.size) * UNIT + 2 * FRAME_PADDING
            least = least_width(sketch.wiring, region.name)
            if least > width:
                found[region.name] = (least - width) / 2 / UNIT
    return found


def _needs_of_frames(
    sketch: Sketch, widened: Mapping[str, float]
) -> list[tuple[tuple[int, int], tuple[float]]]:
    """Room between each region and what stands beside it on any of its rows."""
    places = {
        name: (row.band, column)
        for row in sketch.rows
        for name, column in zip(row.nodes, row.columns, strict=True)
    }
    found: list[tuple[tuple[int, int], tuple[float]]] = []
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
            room = need + BARRIER_GAP * (barriers - 1)
            if column > high:
                found.append(((high, column), (room,)))
            elif column < low:
                found.append(((column, low), (room,)))
    return found
