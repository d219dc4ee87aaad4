r"""Linear bound propagation: a linear function of the input below every output, found backwards.

Weights on a value become weights on what it was computed from. Through a convex curve between l
and u, positive weights go along its tangent in the middle, negative ones along its chord.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from rankscope.robustness.balls import Ball
from rankscope.robustness.graph import Graph, Operation
from rankscope.robustness.intervals import Box, interval_step, unit_rows
from rankscope.robustness.meaning import Affine, ConvexCurve, Largest, Meaning
from rankscope.robustness.recording import Value


def lower_bounds(
    graph: Graph,
    meanings: tuple[Meaning, ...],
    ball: Ball,
    boxes: Mapping[Value, Box],
    rows: Tensor,
    *,
    through_curves: bool = True,
) -> Tensor:
    """A lower bound on rows · output, for every input of a ball.

    Args:
        graph: up to the value that is bounded.
        meanings: of its operations.
        ball: around the samples.
        boxes: bounds on every value before.
        rows: (batch, rows, *shape of the value), or (1, rows, …) for all samples alike.
        through_curves: whether weights go back to the input; otherwise they meet the bounds on
            the last values that are not affine, which is interval propagation.

    Returns:
        (batch, rows).

    Raises:
        UnsupportedModuleError: if weights are to go through what is neither affine nor convex.

    Reference:
        Zhang et al. (2018), arXiv:1811.00866 (CROWN).
    """
    weights: dict[Value, Tensor] = {graph.output: rows}
    constant = rows.new_zeros(rows.shape[:2])
    for operation, meaning in zip(reversed(graph.operations), reversed(meanings), strict=True):
        if operation.output not in weights:
            continue
        given = weights.pop(operation.output)
        if not (through_curves or isinstance(meaning.form, Affine)):
            constant = constant + _smallest(given, boxes[operation.output])
            continue
        known = [boxes[value] for value in operation.inputs]
        added, passed = _through(operation, meaning, given, known)
        constant = constant + added
        for value, weight in zip(operation.inputs, passed, strict=True):
            weights[value] = weights[value] + weight if value in weights else weight
    if graph.input not in weights:
        return constant
    return constant + ball.smallest(weights[graph.input])


def _smallest(weights: Tensor, box: Box) -> Tensor:
    lower, upper = (bound[:, None] for bound in box)
    entries = weights.clamp(min=0) * lower + weights.clamp(max=0) * upper
    return entries.flatten(2).sum(dim=2)


def _through(
    operation: Operation, meaning: Meaning, weights: Tensor, known: list[Box]
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """A constant, and weights on the inputs, that together are below weights · output."""
    match meaning.form:
        case Affine():
            zeros = [_zeros(weights, value) for value in operation.inputs]
            return _along(operation, zeros, weights)
        case ConvexCurve():
            return _through_curve(operation, weights, known[0])
        case Largest():
            return _through_largest(operation, weights, known)
        case _:
            raise operation.refuse(
                "linear bounds go through convex functions only; use Intervals or Lipschitz"
            )


def _zeros(weights: Tensor, value: Value) -> Tensor:
    return weights.new_zeros(weights.shape[0] * weights.shape[1], *value.shape)


def _along(
    operation: Operation, points: list[Tensor], weights: Tensor
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Weights · the tangent at points, (batch · rows, …) each."""
    outputs, pull_back = torch.func.vjp(operation.run, *points)[:2]
    flat = weights.flatten(0, 1)
    passed = pull_back(flat)
    values = (flat * outputs).flatten(1).sum(dim=1)
    for point, weight in zip(points, passed, strict=True):
        values = values - (point * weight).flatten(1).sum(dim=1)
    size = weights.shape[:2]
    return values.view(size), tuple(weight.unflatten(0, size) for weight in passed)


def _through_curve(
    operation: Operation, weights: Tensor, box: Box
) -> tuple[Tensor, tuple[Tensor, ...]]:
    lower, upper = box
    middle = (lower + upper) / 2
    outputs, pull_back = torch.func.vjp(operation.run, middle)[:2]
    (slope,) = pull_back(torch.ones_like(outputs))
    height = outputs - slope * middle
    low, high = operation.run(lower), operation.run(upper)
    width = upper - lower
    chord = torch.where(width > 0, (high - low) / width.clamp(min=1e-300), slope)
    # Through the higher of both ends, as a quotient of tiny numbers may be off.
    above = torch.maximum(low - chord * lower, high - chord * upper)
    positive, negative = weights.clamp(min=0), weights.clamp(max=0)
    passed = positive * slope[:, None] + negative * chord[:, None]
    added = (positive * height[:, None] + negative * above[:, None]).flatten(2).sum(dim=2)
    return added, (passed,)


def _through_largest(
    operation: Operation, weights: Tensor, known: list[Box]
) -> tuple[Tensor, tuple[Tensor, ...]]:
    batch, rows = len(known[0][0]), weights.shape[1]
    weights = weights.expand(batch, *weights.shape[1:])
    middles = [((low + high) / 2).repeat_interleave(rows, dim=0) for low, high in known]
    below, passed = _along(operation, middles, weights.clamp(min=0))
    highest = operation.run(*(high for _, high in known))
    above = (weights.clamp(max=0) * highest[:, None]).flatten(2).sum(dim=2)
    return below + above, passed


def propagate_linear_bounds(
    graph: Graph, meanings: tuple[Meaning, ...], ball: Ball
) -> dict[Value, Box]:
    """Bounds on every value; on what goes into curves the better of both propagations.

    Raises:
        UnsupportedModuleError: if an operation is neither affine nor convex.
    """
    boxes = {graph.input: ball.box()}
    into_curves, into_largest = (
        {
            value
            for operation, meaning in zip(graph.operations, meanings, strict=True)
            if isinstance(meaning.form, form)
            for value in operation.inputs
        }
        for form in (ConvexCurve, Largest)
    )
    for count, (operation, meaning) in enumerate(zip(graph.operations, meanings, strict=True), 1):
        known = [boxes[value] for value in operation.inputs]
        lower, upper = interval_step(operation, meaning, known)
        # Where both bounds are on one side of zero, curves are straight, and no better are needed.
        is_wanted = (lower < 0) & (upper > 0) & (operation.output in into_curves)
        is_wanted |= operation.output in into_largest
        chosen = is_wanted.any(dim=0).flatten().nonzero().flatten()
        boxes[operation.output] = lower, upper
        if isinstance(meaning.form, Affine) and len(chosen):
            part = graph.until(count)
            boxes[operation.output] = _tighter(part, meanings[:count], ball, boxes, chosen)
    return boxes


def _tighter(
    graph: Graph,
    meanings: tuple[Meaning, ...],
    ball: Ball,
    boxes: Mapping[Value, Box],
    chosen: Tensor,
) -> Box:
    """Better bounds on some entries of a graph's output."""
    lower, upper = (bound.flatten(1).clone() for bound in boxes[graph.output])
    batch = len(ball.centres)
    for some, rows in unit_rows(graph, chosen, count=batch):
        above = -lower_bounds(graph, meanings, ball, boxes, -rows)
        below = lower_bounds(graph, meanings, ball, boxes, rows)
        lower[:, some] = torch.maximum(lower[:, some], below)
        upper[:, some] = torch.minimum(upper[:, some], above)
    # Rounding may let two bounds on a fixed number cross.
    lower, upper = torch.minimum(lower, upper), torch.maximum(lower, upper)
    shape = (batch, *graph.output.shape)
    return lower.reshape(shape), upper.reshape(shape)
