"""Interval and linear bound propagation: what every value can be, for every input of a ball.

Intervals go forwards, from the bounds on an operation's inputs to those on its output (Gowal et al.
2018). Linear bounds go backwards: weights on a value become weights on what it was computed from;
through a convex curve between l and u, positive weights go along its tangent in the middle,
negative ones along its chord (Zhang et al. 2018).
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from rankscope.reading.trace import Value
from rankscope.robust.graph import Graph, Node, sample_shape
from rankscope.robust.norms import Linf, Norm
from rankscope.robust.transfer import Affine, ConvexCurve, Largest, TransferFunction, Unshaped

_MOST_ENTRIES = 2**21  # of weights on a value that are held at a time: 16 MiB

Box = tuple[Tensor, Tensor]
Transfers = tuple[TransferFunction, ...]


# --- Balls ---------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Ball:
    """Every input within a radius of a sample, and within the range of pixels.

    Args:
        centres: the samples, (batch, …).
        radius: not negative.
        norm: that the radius is measured in.
        pixels: smallest and largest value of an entry; None if there is no limit.
    """

    centres: Tensor
    radius: float
    norm: Norm
    pixels: tuple[float, float] | None = None

    def box(self) -> tuple[Tensor, Tensor]:
        """The smallest and the largest value of every entry: no norm here is below that."""
        lower, upper = self.centres - self.radius, self.centres + self.radius
        if self.pixels is None:
            return lower, upper
        return lower.clamp(min=self.pixels[0]), upper.clamp(max=self.pixels[1])

    def smallest(self, weights: Tensor) -> Tensor:
        """A lower bound on weights · input, for weights (batch, rows, …): (batch, rows)."""
        in_box = smallest_product(weights, self.box())
        if isinstance(self.norm, Linf):
            return in_box
        reach = self.radius * self.norm.dual_lengths(weights, axes=self.centres.ndim - 1)
        return torch.maximum(in_box, products(weights, self.centres) - reach)


def products(weights: Tensor, values: Tensor) -> Tensor:
    """Weights (batch or 1, rows, …) times values (batch or 1, …): (batch, rows)."""
    sums: Tensor = weights.flatten(2) @ values.flatten(1)[:, :, None]
    return sums[:, :, 0]


def smallest_product(weights: Tensor, box: tuple[Tensor, Tensor]) -> Tensor:
    """The smallest that weights · values can be, for values between two bounds, (batch, rows)."""
    lower, upper = box
    return products(weights.clamp(min=0), lower) + products(weights.clamp(max=0), upper)


# --- Intervals ------------------------------------------------------------------------------


def interval_step(node: Node, transfer: TransferFunction, inputs: list[Box]) -> Box:
    """Bounds on an operation's output from bounds on its inputs.

    Raises:
        UnsupportedModuleError: if only its slope is known.
    """
    lower, upper = ([box[side] for box in inputs] for side in range(2))
    match transfer.form:
        case Affine(spread):
            middles = [(low + high) / 2 for low, high in inputs]
            radii = [(high - low) / 2 for low, high in inputs]
            middle, radius = node.run(*middles), spread(*radii)
            return middle - radius, middle + radius
        case ConvexCurve(lowest):
            ends = node.run(lower[0]), node.run(upper[0])
            nearest = torch.full_like(lower[0], lowest).clamp(lower[0], upper[0])
            return node.run(nearest), torch.maximum(*ends)
        case Unshaped():
            raise node.refusal("intervals do not go through it; use the method Lipschitz")
        case _:
            return node.run(*lower), node.run(*upper)


def propagate_intervals(
    graph: Graph,
    transfers: Transfers,
    ball: Ball,
    spreads: Mapping[Value, Tensor],
) -> dict[Value, Box]:
    """Bounds on every value, for every input of a ball.

    Args:
        graph: of the model.
        transfers: of its operations.
        ball: around the samples.
        spreads: from `unit_spreads`, or none.

    Raises:
        UnsupportedModuleError: if only the slope of an operation is known.

    Reference:
        Gowal et al. (2018), arXiv:1810.12715.
    """
    boxes = {graph.input: ball.box()}
    for count, node in enumerate(graph.nodes, start=1):
        boxes[node.output] = next_box(
            graph.until(count), transfers[count - 1], ball, spreads, boxes
        )
    return boxes


def next_box(
    graph: Graph,
    transfer: TransferFunction,
    ball: Ball,
    spreads: Mapping[Value, Tensor],
    boxes: Mapping[Value, Box],
) -> Box:
    """Bounds on a graph's output, from bounds on what goes into its last operation."""
    last = graph.nodes[-1]
    lower, upper = interval_step(last, transfer, [boxes[value] for value in last.inputs])
    if graph.output in spreads:
        middle, radius = graph.run(ball.centres), ball.radius * spreads[graph.output]
        lower, upper = torch.maximum(lower, middle - radius), torch.minimum(upper, middle + radius)
    # Rounding may let two bounds on a fixed number cross.
    return torch.minimum(lower, upper), torch.maximum(lower, upper)


