"""Convex polygons that are cut by lines and remember which cut made each edge."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

Point = tuple[float, float]


@dataclass(frozen=True)
class Polygon:
    """A convex polygon.

    Args:
        vertices: in order around it.
        cuts: for each vertex, the number of the cut that the edge to the next vertex lies on.
    """

    vertices: tuple[Point, ...]
    cuts: tuple[int, ...]

    @property
    def area(self) -> float:
        """Twice the triangle sum, halved; from the first vertex, so that small ones keep digits."""
        (x, y), *others = self.vertices
        moved = [(a - x, b - y) for a, b in others]
        return abs(sum(a * d - b * c for (a, b), (c, d) in itertools.pairwise(moved))) / 2

    @property
    def inner_radius(self) -> float:
        """A lower bound on the radius of the largest circle inside: area over perimeter."""
        around = zip(self.vertices, self.vertices[1:] + self.vertices[:1], strict=True)
        return self.area / sum(math.dist(first, second) for first, second in around)


def split(
    polygon: Polygon, values: Sequence[float], tolerance: float, cut: int
) -> tuple[Polygon, Polygon] | None:
    """The parts of a polygon where an affine function is positive and negative.

    Args:
        polygon: what is cut.
        values: of the function at the vertices.
        tolerance: vertices with smaller values lie on the line.
        cut: the number that the new edges get.

    Returns:
        The two parts, or None if one of them would be empty.
    """
    signs = [0 if abs(value) <= tolerance else 1 if value > 0 else -1 for value in values]
    if max(signs) <= 0 or min(signs) >= 0:
        return None
    sides: tuple[list[tuple[Point, int]], list[tuple[Point, int]]] = ([], [])
    count = len(signs)
    for place in range(count):
        following = (place + 1) % count
        start, end = polygon.vertices[place], polygon.vertices[following]
        sign, next_sign, label = signs[place], signs[following], polygon.cuts[place]
        for side, own in zip(sides, (1, -1), strict=True):
            if sign != -own:
                leaves = sign == 0 and next_sign == -own
                side.append((start, cut if leaves else label))
        if sign * next_sign < 0:
            share = values[place] / (values[place] - values[following])
            middle = (
                start[0] + share * (end[0] - start[0]),
                start[1] + share * (end[1] - start[1]),
            )
            # The side that the edge leaves goes on along the cut.
            sides[0].append((middle, cut if sign > 0 else label))
            sides[1].append((middle, cut if sign < 0 else label))
    positive, negative = (Polygon(*map(tuple, zip(*side, strict=True))) for side in sides)
    return positive, negative
