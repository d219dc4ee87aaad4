"""Between two frames of a story: what merges moves together, and everything else stays.

A thing of the first picture is matched with its namesake in the second, a merging tensor with
the tensor it becomes; matched things move on straight lines. What has no counterpart (the bond
between two merging tensors, a dot that is no longer needed) goes into the result.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from rankscope.diagrams.pictures.scene import Label, Point, Scene, Shape, Wire
from rankscope.diagrams.stories.story import Frame

# How many pieces a wire has while it changes from one form to another.
WIRE_PIECES = 40


def eased(share: float) -> float:
    """Slow at both ends: 3s² - 2s³.

    Example:
        >>> eased(0.0), eased(0.5), eased(1.0)
        (0.0, 0.5, 1.0)
    """
    return share * share * (3.0 - 2.0 * share)


def morph(first: Scene, second: Scene, move: Frame, share: float) -> Scene:
    """The picture at a share (0 to 1) of the way from a frame to the one that `move` leads to."""
    morphing = _Morph(first, second, move, share)
    return replace(
        first,
        frames=tuple(map(morphing.shape, first.frames)),
        wires=tuple(map(morphing.wire, first.wires)),
        shapes=tuple(map(morphing.shape, first.shapes)),
        marks=tuple(map(morphing.shape, first.marks)),
        labels=tuple(found for label in first.labels if (found := morphing.label(label))),
    )


class _Morph:
    def __init__(self, first: Scene, second: Scene, move: Frame, share: float) -> None:
        self.renamed = dict.fromkeys(move.merged, move.result)
        self.share = share
        self.before = _shapes(first)
        self.after = _shapes(second)
        self.target = self.after[move.result]
        self.wires: dict[tuple[str, tuple[str, ...]], list[Wire]] = {}
        for wire in second.wires:
            self.wires.setdefault((wire.name, tuple(sorted(wire.ends))), []).append(wire)
        self.labels = {(label.owner, label.style): label for label in second.labels}

    def goal(self, shape: Shape) -> Shape:
        """What a shape of the first picture becomes."""
        goal = self.after.get(shape.name)
        if goal is not None and goal.kind is shape.kind:
            return goal
        # A merging tensor keeps its own form until it has arrived.
        return replace(shape, x=self.target.x, y=self.target.y)

    def shape(self, shape: Shape) -> Shape:
        goal = self.goal(shape)
        return replace(
            shape,
            x=self._between(shape.x, goal.x),
            y=self._between(shape.y, goal.y),
            width=self._between(shape.width, goal.width),
            height=self._between(shape.height, goal.height),
        )

    def wire(self, wire: Wire) -> Wire:
        ends = tuple(sorted(dict.fromkeys(self.renamed.get(end, end) for end in wire.ends)))
        goals = self.wires.get((wire.name, ends), [])
        if wire in goals or len(goals) != 1:
            return wire if wire in goals else self._dragged(wire)
        (goal,) = goals
        points = goal.points
        if math.dist(points[0], wire.points[0]) > math.dist(points[-1], wire.points[0]):
            goal = replace(goal, points=points[::-1])
        if goal.is_curve == wire.is_curve and len(goal.points) == len(wire.points):
            return replace(wire, points=self._points(wire.points, goal.points))
        pairs = (wire.samples(WIRE_PIECES), goal.samples(WIRE_PIECES))
        return replace(wire, points=self._points(*pairs), is_curve=False, corner_radius=0.0)

    def _dragged(self, wire: Wire) -> Wire:
        """Both ends follow what they are fastened to, and the rest is pulled along."""
        first, last = (self._fastened(wire, wire.points[place]) for place in (0, -1))
        ways = [self._way_of(shape) for shape in (first, last)]
        if first and last and self._is_gone(first) and self._is_gone(last):
            goals = [(self.target.x, self.target.y)] * len(wire.points)
            return replace(wire, points=self._points(wire.points, goals))
        pieces = len(wire.points) - 1
        goals = [
            (
                x + ways[0][0] * (1 - place / pieces) + ways[1][0] * place / pieces,
                y + ways[0][1] * (1 - place / pieces) + ways[1][1] * place / pieces,
            )
            for place, (x, y) in enumerate(wire.points)
        ]
        return replace(wire, points=self._points(wire.points, goals))

    def _is_gone(self, shape: Shape) -> bool:
        return shape.name not in self.after or shape.name == self.target.name

    def _fastened(self, wire: Wire, point: Point) -> Shape | None:
        """What an end of a wire is fastened to; None for a tip."""
        ends = [self.before[name] for name in wire.ends if name in self.before]
        near = [shape for shape in ends if shape.covers(point, margin=4.0)]
        return min(near, key=lambda shape: math.dist((shape.x, shape.y), point), default=None)

    def _way_of(self, shape: Shape | None) -> Point:
        if shape is None:
            return (0.0, 0.0)
        goal = self.goal(shape)
        return (goal.x - shape.x, goal.y - shape.y)

    def label(self, label: Label) -> Label | None:
        """Labels go along with what they name; that of a wire that vanishes is gone at once."""
        owner = self.before.get(label.owner)
        goal = self.labels.get((label.owner, label.style))
        if owner is not None and label.style.startswith("on-") and goal is None:
            there = self.goal(owner)
            return _shifted(label, *self._way((owner.x, owner.y), (there.x, there.y)))
        if goal is None:
            return label if self.share == 0 else None
        return _shifted(label, *self._way((label.x, label.y), (goal.x, goal.y)))

    def _between(self, start: float, end: float) -> float:
        return start + self.share * (end - start)

    def _way(self, start: Point, end: Point) -> Point:
        return (self.share * (end[0] - start[0]), self.share * (end[1] - start[1]))

    def _points(self, starts: Sequence[Point], ends: Sequence[Point]) -> tuple[Point, ...]:
        return tuple(
            (self._between(x0, x1), self._between(y0, y1))
            for (x0, y0), (x1, y1) in zip(starts, ends, strict=True)
        )


def _shapes(scene: Scene) -> Mapping[str, Shape]:
    return {shape.name: shape for shape in (*scene.frames, *scene.marks, *scene.shapes)}


def _shifted(label: Label, dx: float, dy: float) -> Label:
    left, top, right, bottom = label.box
    box = (left + dx, top + dy, right + dx, bottom + dy)
    return replace(label, x=label.x + dx, y=label.y + dy, box=box)