def unit_spreads(graph: Graph, transfers: Transfers, norm: Norm) -> dict[Value, Tensor]:
    """How far entries move for inputs within 1, exactly, where only affine operations come before.

    A box around a ball is much larger than the ball, unless that is a box itself.
    """
    if isinstance(norm, Linf):
        return {}
    plain, spreads = {graph.input}, {}
    wanted = {
        value
        for node, transfer in zip(graph.nodes, transfers, strict=True)
        if not isinstance(transfer.form, Affine)
        for value in node.inputs
    }
    for count, (node, transfer) in enumerate(zip(graph.nodes, transfers, strict=True), 1):
        if isinstance(transfer.form, Affine) and plain.issuperset(node.inputs):
            plain.add(node.output)
            if node.output in wanted:
                spreads[node.output] = _unit_spread(graph.until(count), norm)
    return spreads


def _unit_spread(graph: Graph, norm: Norm) -> Tensor:
    lengths = []
    axes = len(sample_shape(graph.input))
    every = torch.arange(math.prod(sample_shape(graph.output)))
    for _, rows in unit_rows(graph, every, count=1):
        zeros = rows.new_zeros(1, *sample_shape(graph.input))
        pull_back = torch.func.vjp(graph.run, zeros)[1]
        (weights,) = torch.func.vmap(pull_back, in_dims=1, out_dims=1)(rows)
        lengths.append(norm.dual_lengths(weights[0], axes=axes))
    return torch.cat(lengths).reshape(sample_shape(graph.output))


