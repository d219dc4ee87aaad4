"""Pinned positions: what the user put somewhere stays there, the rest follows."""

from collections.abc import Mapping
from dataclasses import replace

from rankscope.diagrams.layout.placement import Placement
from rankscope.diagrams.layout.wires import Dot, End, NodeEnd, Tip, Wiring
from rankscope.diagrams.pictures.scene import Point

NEAR = 1e-9


def pinned(wiring: Wiring, placement: Placement, positions: Mapping[str, Point]) -> Placement:
    """Move pinned tensors exactly, everything else by as much as they moved on average.

    Dots move with the mean of what they join, tips with their tensor.
    """
    if not positions:
        return placement
    steps = {
        name: (point[0] - placement.nodes[name][0], point[1] - placement.nodes[name][1])
        for name, point in positions.items()
    }
    usual = _mean(list(steps.values()))
    moves: dict[End, Point] = {NodeEnd(name): steps.get(name, usual) for name in placement.nodes}
    for dot, arms in wiring.dots.items():
        moves[dot] = _mean([moves[arm] for arm in arms if arm in moves] or [usual])
    nodes = {name: _moved(point, moves[NodeEnd(name)]) for name, point in placement.nodes.items()}
    dots = {key: _moved(point, moves[Dot(*key)]) for key, point in placement.dots.items()}
    tips = {}
    for index, point in placement.tips.items():
        owner = wiring.at[Tip(index)][0].other(Tip(index))
        tips[index] = _moved(point, moves[owner])
    placed = replace(placement, nodes={**nodes, **positions}, dots=dots, tips=tips)
    return replace(placed, tips=_aligned(placement, placed))


def _aligned(before: Placement, after: Placement) -> dict[str, Point]:
    """Tips that shared a line to the left or right share one again: the outermost."""
    tips = dict(after.tips)
    for index, (x, _) in before.tips.items():
        line = [name for name, (other, _) in before.tips.items() if abs(other - x) < NEAR]
        xs = [after.tips[name][0] for name in line]
        middle = sum(point[0] for point in after.nodes.values()) / len(after.nodes)
        edge = min(xs) if x < middle else max(xs)
        owner_x = [point[0] for point in before.nodes.values()]
        if len(line) > 1 and not min(owner_x) < x < max(owner_x):
            tips[index] = (edge, tips[index][1])
    return tips


def _mean(points: list[Point]) -> Point:
    return (
        sum(x for x, _ in points) / len(points),
        sum(y for _, y in points) / len(points),
    )


def _moved(point: Point, step: Point) -> Point:
    return (point[0] + step[0], point[1] + step[1])
