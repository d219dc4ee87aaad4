"""Linear bound propagation: the least that a weighted sum of outputs can be, for inputs of a ball.

Linear bounds go backwards: weights on a value become weights on what it was computed from; through
a convex curve between l and u, positive weights go along its tangent in the middle, negative ones
along its chord (Zhang et al. 2018); through what is smooth, along the tangent with its remainder.
Rounding is counted as in `bounds`.
"""

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from rankscope.reading.trace import Value
from rankscope.robust.bounds import Ball, Below, Box, Transfers, next_box, products, unit_rows
from rankscope.robust.forms import Affine, ConvexCurve, Largest, TransferFunction
from rankscope.robust.graph import Graph, Node, sample_shape
from rankscope.robust.relaxations import Ends, Smooth, half_width, middle


def lower_bounds(
    graph: Graph,
    transfers: Transfers,
    ball: Ball,
    boxes: Mapping[Value, Box],
    rows: Tensor,
    *,
    through_curves: bool = True,
) -> Below:
    """A lower bound on rows · output, for every input of a ball.

    Args:
        graph: up to the value that is bounded.
        transfers: of its operations.
        ball: around the samples.
        boxes: bounds on every value before.
        rows: (batch, rows, *shape of the value), or (1, rows, …) for all samples alike.
        through_curves: whether weights go back to the input; otherwise they meet the bounds on
            the last values that are not affine, which is interval propagation.

    Returns:
        (batch, rows).

    Reference:
        Zhang et al. (2018), arXiv:1811.00866 (CROWN).
    """
    weights: dict[Value, Tensor] = {graph.output: rows}
    total = Below(*(rows.new_zeros(rows.shape[:2]) for _ in range(2)))
    for node, transfer in zip(reversed(graph.nodes), reversed(transfers), strict=True):
        if node.output not in weights:
            continue
        given, box = weights.pop(node.output), boxes[node.output]
        if not (through_curves or isinstance(transfer.form, Affine)):
            total = _plus(total, given, box, met=box.ends, is_last=True)
            continue
        known = [boxes[value] for value in node.inputs]
        added, met, passed = _through(node, transfer, given, known, box)
        total = _plus(total, given, box, added, met)
        for value, weight in zip(node.inputs, passed, strict=True):
            weights[value] = weights[value] + weight if value in weights else weight
    if graph.input not in weights:
        return total
    given = weights[graph.input]
    return _plus(total, given, boxes[graph.input], ball.smallest(given))


def _plus(
    total: Below,
    weights: Tensor,
    box: Box,
    added: Tensor | None = None,
    met: Ends | None = None,
    *,
    is_last: bool = False,
) -> Below:
    """Add what weights on a value are worth, less what rounding may have added to it.

    Args:
        total: so far.
        weights: on the value.
        box: of the value.
        added: what its operation adds.
        met: bounds whose least product with the weights is added.
        is_last: whether the weights end at the box, which holds the rounding already.
    """
    worth = torch.zeros((), dtype=torch.float64) if added is None else added
    sizes: list[Tensor] = []
    if met is not None:
        at = middle(met)
        worth = worth + products(weights, at)
        sizes.append(met[1] - at)
    if box.slack is not None:
        sizes.append(box.slack())
    if box.rounding is not None and not is_last:
        sizes.append(box.rounding())
    if not sizes:
        return Below(total.exact + worth, total.floats + worth)
    count = max(map(len, sizes))
    columns = torch.stack([size.expand(count, *size.shape[1:]) for size in sizes], dim=-1)
    lost = weights.abs().flatten(2) @ columns.flatten(1, -2) * (1 + 2**-30)
    of_exact = len(sizes) - (box.rounding is not None and not is_last)
    exact = total.exact + worth - lost[..., :of_exact].sum(dim=2)
    return Below(exact, total.floats + worth - lost.sum(dim=2))


def _through(
    node: Node, transfer: TransferFunction, weights: Tensor, known: list[Box], box: Box
) -> tuple[Tensor | None, Ends | None, tuple[Tensor, ...]]:
    """What is below weights · output: constants, bounds that weights meet, weights on inputs."""
    added: Tensor | None = None
    met: Ends | None = None
    match transfer.form:
        case Affine():
            zeros = [weights.new_zeros(len(weights), *sample_shape(v)) for v in node.inputs]
            outputs, passed = _pulled_back(node, zeros, weights)
            added = products(weights, outputs)
        case ConvexCurve() as curve:
            met, passed = _through_curve(node, weights, known[0].ends, curve.steepest)
        case Largest():
            added, met, passed = _through_largest(node, weights, known)
        case Smooth() as form:
            added, met, passed = _through_tangent(node, form, weights, known, box)
        case _:
            # The weights meet the bounds on the output, and go no further.
            met = box.ends
            passed = tuple(
                weights.new_zeros(len(box.lower), weights.shape[1], *sample_shape(value))
                for value in node.inputs
            )
    return added, met, passed


