"""Ports: wires that leave the same side of a tensor are spread, in the order of where they go."""

from collections.abc import Mapping

from rankscope.diagrams.layout.placement import VECTORS, Side
from rankscope.diagrams.layout.routes import NEAR, Route
from rankscope.diagrams.layout.routing import Ground
from rankscope.diagrams.layout.wires import End, NodeEnd, Segment

SPACING = 18.0
WIDEST_SHARE = 1.4  # of the radius, from the first port to the last


def spread_ports(ground: Ground, routes: Mapping[Segment, Route]) -> dict[Segment, Route]:
    """The same routes, moved apart where several leave one side."""
    moved = dict(routes)
    offsets: dict[Segment, float] = {}
    for end, segments in ground.wiring.at.items():
        if not isinstance(end, NodeEnd):
            continue
        sides: dict[Side, list[Segment]] = {}
        for segment in segments:
            side = _departure(segment, end, routes[segment])
            if side is not None:
                sides.setdefault(side, []).append(segment)
        for side, group in sides.items():
            if len(group) > 1:
                _spread(ground, end, side, group, moved, offsets)
    return moved


def _departure(segment: Segment, end: End, route: Route) -> Side | None:
    """The side a route leaves from, if it leaves at a right angle from the middle."""
    if segment.first == segment.second:
        return None
    points = route.points if segment.first == end else route.points[::-1]
    dx, dy = points[1][0] - points[0][0], points[1][1] - points[0][1]
    for side in Side:
        ux, uy = VECTORS[side]
        if dx * ux + dy * uy > NEAR and abs(dx * uy - dy * ux) < NEAR:
            return side
    return None


def _spread(
    ground: Ground,
    end: NodeEnd,
    side: Side,
    group: list[Segment],
    moved: dict[Segment, Route],
    offsets: dict[Segment, float],
) -> None:
    axis = 0 if side.is_vertical else 1
    ordered = sorted(group, key=lambda s: _order(ground, end, s, moved[s], axis))
    box = ground.boxes[end]
    step = min(SPACING, WIDEST_SHARE * (box[2] - box[0]) / 2 / (len(ordered) - 1))
    places = {s: step * (k - (len(ordered) - 1) / 2) for k, s in enumerate(ordered)}
    fixed = [s for s in ordered if s in offsets or not _is_movable(s, moved[s], side)]
    if fixed:
        shift = offsets.get(fixed[0], 0.0) - places[fixed[0]]
        places = {s: place + shift for s, place in places.items()}
    for segment in ordered:
        if segment not in fixed and abs(places[segment]) > NEAR:
            offset = places[segment]
            moved[segment] = _moved(segment, end, moved[segment], axis, offset)
            if len(moved[segment].points) == 2:
                offsets[segment] = offset


def _order(
    ground: Ground, end: NodeEnd, segment: Segment, route: Route, axis: int
) -> tuple[int, float, str]:
    """From left to right without crossings: what turns left (the nearest turn first), ...

    ... then what goes straight on, then what turns right (the farthest turn first).
    """
    aside = ground.centres[segment.other(end)][axis] - ground.centres[end][axis]
    points = route.points if segment.first == end else route.points[::-1]
    depth = abs(points[1][1 - axis] - points[0][1 - axis])
    if len(route.points) == 2 or abs(aside) < NEAR:
        return (0, aside, segment.index)
    return (-1, depth, segment.index) if aside < 0 else (1, -depth, segment.index)


def _is_movable(segment: Segment, route: Route, side: Side) -> bool:
    """A straight wire to a dot or a tip, or along a row, must stay in the middle."""
    if len(route.points) > 2:
        return True
    is_bond = isinstance(segment.first, NodeEnd) and isinstance(segment.second, NodeEnd)
    return is_bond and side.is_vertical


def _moved(segment: Segment, end: End, route: Route, axis: int, offset: float) -> Route:
    is_first = segment.first == end
    points = list(route.points if is_first else route.points[::-1])
    for place in (0, 1):
        point = list(points[place])
        point[axis] += offset
        points[place] = (point[0], point[1])
    found = Route(tuple(points), route.is_curve)
    return found if is_first else found.reversed()
