"""Interval bound propagation: the smallest and largest that every entry of every value can be."""

import math
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from rankscope.robustness.balls import Ball
from rankscope.robustness.graph import Graph, Operation
from rankscope.robustness.meaning import Affine, ConvexCurve, Meaning, Unshaped
from rankscope.robustness.norms import Linf, Norm
from rankscope.robustness.recording import Value

_MOST_ENTRIES = 2**21  # of weights on a value that are held at a time: 16 MiB

Box = tuple[Tensor, Tensor]


def interval_step(operation: Operation, meaning: Meaning, inputs: list[Box]) -> Box:
    """Bounds on an operation's output from bounds on its inputs.

    Raises:
        UnsupportedModuleError: if only its slope is known.
    """
    lower, upper = ([box[side] for box in inputs] for side in range(2))
    match meaning.form:
        case Affine(spread):
            middles = [(low + high) / 2 for low, high in inputs]
            radii = [(high - low) / 2 for low, high in inputs]
            middle, radius = operation.run(*middles), spread(*radii)
            return middle - radius, middle + radius
        case ConvexCurve(lowest):
            ends = operation.run(lower[0]), operation.run(upper[0])
            nearest = torch.full_like(lower[0], lowest).clamp(lower[0], upper[0])
            return operation.run(nearest), torch.maximum(*ends)
        case Unshaped():
            raise operation.refuse("intervals do not go through it; use the method Lipschitz")
        case _:
            return operation.run(*lower), operation.run(*upper)


def propagate_intervals(
    graph: Graph, meanings: tuple[Meaning, ...], ball: Ball, spreads: Mapping[Value, Tensor]
) -> dict[Value, Box]:
    """Bounds on every value, for every input of a ball.

    Args:
        graph: of the model.
        meanings: of its operations.
        ball: around the samples.
        spreads: from `unit_spreads`, or none.

    Raises:
        UnsupportedModuleError: if only the slope of an operation is known.

    Reference:
        Gowal et al. (2018), arXiv:1810.12715.
    """
    boxes = {graph.input: ball.box()}
    for count, operation in enumerate(graph.operations, start=1):
        boxes[operation.output] = next_box(
            graph.until(count), meanings[count - 1], ball, spreads, boxes
        )
    return boxes


def next_box(
    graph: Graph,
    meaning: Meaning,
    ball: Ball,
    spreads: Mapping[Value, Tensor],
    boxes: Mapping[Value, Box],
) -> Box:
    """Bounds on a graph's output, from bounds on what goes into its last operation."""
    last = graph.operations[-1]
    lower, upper = interval_step(last, meaning, [boxes[value] for value in last.inputs])
    if graph.output in spreads:
        middle, radius = graph.run(ball.centres), ball.radius * spreads[graph.output]
        lower, upper = torch.maximum(lower, middle - radius), torch.minimum(upper, middle + radius)
    # Rounding may let two bounds on a fixed number cross.
    return torch.minimum(lower, upper), torch.maximum(lower, upper)


def unit_spreads(graph: Graph, meanings: tuple[Meaning, ...], norm: Norm) -> dict[Value, Tensor]:
    """How far entries move for inputs within 1, exactly, where only affine operations come before.

    A box around a ball is much larger than the ball, unless that is a box itself.
    """
    if isinstance(norm, Linf):
        return {}
    plain, spreads = {graph.input}, {}
    wanted = {
        value
        for operation, meaning in zip(graph.operations, meanings, strict=True)
        if not isinstance(meaning.form, Affine)
        for value in operation.inputs
    }
    for count, (operation, meaning) in enumerate(zip(graph.operations, meanings, strict=True), 1):
        if isinstance(meaning.form, Affine) and plain.issuperset(operation.inputs):
            plain.add(operation.output)
            if operation.output in wanted:
                spreads[operation.output] = _unit_spread(graph.until(count), norm)
    return spreads


def _unit_spread(graph: Graph, norm: Norm) -> Tensor:
    lengths = []
    axes = len(graph.input.shape)
    every = torch.arange(math.prod(graph.output.shape))
    for _, rows in unit_rows(graph, every, count=1):
        zeros = rows.new_zeros(1, *graph.input.shape)
        pull_back = torch.func.vjp(graph.run, zeros)[1]
        (weights,) = torch.func.vmap(pull_back, in_dims=1, out_dims=1)(rows)
        lengths.append(norm.dual_lengths(weights[0], axes=axes))
    return torch.cat(lengths).reshape(graph.output.shape)


def unit_rows(graph: Graph, chosen: Tensor, *, count: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Rows that pick one entry of a graph's output each, some at a time.

    Args:
        graph: whose largest value decides how many at a time.
        chosen: the entries, by number.
        count: of samples that each row is used for.

    Yields:
        some of the numbers, and their rows, (1, rows, …).
    """
    values = (graph.input, *(operation.output for operation in graph.operations))
    largest = max(math.prod(value.shape) for value in values)
    size = math.prod(graph.output.shape)
    for some in torch.split(chosen, max(1, _MOST_ENTRIES // (largest * count))):
        rows = torch.zeros(len(some), size, dtype=torch.float64)
        rows[torch.arange(len(some)), some] = 1
        yield some, rows.reshape(1, len(some), *graph.output.shape)
