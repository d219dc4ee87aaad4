"""From a placement in grid units to pixels: centres and boxes of everything that wires join."""

from collections.abc import Mapping

from rankscope.diagrams.layout.placement import Placement
from rankscope.diagrams.layout.routing import Ground
from rankscope.diagrams.layout.tensors import (
    CONVOLUTION_DIAMETER,
    TRIANGLE_SHARE,
    UNIT,
    diameter,
)
from rankscope.diagrams.layout.wires import Dot, End, NodeEnd, Tip, Wiring
from rankscope.diagrams.pictures.scene import Box, Point
from rankscope.errors import LayoutError

JUNCTION_DIAMETER, SUM_DIAMETER = 11.0, 9.0


def ground_of(wiring: Wiring, placement: Placement) -> Ground:
    """Everything in pixels.

    Raises:
        LayoutError: if the placement lacks a node or the tip of a leg.
    """
    centres: dict[End, Point] = {}
    diagram = wiring.diagram
    for part in diagram.holders:
        centres[NodeEnd(part.name)] = _given(placement.nodes, part.name, "node", wiring)
    for index in diagram.output:
        centres[Tip(index)] = _given(placement.tips, index, "open leg", wiring)
    for dot, arms in wiring.dots.items():
        given = placement.dots.get((dot.index, dot.region))
        if given is not None:
            centres[dot] = (given[0] * UNIT, given[1] * UNIT)
        else:
            centres[dot] = _mean([_centre(centres, placement, arm) for arm in arms])
    size = diameter(diagram)
    boxes = {end: _box(wiring, end, centre, size) for end, centre in centres.items()}
    return Ground(wiring, centres, boxes, placement.straight)


def _given(points: Mapping[str, Point], name: str, what: str, wiring: Wiring) -> Point:
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


def _mean(points: list[Point]) -> Point:
    return (
        sum(x for x, _ in points) / len(points),
        sum(y for _, y in points) / len(points),
    )


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
