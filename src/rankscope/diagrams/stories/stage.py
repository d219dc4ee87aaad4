"""Frozen layout: a story's pictures share one placement, so that only what merges moves.

A merged tensor goes to the mean of its operands, or, if wires are straighter there, to the place
of one of them or in line with a dot. Tips of open legs never move; a barrier shrinks with what
it holds.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

from rankscope.diagrams.diagram import Diagram
from rankscope.diagrams.layout import place, render
from rankscope.diagrams.layout.placement import (
    NO_HINTS,
    PLAIN_VIEW,
    Hints,
    Placement,
    View,
)
from rankscope.diagrams.layout.wires import Wiring
from rankscope.diagrams.pictures.geometry import crossings, lint
from rankscope.diagrams.pictures.scene import Point, Scene, Shape, Wire
from rankscope.diagrams.stories.story import Chapter, Frame

FAULT, UNREST = 1000.0, 20.0
# Nodes, convolutions and open legs up to which the best place is looked for.
MOST_PARTS = 20
# A wire this near (pixels) to a barrier seems to lie on it.
CLOSE = 14.0


@dataclass(frozen=True)
class Stage:
    """Pictures of a chapter's frames, in the same coordinates."""

    chapter: Chapter
    scenes: tuple[Scene, ...]


def stage(chapter: Chapter, hints: Hints = NO_HINTS, view: View = PLAIN_VIEW) -> Stage:
    """Place the first frame, then keep everything where it is and let merging tensors meet."""
    start = chapter.frames[0].diagram
    placement = place(start, hints, view)
    scenes = [render(start, placement, view)]
    has_rows = all(index in start.output for index in placement.straight)
    placement = _with_slanted_legs(start, placement)
    for frame in chapter.frames[1:]:
        # A cut names indices of the first frame, which may be gone.
        cut = tuple(index for index in view.cut if index in frame.diagram.index_by_name)
        placement, scene = _best(placement, frame, replace(view, cut=cut), has_rows=has_rows)
        scenes.append(scene)
    return Stage(chapter, tuple(scenes))


def _best(
    placement: Placement, after: Frame, view: View, *, has_rows: bool
) -> tuple[Placement, Scene]:
    """Where the result stands best; of equally good places, the first."""
    found: list[tuple[float, Placement, Scene]] = []
    # In a large picture many things are in the way, wherever one looks.
    is_large = len(after.diagram.holders) + len(after.diagram.output) > MOST_PARTS

    def consider(moved: Placement) -> None:
        scene = render(after.diagram, moved, view)
        least = min((badness for badness, _, _ in found), default=math.inf)
        found.append((0.0 if is_large else _badness(scene, least), moved, scene))

    for point in _candidates(placement, after, has_rows=has_rows):
        consider(_moved(placement, after, point))
        if found[-1][0] == 0 or is_large:
            break
    if min(badness for badness, _, _ in found) >= FAULT and not is_large:
        # Nothing along rows and columns is fine: step aside, with legs that slant.
        slanted = replace(placement, straight=tuple(after.diagram.index_by_name))
        for point in _asides(_mean(placement, after)):
            consider(_moved(slanted, after, point))
            if found[-1][0] < FAULT:
                break
    _, moved, scene = min(found, key=lambda one: one[0])
    return replace(moved, straight=_known(placement.straight, after)), scene


def _mean(placement: Placement, after: Frame) -> Point:
    points = [placement.nodes[name] for name in after.merged]
    return (
        sum(x for x, _ in points) / len(points),
        sum(y for _, y in points) / len(points),
    )