def unit_rows(graph: Graph, chosen: Tensor, *, count: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Rows that pick one entry of a graph's output each, some at a time.

    Args:
        graph: whose largest value decides how many at a time.
        chosen: the entries, by number.
        count: of samples that each row is used for.

    Yields:
        some of the numbers, and their rows, (1, rows, …).
    """
    values = (graph.input, *(node.output for node in graph.nodes))
    largest = max(math.prod(sample_shape(value)) for value in values)
    size = math.prod(sample_shape(graph.output))
    for some in torch.split(chosen, max(1, _MOST_ENTRIES // (largest * count))):
        rows = torch.zeros(len(some), size, dtype=torch.float64)
        rows[torch.arange(len(some)), some] = 1
        yield some, rows.reshape(1, len(some), *sample_shape(graph.output))


# --- Linear bounds ----------------------------------------------------------------------------


def lower_bounds(
    graph: Graph,
    transfers: Transfers,
    ball: Ball,
    boxes: Mapping[Value, Box],
    rows: Tensor,
    *,
    through_curves: bool = True,
) -> Tensor:
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

    Raises:
        UnsupportedModuleError: if weights are to go through what is neither affine nor convex.

    Reference:
        Zhang et al. (2018), arXiv:1811.00866 (CROWN).
    """
    weights: dict[Value, Tensor] = {graph.output: rows}
    constant = rows.new_zeros(rows.shape[:2])
    for node, transfer in zip(reversed(graph.nodes), reversed(transfers), strict=True):
        if node.output not in weights:
            continue
        given = weights.pop(node.output)
        if not (through_curves or isinstance(transfer.form, Affine)):
            constant = constant + smallest_product(given, boxes[node.output])
            continue
        known = [boxes[value] for value in node.inputs]
        added, passed = _through(node, transfer, given, known)
        constant = constant + added
        for value, weight in zip(node.inputs, passed, strict=True):
            weights[value] = weights[value] + weight if value in weights else weight
    if graph.input not in weights:
        return constant
    return constant + ball.smallest(weights[graph.input])


def _through(
    node: Node, transfer: TransferFunction, weights: Tensor, known: list[Box]
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """A constant, and weights on the inputs, that together are below weights · output."""
    match transfer.form:
        case Affine():
            zeros = [weights.new_zeros(len(weights), *sample_shape(v)) for v in node.inputs]
            outputs, passed = _pulled_back(node, zeros, weights)
            return products(weights, outputs), passed
        case ConvexCurve():
            return _through_curve(node, weights, known[0])
        case Largest():
            return _through_largest(node, weights, known)
        case _:
            raise node.refusal(
                "linear bounds go through convex functions only; use Intervals or Lipschitz"
            )


def _pulled_back(
    node: Node, points: list[Tensor], weights: Tensor
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Outputs at points, (batch, …), and weights times the derivative there."""
    outputs, pull_back = torch.func.vjp(node.run, *points)[:2]
    passed: tuple[Tensor, ...] = torch.func.vmap(pull_back, in_dims=1, out_dims=1)(weights)
    return outputs, passed


def _through_curve(node: Node, weights: Tensor, box: Box) -> tuple[Tensor, tuple[Tensor, ...]]:
    lower, upper = box
    middle = (lower + upper) / 2
    outputs, pull_back = torch.func.vjp(node.run, middle)[:2]
    (slope,) = pull_back(torch.ones_like(outputs))
    low, high = node.run(lower), node.run(upper)
    width = upper - lower
    chord = torch.where(width > 0, (high - low) / width.clamp(min=1e-300), slope)
    # Through the higher of both ends, as a quotient of tiny numbers may be off.
    above = torch.maximum(low - chord * lower, high - chord * upper)
    passed = weights * torch.where(weights > 0, slope[:, None], chord[:, None])
    return smallest_product(weights, (outputs - slope * middle, above)), (passed,)


def _through_largest(
    node: Node, weights: Tensor, known: list[Box]
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Positive weights go along the tangent in the middle, negative ones meet the upper bounds."""
    middles = [(low + high) / 2 for low, high in known]
    weights = weights.expand(len(middles[0]), *weights.shape[1:])
    outputs, passed = _pulled_back(node, middles, weights.clamp(min=0))
    highest = node.run(*(high for _, high in known))
    added = smallest_product(weights, (outputs, highest))
    for middle, weight in zip(middles, passed, strict=True):
        added = added - products(weight, middle)
    return added, passed


def propagate_linear_bounds(
    graph: Graph,
    transfers: Transfers,
    ball: Ball,
    spreads: Mapping[Value, Tensor],
) -> dict[Value, Box]:
    """Bounds on every value; on what goes into curves the better of both propagations.

    Args:
        graph: of the model.
        transfers: of its operations.
        ball: around the samples.
        spreads: from `unit_spreads`, or none.

    Raises:
        UnsupportedModuleError: if an operation is neither affine nor convex.
    """
    boxes = {graph.input: ball.box()}
    into_curves, into_largest = (
        {
            value
            for node, transfer in zip(graph.nodes, transfers, strict=True)
            if isinstance(transfer.form, form)
            for value in node.inputs
        }
        for form in (ConvexCurve, Largest)
    )
    for count, (node, transfer) in enumerate(zip(graph.nodes, transfers, strict=True), 1):
        part = graph.until(count)
        lower, upper = next_box(part, transfer, ball, spreads, boxes)
        # Where both bounds are on one side of zero, curves are straight, and no better are needed.
        is_wanted = (lower < 0) & (upper > 0) & (node.output in into_curves)
        is_wanted |= node.output in into_largest
        chosen = is_wanted.any(dim=0).flatten().nonzero().flatten()
        boxes[node.output] = lower, upper
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
    lower, upper = (bound.flatten(1).clone() for bound in boxes[graph.output])
    batch = len(ball.centres)
    for some, rows in unit_rows(graph, chosen, count=batch):
        above = -lower_bounds(graph, transfers, ball, boxes, -rows)
        below = lower_bounds(graph, transfers, ball, boxes, rows)
        lower[:, some] = torch.maximum(lower[:, some], below)
        upper[:, some] = torch.minimum(upper[:, some], above)
    # Rounding may let two bounds on a fixed number cross.
    lower, upper = torch.minimum(lower, upper), torch.maximum(lower, upper)
    shape = (batch, *sample_shape(graph.output))
    return lower.reshape(shape), upper.reshape(shape)
