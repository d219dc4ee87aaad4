"""Render a placed diagram as a scene: shapes, routed wires, marks and labels."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from rankscope.diagrams.diagram import Diagram
from rankscope.drawing.layout.labels import (
    Page,
    Request,
    crossing_marks,
    cut_strokes,
    frame_shape,
    place_labels,
    tag,
)
from rankscope.drawing.layout.mesh import with_plate, without_indices
from rankscope.drawing.layout.placement import (
    PLAIN_VIEW,
    Dot,
    End,
    NodeEnd,
    Placement,
    Segment,
    Tip,
    View,
    Wiring,
    mean_point,
)
from rankscope.drawing.layout.routes import Route
from rankscope.drawing.layout.routing import PlacedWiring, Router, spread_ports
from rankscope.drawing.layout.rows import components, links_among
from rankscope.drawing.layout.tensors import (
    CONVOLUTION_DIAMETER,
    TRIANGLE_SHARE,
    UNIT,
    convolution_label,
    convolution_shape,
    diameter,
    index_description,
    index_text,
    node_label,
    node_shape,
)
from rankscope.drawing.polygons import segments as pieces
from rankscope.drawing.scene import Box, Label, Point, Scene, Shape, ShapeKind, Wire
from rankscope.errors import LayoutError

# --- From a placement in grid units to pixels: centres and boxes of everything that wires join ----


JUNCTION_DIAMETER, SUM_DIAMETER = 11.0, 9.0


def place_wiring(wiring: Wiring, placement: Placement) -> PlacedWiring:
    """Everything in pixels.

    Raises:
        LayoutError: if the placement lacks a node or the tip of a leg.
    """
    centres: dict[End, Point] = {}
    diagram = wiring.diagram
    for part in diagram.holders:
        centres[NodeEnd(part.name)] = _point_of(placement.nodes, part.name, "node", wiring)
    for index in diagram.output:
        centres[Tip(index)] = _point_of(placement.tips, index, "open leg", wiring)
    for dot, arms in wiring.dots.items():
        given = placement.dots.get((dot.index, dot.region))
        if given is not None:
            centres[dot] = (given[0] * UNIT, given[1] * UNIT)
        else:
            centres[dot] = mean_point([_centre(centres, placement, arm) for arm in arms])
    size = diameter(diagram)
    boxes = {end: _box(wiring, end, centre, size) for end, centre in centres.items()}
    return PlacedWiring(wiring, centres, boxes, placement.straight)


def _point_of(points: Mapping[str, Point], name: str, what: str, wiring: Wiring) -> Point:
    if name not in points:
        raise LayoutError(
            f"The placement has no position for {what} {name!r} of diagram "
            f"{wiring.diagram.name!r}; it has: {', '.join(points) or 'none'}."
        )
    x, y = points[name]
    return (x * UNIT, y * UNIT)


def _centre(centres: Mapping[End, Point], placement: Placement, arm: End) -> Point:
    if arm in centres:
        return centres[arm]
    assert isinstance(arm, Dot)
    x, y = placement.dots.get((arm.index, arm.region), (0.0, 0.0))
    return (x * UNIT, y * UNIT)


def _box(wiring: Wiring, end: End, centre: Point, size: float) -> Box:
    radius = _radius(wiring, end, size)
    return (centre[0] - radius, centre[1] - radius, centre[0] + radius, centre[1] + radius)


def _radius(wiring: Wiring, end: End, size: float) -> float:
    diagram = wiring.diagram
    match end:
        case Dot():
            return (JUNCTION_DIAMETER if len(wiring.dots[end]) > 1 else SUM_DIAMETER) / 2
        case NodeEnd(name=name):
            if name in diagram.convolution_by_name:
                size = CONVOLUTION_DIAMETER
            elif diagram.node_by_name[name].narrow_side is not None:
                size *= TRIANGLE_SHARE
            return size / 2
        case Tip():
            return 0.0


WIRE_WIDTH, THICKEST = 2.4, 6.0


@dataclass(frozen=True)
class Drawn:
    """What one diagram looks like before labels."""

    placed: PlacedWiring
    routes: Mapping[Segment, Route]
    frames: Mapping[str, Box]
    shapes: tuple[Shape, ...]
    dots: tuple[Shape, ...]
    marks: Mapping[Segment, list[Shape]]


def render(diagram: Diagram, placement: Placement, view: View = PLAIN_VIEW) -> Scene:
    """Draw a diagram as it is placed; the same input gives the same scene, byte for byte.

    The description of the scene is left empty: it belongs to whoever knows the whole figure.

    Raises:
        LayoutError: if the placement lacks a node or a tip, or `view.cut` an unknown index.
    """
    for index in view.cut:
        if index not in diagram.index_by_name:
            raise LayoutError(
                f"View.cut names {index!r}, which diagram {diagram.name!r} does not have; "
                f"its indices are: {', '.join(diagram.index_by_name) or 'none'}."
            )
    plates = tuple(index for index in placement.plates if index in diagram.index_by_name)
    inner = without_indices(diagram, plates)
    scene = _scene(inner, _draw_parts(inner, placement), placement, view)
    for index in plates:
        scene = with_plate(scene, diagram, index, view)
    return scene


def _draw_parts(diagram: Diagram, placement: Placement) -> Drawn:
    wiring = Wiring(diagram)
    placed = place_wiring(wiring, placement)
    routing = Router(placed).run()
    routes = spread_ports(placed, routing.routes)
    size = diameter(diagram)
    shapes = [
        node_shape(
            node,
            placed.centres[NodeEnd(node.name)],
            size=size,
            angle=_narrow_angle(wiring, routes, node.name, node.narrow_side),
        )
        for node in diagram.nodes
    ]
    shapes += [
        convolution_shape(convolution, placed.centres[NodeEnd(convolution.name)])
        for convolution in diagram.convolutions
    ]
    dots = tuple(_dot_shape(placed, dot) for dot in wiring.dots)
    marks = crossing_marks(wiring, routing.frames, routes)
    return Drawn(placed, routes, routing.frames, tuple(shapes), dots, marks)


def _narrow_angle(
    wiring: Wiring, routes: Mapping[Segment, Route], name: str, index: str | None
) -> float:
    """Degrees from the tensor to where its narrow side's wire goes; 0 points right."""
    for segment in wiring.at.get(NodeEnd(name), ()):
        if segment.index == index:
            line = routes[segment].line
            (x0, y0), (x1, y1) = line[:2] if segment.first == NodeEnd(name) else line[-1:-3:-1]
            return round(math.degrees(math.atan2(y1 - y0, x1 - x0)), 3)
    return 0.0