def _candidates(placement: Placement, after: Frame, *, has_rows: bool) -> list[Point]:
    """The mean of the operands, on a row that they come from; then other likely places."""
    points = [placement.nodes[name] for name in after.merged]
    mean = _mean(placement, after)
    if len(points) == 1 or not has_rows:
        return list(dict.fromkeys([mean, *points]))
    # The lowest row holds what is contracted last, where the result will be used.
    rows = sorted({y for _, y in points}, reverse=True)
    # In line with a dot across a barrier the result has a straight wire to it, if all of the
    # index inside the barrier is on the result.
    held = after.diagram.node_by_name[after.result].indices
    region = after.diagram.structure.parent[after.result]
    inside = {dot.index for dot in Wiring(after.diagram).dots if dot.region == region}
    across = [
        x
        for (index, place), (x, _) in placement.dots.items()
        if index in held and place != region and index not in inside
    ]
    in_line = [(x, row) for x in (mean[0], *across) for row in rows]
    return list(dict.fromkeys([*in_line, mean, *points]))


def _asides(point: Point) -> Iterator[Point]:
    """Places around a point, near ones first."""
    x, y = point
    for distance in (0.5, 0.75, 1.0, 1.4):
        for dx, dy in ((-1, -1), (1, -1), (-1, 1), (1, 1), (-1, 0), (1, 0), (0, -1), (0, 1)):
            yield (x + distance * dx, y + distance * dy)


def _badness(scene: Scene, least: float) -> float:
    """Faults count most, then crossings and wires that hug a barrier, then corners.

    What is not better than `least` anyway is not looked at closely.
    """
    badness = sum(map(_num_corners, scene.wires)) + UNREST * _num_hugging(scene)
    if badness < least:
        badness += UNREST * crossings(scene)
    if badness < least:
        badness += FAULT * len(lint(scene))
    return badness


def _num_corners(wire: Wire) -> int:
    """Turns of a wire; a curve is one, and another if it slants."""
    if not wire.is_curve:
        return len(wire.points) - 2
    (x0, y0), (x1, y1) = wire.points[0], wire.points[-1]
    return 2 if abs(x0 - x1) > CLOSE and abs(y0 - y1) > CLOSE else 1


def _num_hugging(scene: Scene) -> int:
    """Wires with a piece that runs close beside the border of a barrier."""
    return sum(
        1
        for wire in scene.wires
        for frame in scene.frames
        if frame.style == "barrier" and any(_hugs(piece, frame) for piece in pairwise(wire.points))
    )


def _hugs(piece: tuple[Point, Point], frame: Shape) -> bool:
    (x0, y0), (x1, y1) = piece
    left, top, right, bottom = frame.box
    if abs(x0 - x1) < 1 and min(abs(x0 - left), abs(x0 - right)) < CLOSE:
        shared = min(max(y0, y1), bottom) - max(min(y0, y1), top)
    elif abs(y0 - y1) < 1 and min(abs(y0 - top), abs(y0 - bottom)) < CLOSE:
        shared = min(max(x0, x1), right) - max(min(x0, x1), left)
    else:
        return False
    return shared > CLOSE


def _moved(placement: Placement, after: Frame, point: Point) -> Placement:
    places = {**placement.nodes, after.result: point}
    known = after.diagram.index_by_name
    dots = {(dot.index, dot.region) for dot in Wiring(after.diagram).dots}
    return replace(
        placement,
        nodes={part.name: places[part.name] for part in after.diagram.holders},
        dots={key: where for key, where in placement.dots.items() if key in dots},
        straight=_known(placement.straight, after),
        label_sides={i: side for i, side in placement.label_sides.items() if i in known},
    )


def _known(indices: tuple[str, ...], after: Frame) -> tuple[str, ...]:
    return tuple(index for index in indices if index in after.diagram.index_by_name)


def _with_slanted_legs(diagram: Diagram, placement: Placement) -> Placement:
    """Legs that point up or down fan out when their tensor moves; the others turn a corner."""
    owners = diagram.structure.owners
    upright = [
        index
        for index, (x, _) in placement.tips.items()
        if any(abs(placement.nodes[name][0] - x) < 0.01 for name in owners[index])
    ]
    return replace(placement, straight=tuple(dict.fromkeys((*placement.straight, *upright))))
