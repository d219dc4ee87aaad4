"""Where labels of points go, so that none lies on another, on a point or outside the frame."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

# Directions are tried from the right upwards, then around; distances from near to far.
DIRECTIONS = (0, 45, 315, 135, 225, 180, 90, 270, 22, 338, 158, 202, 67, 113, 247, 293)
DISTANCES = (1.0, 2.0, 3.0, 4.5, 6.0, 8.0, 11.0, 15.0)


@dataclass(frozen=True)
class Box:
    """A rectangle, in pixels."""

    left: float
    bottom: float
    right: float
    top: float

    @classmethod
    def around(cls, x: float, y: float, size: tuple[float, float]) -> "Box":
        """The rectangle of a size (width, height) with its centre at a point."""
        return cls(x - size[0] / 2, y - size[1] / 2, x + size[0] / 2, y + size[1] / 2)

    @property
    def center(self) -> tuple[float, float]:
        """Its middle."""
        return (self.left + self.right) / 2, (self.bottom + self.top) / 2

    def nearest(self, x: float, y: float) -> tuple[float, float]:
        """Its point nearest to another point."""
        return min(max(x, self.left), self.right), min(max(y, self.bottom), self.top)

    def overlap(self, others: Sequence["Box"]) -> float:
        """Area that it shares with others, one by one."""
        area = 0.0
        # Plain comparisons: pages must not wait for numpy, and there are hundreds of others.
        for other in others:
            if (
                other.left < self.right
                and self.left < other.right
                and other.bottom < self.top
                and self.bottom < other.top
            ):
                width = min(self.right, other.right) - max(self.left, other.left)
                area += width * (min(self.top, other.top) - max(self.bottom, other.bottom))
        return area

    def outside(self, frame: "Box") -> float:
        """Area of it that lies outside a frame."""
        return (self.right - self.left) * (self.top - self.bottom) - self.overlap((frame,))


def place_labels(
    points: Sequence[tuple[float, float]],
    sizes: Sequence[tuple[float, float]],
    frame: Box,
    *,
    gap: float,
    obstacles: Sequence[Box] = (),
) -> tuple[Box, ...]:
    """A rectangle for the label of every point: the first free one around it, or the least bad.

    Args:
        points: in pixels.
        sizes: width and height of each label, in pixels.
        frame: where labels may lie.
        gap: distance of a label from its point, and space around points, in pixels.
        obstacles: what labels should not lie on.

    Example:
        >>> frame = Box(0.0, 0.0, 100.0, 100.0)
        >>> first, second = place_labels([(50.0, 50.0)] * 2, [(20.0, 10.0)] * 2, frame, gap=5.0)
        >>> first.overlap([second])
        0.0
    """
    taken = [*obstacles, *(Box.around(x, y, (gap, gap)) for x, y in points)]
    placed: list[Box] = []
    for point, size in zip(points, sizes, strict=True):
        placed.append(_best(_candidates(point, size, gap), frame, taken))
        taken.append(placed[-1])
    return tuple(placed)


def _best(candidates: Iterator[Box], frame: Box, taken: Sequence[Box]) -> Box:
    """The first that covers nothing and lies in the frame; else the first that is least bad."""
    costs: dict[Box, float] = {}
    for box in candidates:
        costs[box] = box.outside(frame) + box.overlap(taken)
        if costs[box] == 0:
            return box
    return min(costs, key=costs.__getitem__)


def _candidates(point: tuple[float, float], size: tuple[float, float], gap: float) -> Iterator[Box]:
    for distance in DISTANCES:
        for degrees in DIRECTIONS:
            across, up = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
            # The label's edge, not its centre, is `distance` away.
            x = point[0] + across * (distance * gap + size[0] / 2)
            y = point[1] + up * (distance * gap + size[1] / 2)
            yield Box.around(x, y, size)
