r"""Linear bound propagation: a linear function of the input below every output, found backwards.

Weights on a value become weights on what it was computed from. Through a convex curve between l
and u, positive weights go along its tangent in the middle, negative ones along its chord.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from rankscope.robustness.balls import Ball, products, smallest_product
from rankscope.robustness.graph import Graph, Operation
from rankscope.robustness.intervals import Box, next_box, unit_rows
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
            constant = constant + smallest_product(given, boxes[operation.output])
            continue
        known = [boxes[value] for value in operation.inputs]
        added, passed = _through(operation, meaning, given, known)
        constant = constant + added
        for value, weight in zip(operation.inputs, passed, strict=True):
            weights[value] = weights[value] + weight if value in weights else weight
    if graph.input not in weights:
        return constant
    return constant + ball.smallest(weights[graph.input])


def _through(
    operation: Operation, meaning: Meaning, weights: Tensor, known: list[Box]
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """A constant, and weights on the inputs, that together are below weights · output."""
    match meaning.form:
        case Affine():
            zeros = [weights.new_zeros(len(weights), *v.shape) for v in operation.inputs]
            outputs, passed = _pulled_back(operation, zeros, weights)
            return products(weights, outputs), passed
        case ConvexCurve():
            return _through_curve(operation, weights, known[0])
        case Largest():
            return _through_largest(operation, weights, known)
        case _:
            raise operation.refuse(
                "linear bounds go through convex functions only; use Intervals or Lipschitz"
            )


def _pulled_back(
    operation: Operation, points: list[Tensor], weights: Tensor
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Outputs at points, (batch, …), and weights times the derivative there."""
    outputs, pull_back = torch.func.vjp(operation.run, *points)[:2]
    passed: tuple[Tensor, ...] = torch.func.vmap(pull_back, in_dims=1, out_dims=1)(weights)
    return outputs, passed


def _through_curve(
    operation: Operation, weights: Tensor, box: Box
) -> tuple[Tensor, tuple[Tensor, ...]]:
    lower, upper = box
    middle = (lower + upper) / 2
    outputs, pull_back = torch.func.vjp(operation.run, middle)[:2]
    (slope,) = pull_back(torch.ones_like(outputs))
    low, high = operation.run(lower), operation.run(upper)
    width = upper - lower
    chord = torch.where(width > 0, (high - low) / width.clamp(min=1e-300), slope)
    # Through the higher of both ends, as a quotient of tiny numbers may be off.
    above = torch.maximum(low - chord * lower, high - chord * upper)
    passed = weights * torch.where(weights > 0, slope[:, None], chord[:, None])
    return smallest_product(weights, (outputs - slope * middle, above)), (passed,)


def _through_largest(
    operation: Operation, weights: Tensor, known: list[Box]
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Positive weights go along the tangent in the middle, negative ones meet the upper bounds."""
    middles = [(low + high) / 2 for low, high in known]
    weights = weights.expand(len(middles[0]), *weights.shape[1:])
    outputs, passed = _pulled_back(operation, middles, weights.clamp(min=0))
    highest = operation.run(*(high for _, high in known))
    added = smallest_product(weights, (outputs, highest))
    for middle, weight in zip(middles, passed, strict=True):
        added = added - products(weight, middle)
    return added, passed


def propagate_linear_bounds(
    graph: Graph, meanings: tuple[Meaning, ...], ball: Ball, spreads: Mapping[Value, Tensor]
) -> dict[Value, Box]:
    """Bounds on every value; on what goes into curves the better of both propagations.

    Args:
        graph: of the model.
        meanings: of its operations.
        ball: around the samples.
        spreads: from `unit_spreads`, or none.

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
        part = graph.until(count)
        lower, upper = next_box(part, meaning, ball, spreads, boxes)
        # Where both bounds are on one side of zero, curves are straight, and no better are needed.
        is_wanted = (lower < 0) & (upper > 0) & (operation.output in into_curves)
        is_wanted |= operation.output in into_largest
        chosen = is_wanted.any(dim=0).flatten().nonzero().flatten()
        boxes[operation.output] = lower, upper
        if isinstance(meaning.form, Affine) and len(chosen):
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