def _pulled_back(
    node: Node, points: list[Tensor], weights: Tensor
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Outputs at points, (batch, …), and weights times the derivative there."""
    outputs, pull_back = torch.func.vjp(node.run, *points)[:2]
    passed: tuple[Tensor, ...] = torch.func.vmap(pull_back, in_dims=1, out_dims=1)(weights)
    return outputs, passed


def _through_curve(
    node: Node, weights: Tensor, ends: Ends, steepest: float
) -> tuple[Ends, tuple[Tensor, ...]]:
    lower, upper = ends
    at = middle(ends)
    outputs, pull_back = torch.func.vjp(node.run, at)[:2]
    (slope,) = pull_back(torch.ones_like(outputs))
    low, high = node.run(lower), node.run(upper)
    width = upper - lower
    chord = torch.where(width > 0, (high - low) / width.clamp(min=1e-300), slope)
    # A line of any slope through the higher of both ends is above a convex curve.
    chord = chord.clamp(-steepest, steepest)
    above_both = torch.maximum(low - chord * lower, high - chord * upper)
    passed = weights * torch.where(weights > 0, slope[:, None], chord[:, None])
    return (outputs - slope * at, above_both), (passed,)


def _through_tangent(
    node: Node, form: Smooth, weights: Tensor, known: list[Box], box: Box
) -> tuple[Tensor | None, Ends, tuple[Tensor, ...]]:
    """Along the tangent in the middle where its remainder is smaller than half of the range."""
    ends = [each.ends for each in known]
    points = list(map(middle, ends))
    weights = weights.expand(len(points[0]), *weights.shape[1:])
    half = half_width(box.ends)
    remainder = half if form.remainder is None else form.remainder(ends)
    is_along = (remainder < half)[:, None]
    if not bool(is_along.any()):
        passed = tuple(torch.zeros_like(point)[:, None] for point in points)
        passed = tuple(p.expand(-1, weights.shape[1], *p.shape[2:]) for p in passed)
        return None, box.ends, passed
    points = [torch.nan_to_num(point, posinf=0.0, neginf=0.0) for point in points]
    along = torch.where(is_along, weights, 0.0)
    outputs, passed = _pulled_back(node, points, along)
    remainder = torch.where(is_along[:, 0], remainder, 0.0)
    outputs = torch.where(is_along[:, 0], outputs, 0.0)
    added = products(along, outputs) - products(along.abs(), remainder)
    for point, weight in zip(points, passed, strict=True):
        added = added - products(weight, point)
    lower, upper = (torch.where(is_along[:, 0], 0.0, bound) for bound in box.ends)
    return added, (lower, upper), passed


def _through_largest(
    node: Node, weights: Tensor, known: list[Box]
) -> tuple[Tensor, Ends, tuple[Tensor, ...]]:
    """Positive weights go along the tangent in the middle, negative ones meet the upper bounds."""
    middles = [middle(box.ends) for box in known]
    weights = weights.expand(len(middles[0]), *weights.shape[1:])
    outputs, passed = _pulled_back(node, middles, weights.clamp(min=0))
    highest = node.run(*(box.upper for box in known))
    moved = [products(weight, at) for at, weight in zip(middles, passed, strict=True)]
    return -torch.stack(moved).sum(dim=0), (outputs, highest), passed


def propagate_linear_bounds(
    graph: Graph,
    transfers: Transfers,
    ball: Ball,
    spreads: Mapping[Value, Tensor],
) -> dict[Value, Box]:
    """Bounds on every value; on what goes into curves the better of both propagations.

    What a backward pass says of a value holds for the network's own floats, like the intervals.

    Args:
        graph: of the model.
        transfers: of its operations.
        ball: around the samples.
        spreads: from `unit_spreads`, or none.

    Raises:
        UnsupportedModuleError: if an operation is neither affine nor convex.
    """
    boxes = {graph.input: ball.box()}
    into_curves, into_others = (
        {
            value
            for node, transfer in zip(graph.nodes, transfers, strict=True)
            if isinstance(transfer.form, forms)
            for value in node.inputs
        }
        for forms in ((ConvexCurve,), (Largest, Smooth))
    )
    for count, (node, transfer) in enumerate(zip(graph.nodes, transfers, strict=True), 1):
        part = graph.until(count)
        box = next_box(part, transfer, ball, spreads, boxes)
        # Where both bounds are on one side of zero, curves are straight, and no better are needed.
        is_wanted = (box.lower < 0) & (box.upper > 0) & (node.output in into_curves)
        is_wanted |= node.output in into_others
        chosen = is_wanted.any(dim=0).flatten().nonzero().flatten()
        boxes[node.output] = box
        if isinstance(transfer.form, Affine) and len(chosen):
            boxes[node.output] = _tighter(part, transfers[:count], ball, boxes, chosen)
    return boxes


def _tighter(
    graph: Graph,
    transfers: Transfers,
    ball: Ball,
    boxes: Mapping[Value, Box],
    chosen: Tensor,
) -> Box:
    """Better bounds on some entries of a graph's output."""
    box = boxes[graph.output]
    lower, upper = (torch.full_like(bound, -math.inf).flatten(1) for bound in box.ends)
    for some, rows in unit_rows(graph, chosen, count=len(ball.centres)):
        upper[:, some] = lower_bounds(graph, transfers, ball, boxes, -rows).floats
        lower[:, some] = lower_bounds(graph, transfers, ball, boxes, rows).floats
    shape = (len(ball.centres), *sample_shape(graph.output))
    return box.tightened(lower.reshape(shape), -upper.reshape(shape))
