"""A minimal cut on the picture: a short bold stroke across every wire that is cut."""

import math
from collections.abc import Mapping

from rankscope.diagrams.layout.labels import spaced
from rankscope.diagrams.layout.routes import Route
from rankscope.diagrams.layout.routing import Ground
from rankscope.diagrams.layout.wires import Dot, Segment
from rankscope.diagrams.pictures.scene import Point, Wire

LENGTH, WIDTH = 36.0, 3.4
SPACING = 4.0


def cut_strokes(
    ground: Ground, routes: Mapping[Segment, Route], cut: tuple[str, ...]
) -> tuple[Wire, ...]:
    """One stroke per index: through the dot of a hyperedge, else across its wire."""
    found = []
    for index in cut:
        own = [segment for segment in routes if segment.index == index]
        dots = [
            end
            for segment in own
            for end in segment.ends
            if isinstance(end, Dot) and len(ground.wiring.dots[end]) > 2
        ]
        if dots:
            at, normal = ground.centres[dots[0]], (math.sqrt(0.5), -math.sqrt(0.5))
        elif own:
            at, normal = _middle(
                ground, max(own, key=lambda s: _visible(ground, routes[s])), routes
            )
        else:
            continue
        (x, y), (dx, dy) = at, normal
        half = LENGTH / 2
        ends = ((x - half * dx, y - half * dy), (x + half * dx, y + half * dy))
        found.append(Wire(index, ends, "cut", width=WIDTH, description=f"cut through {index}"))
    return tuple(found)


def _visible_points(ground: Ground, route: Route) -> list[Point]:
    return [
        point
        for point in spaced(route.line, SPACING)
        if not any(
            box[0] <= point[0] <= box[2] and box[1] <= point[1] <= box[3]
            for box in ground.boxes.values()
        )
    ]


def _visible(ground: Ground, route: Route) -> int:
    return len(_visible_points(ground, route))


def _middle(
    ground: Ground, segment: Segment, routes: Mapping[Segment, Route]
) -> tuple[Point, Point]:
    """The middle of what is seen of a wire, and the direction across it."""
    points = _visible_points(ground, routes[segment]) or list(routes[segment].line)
    place = len(points) // 2
    before, after = points[max(0, place - 1)], points[min(len(points) - 1, place + 1)]
    length = math.dist(before, after) or 1.0
    return points[place], ((before[1] - after[1]) / length, (after[0] - before[0]) / length)
