"""The very edge of a ball in the model's own floats, where a wrong certificate fails first.

Attacks that project stay a little inside of the ball. Here points are the furthest that can be
represented: along a direction and its opposite, along single entries, and entry by entry a unit in
the last place further out as long as the ball holds them.
"""

import torch
from torch import Tensor

from rankscope.robust.attacks import Target, Threat
from rankscope.robust.margins import Margin

_ENTRIES = 2  # single entries that are moved alone, those with the largest gradients
_NUDGED = 4  # entries that are moved outwards one by one
_MOST_STEPS = 64  # inwards, by units in the last place


def walk_edge(target: Target, generator: torch.Generator) -> None:
    """Try points at the edge of the ball around every sample that stands.

    Args:
        target: remembers what was broken.
        generator: of the last units that are moved at random.
    """
    loss = Margin()
    chosen = target.standing
    if not len(chosen) or target.threat.radius == 0:
        return
    inputs = target.inputs
    _, gradients = target.try_points(chosen, inputs[chosen], loss)
    steepest = target.threat.norm.steepest(gradients)
    directions = [steepest, -steepest]
    order = gradients.flatten(1).abs().topk(min(_ENTRIES, gradients[0].numel()), dim=1).indices
    for place in order.T:
        single = torch.zeros_like(gradients).flatten(1)
        single[torch.arange(len(single)), place] = 1.0
        directions += [single.view_as(gradients), -single.view_as(gradients)]
    for direction in directions:
        is_left = ~target.is_broken[chosen]
        left = chosen[is_left]
        if not len(left):
            return
        points = edge_points(inputs[left], direction[is_left], target.threat)
        _, after = target.try_points(left, points, loss)
        # What the gradient says there, and the last units at random.
        moved = edge_points(inputs[left], target.threat.norm.steepest(after), target.threat)
        target.try_points(left, moved, loss)
        signs = torch.randint(-1, 2, points.shape, generator=generator).to(points)
        shaken = torch.nextafter(points, torch.where(signs == 0, points, signs * torch.inf))
        target.try_points(left, _drawn_in(inputs[left], shaken, target.threat), loss)


def edge_points(inputs: Tensor, directions: Tensor, threat: Threat) -> Tensor:
    """The furthest points within a ball along directions, in the dtype of the inputs.

    Args:
        inputs: the centres, (samples, …).
        directions: of the same shape.
        threat: the ball.
    """
    lengths = threat.norm.lengths(directions.double()).clamp(min=1e-300)
    along = directions.double() / lengths.view(-1, *[1] * (inputs.ndim - 1))
    points = (inputs.double() + threat.radius * along).to(inputs.dtype)
    points = _drawn_in(inputs, points, threat)
    largest = directions.flatten(1).abs().topk(min(_NUDGED, directions[0].numel()), dim=1)
    everywhere = torch.ones_like(directions, dtype=torch.bool)
    masks = [everywhere]
    for place in largest.indices.T:
        mask = torch.zeros_like(everywhere).flatten(1)
        mask[torch.arange(len(mask)), place] = True
        masks.append(mask.view_as(everywhere))
    for mask in masks:
        outer = torch.nextafter(points, directions.sign() * torch.inf)
        outer = torch.where(mask & (directions != 0), outer, points)
        is_held = threat.holds(inputs, outer).view(-1, *[1] * (inputs.ndim - 1))
        points = torch.where(is_held, outer, points)
    return points


def _drawn_in(inputs: Tensor, points: Tensor, threat: Threat) -> Tensor:
    """Points moved towards their centres, a unit in the last place at a time, until they fit."""
    if threat.pixels is not None:
        points = points.clamp(*threat.pixels)
    for _ in range(_MOST_STEPS):
        is_held = threat.holds(inputs, points)
        if bool(is_held.all()):
            return points
        nearer = torch.nextafter(points, inputs)
        points = torch.where(is_held.view(-1, *[1] * (inputs.ndim - 1)), points, nearer)
    return threat.within(inputs, points)