def _dot_name(dot: Dot) -> str:
    return f"{dot.index}@{dot.region or ''}"


def _dot_shape(placed: PlacedWiring, dot: Dot) -> Shape:
    index = placed.wiring.diagram.index_by_name[dot.index]
    arms = placed.wiring.dots[dot]
    left, _, right, _ = placed.boxes[dot]
    what = "summed" if len(arms) == 1 else f"shared by {len(arms)} ends"
    x, y = placed.centres[dot]
    return Shape(
        _dot_name(dot),
        ShapeKind.DOT,
        x,
        y,
        right - left,
        right - left,
        f"junction-{index.kind.value}",
        f"index {index.name}, {what}",
    )


def _scene(diagram: Diagram, drawn: Drawn, placement: Placement, view: View) -> Scene:
    frames = [
        frame_shape(diagram.region_by_name[name], box)
        for name, box in reversed([*drawn.frames.items()])
    ]
    crossed = [mark for marks in drawn.marks.values() for mark in marks]
    tags, tag_labels = _tags(diagram, drawn, crossed)
    wires = [_wire(diagram, segment, drawn, view) for segment in drawn.routes]
    cuts = cut_strokes(drawn.placed, drawn.routes, view.cut)
    marks = (*drawn.dots, *crossed, *tags)
    ink = [*drawn.routes.values(), *(Route(stroke.points) for stroke in cuts)]
    page = Page(drawn.shapes, marks, frames, ink)
    wire_labels = place_labels(page, _requests(diagram, drawn, placement, view))
    return Scene(
        diagram.name,
        title=diagram.title or diagram.name,
        frames=tuple(frames),
        wires=(*wires, *cuts),
        shapes=drawn.shapes,
        marks=marks,
        labels=(*_tensor_labels(diagram, drawn), *tag_labels, *wire_labels),
    )


def _wire(diagram: Diagram, segment: Segment, drawn: Drawn, view: View) -> Wire:
    index = diagram.index_by_name[segment.index]
    width = WIRE_WIDTH
    if view.width_by_size and index.size is not None:
        width = min(THICKEST, 1.2 + 0.42 * math.log2(index.size))
    route = drawn.routes[segment]
    touched = [_end_name(end) for end in segment.ends if not isinstance(end, Tip)]
    touched += [mark.name for mark in drawn.marks.get(segment, [])]
    return Wire(
        segment.index,
        route.points,
        f"wire-{index.kind.value}",
        width=width,
        is_curve=route.is_curve,
        description=index_description(index),
        ends=tuple(dict.fromkeys(touched)),
    )


def _end_name(end: End) -> str:
    match end:
        case NodeEnd(name=name):
            return name
        case Dot():
            return _dot_name(end)
        case Tip(index=index):
            return index


def _tags(diagram: Diagram, drawn: Drawn, crossed: list[Shape]) -> tuple[list[Shape], list[Label]]:
    obstacles = [shape.box for shape in (*crossed, *drawn.shapes, *drawn.dots)]
    for route in drawn.routes.values():
        for (x0, y0), (x1, y1) in pieces(route.line):
            obstacles.append((min(x0, x1), min(y0, y1), max(x0, x1), max(y0, y1)))
    pills, labels = [], []
    for name, frame in drawn.frames.items():
        pill, label = tag(diagram, diagram.region_by_name[name], frame, obstacles)
        obstacles.append(pill.box)
        pills.append(pill)
        labels.append(label)
    return pills, labels


def _tensor_labels(diagram: Diagram, drawn: Drawn) -> list[Label]:
    size = diameter(diagram)
    by_name = {shape.name: shape for shape in drawn.shapes}
    labels = [node_label(node, by_name[node.name], size=size) for node in diagram.nodes]
    labels += [
        convolution_label(convolution, by_name[convolution.name])
        for convolution in diagram.convolutions
    ]
    return labels


def _requests(diagram: Diagram, drawn: Drawn, placement: Placement, view: View) -> list[Request]:
    by_index: dict[str, list[Segment]] = {}
    for segment in drawn.routes:
        by_index.setdefault(segment.index, []).append(segment)
    middles = _middles(drawn.placed)
    requests = []
    for name, index in diagram.index_by_name.items():
        own = by_index.get(name, [])
        # On a split hyperedge the label belongs on the wire that crosses the barrier.
        split = [s for s in own if isinstance(s.first, Dot) and isinstance(s.second, Dot)]
        routes = [drawn.routes[s] for s in (*split, *(s for s in own if s not in split))]
        is_bent = any(len(route.points) > 2 for route in routes)
        may_turn = name in placement.straight or (is_bent and not split)
        requests.append(
            Request(
                name,
                index_text(index, view),
                f"wire-{index.kind.value}",
                tuple(routes),
                num_preferred=len(split) or len(routes),
                tip=_tip(own, drawn.routes),
                side=placement.label_sides.get(name),
                centre=_outward_from(drawn, own, middles) if may_turn else None,
            )
        )
    return requests


def _outward_from(drawn: Drawn, own: list[Segment], middles: Mapping[str, Point]) -> Point | None:
    """Where labels of an index should stand away from, if it matters.

    That is the chord of parallel wires, and the middle of a network with cycles.
    """
    for segment in own:
        parallel = [
            s for s in drawn.placed.wiring.at[segment.first] if {*s.ends} == {*segment.ends}
        ]
        if len(parallel) > 1 and segment.first != segment.second:
            (x0, y0), (x1, y1) = (drawn.placed.centres[end] for end in segment.ends)
            return ((x0 + x1) / 2, (y0 + y1) / 2)
    return middles.get(own[0].index) if own else None


def _middles(placed: PlacedWiring) -> dict[str, Point]:
    """The middle of each part of the picture that has cycles, for every index in it."""
    wiring, diagram = placed.wiring, placed.wiring.diagram
    middles: dict[str, Point] = {}
    for group in components(links_among(wiring, [part.name for part in diagram.holders])):
        ends = dict.fromkeys(
            end
            for name in group
            for segment in wiring.at.get(NodeEnd(name), ())
            for end in segment.ends
            if not isinstance(end, Tip)
        )
        bonds = dict.fromkeys(
            segment
            for end in ends
            for segment in wiring.at[end]
            if not isinstance(segment.second, Tip)
        )
        if len(bonds) < len(ends):
            continue
        points = [placed.centres[NodeEnd(name)] for name in group]
        middle = (
            sum(x for x, _ in points) / len(points),
            sum(y for _, y in points) / len(points),
        )
        middles |= dict.fromkeys((segment.index for segment in bonds), middle)
    return middles


def _tip(own: list[Segment], routes: Mapping[Segment, Route]) -> tuple[Point, Point] | None:
    for segment in own:
        if isinstance(segment.second, Tip):
            (x0, y0), (x1, y1) = routes[segment].line[-2:]
            length = math.dist((x0, y0), (x1, y1)) or 1.0
            return (x1, y1), ((x1 - x0) / length, (y1 - y0) / length)
    return None
