"""Interval propagation: what every value can be, for every input of a ball.

Intervals go forwards, from the bounds on an operation's inputs to those on its output (Gowal et al.
2018); `linear_bounds` goes backwards, and starts from them.

All bounds hold for the network in its own floats: a computed value is an exact one plus an error,
which is bounded for every operation (`Box.rounding`), widens its interval, and costs linear bounds
its product with the absolute weights. What the float64 of these computations may owe to rounding
(`Box.slack`) is counted in the same way. `Below` keeps the two apart, so that one pass says what
holds for exact arithmetic on the same weights, too.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache

import torch
from torch import Tensor

from rankscope.reading.trace import Value
from rankscope.robust.forms import (
    Affine,
    ConvexCurve,
    Increasing,
    TransferFunction,
    Unshaped,
    own_arithmetic,
)
from rankscope.robust.graph import Graph, Node, sample_shape
from rankscope.robust.norms import Linf, Norm
from rankscope.robust.relaxations import Ends, Smooth, half_width, largest_size, middle
from rankscope.robust.rounding import (
    FLOAT64,
    Rounding,
    above,
    infinite_beyond,
    outwards,
    weighted_sum,
)

_MOST_ENTRIES = 2**21  # of weights on a value that are held at a time: 16 MiB

Transfers = tuple[TransferFunction, ...]
Later = Callable[[], Tensor]  # what is computed once, and only if it is asked for


@dataclass(frozen=True, eq=False)
class Box:
    """Bounds on a value as the network computes it, entry by entry, (batch, …).

    Args:
        lower: no entry is below.
        upper: no entry is above.
        slack: what one weight of 1 on an entry can lose in float64 on its way back; None if its
            operation only moves entries.
        rounding: by how much the last operation's result can differ from the exact one in the
            network's own floats; None if it does not.
        drift: the same since the input, where only affine operations come before, and also if the
            network is looked at in exact arithmetic; None elsewhere.
    """

    lower: Tensor
    upper: Tensor
    slack: Later | None = None
    rounding: Later | None = None
    drift: Tensor | None = None

    @property
    def ends(self) -> Ends:
        """Both bounds."""
        return self.lower, self.upper

    def tightened(self, lower: Tensor, upper: Tensor) -> "Box":
        """The better of these bounds and others."""
        first, last = torch.fmax(self.lower, lower), torch.fmin(self.upper, upper)
        return replace(self, lower=first, upper=last)


@dataclass(frozen=True, eq=False)
class Below:
    """Lower bounds on rows · output, (batch, rows).

    Args:
        exact: in exact arithmetic on the network's weights.
        floats: in the network's own floats, by any order of summation.
    """

    exact: Tensor
    floats: Tensor

    def maximum(self, other: "Below") -> "Below":
        """The better of two bounds."""
        return Below(torch.fmax(self.exact, other.exact), torch.fmax(self.floats, other.floats))


# --- Balls ---------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Ball:
    """Every input within a radius of a sample, and within the range of pixels.

    Args:
        centres: the samples, (batch, …).
        radius: not negative.
        norm: that the radius is measured in.
        pixels: smallest and largest value of an entry; None if there is no limit.
        is_exact: whether the network is looked at in exact arithmetic only, without its rounding.
    """

    centres: Tensor
    radius: float
    norm: Norm
    pixels: tuple[float, float] | None = None
    is_exact: bool = False

    def box(self) -> Box:
        """The smallest and the largest value of every entry: no norm here is below that."""
        lower, upper = outwards(self.centres - self.radius, self.centres + self.radius)
        if self.pixels is not None:
            lower, upper = lower.clamp(min=self.pixels[0]), upper.clamp(max=self.pixels[1])
        count = 2 * self.centres[0].numel() + 64
        sizes = self.centres.abs() + self.radius
        slack = 4 * FLOAT64.gamma(count) * sizes + FLOAT64.smallest
        # Only balls that are no boxes are followed through affine operations as a whole.
        drift = None if isinstance(self.norm, Linf) else torch.zeros_like(lower)
        return Box(lower, upper, lambda: slack, drift=drift)

    def smallest(self, weights: Tensor) -> Tensor:
        """The least of weights · input, for weights (batch, rows, …): (batch, rows).

        Up to rounding, which the slack of its box counts.
        """
        in_box = smallest_product(weights, self.box().ends)
        if isinstance(self.norm, Linf):
            return in_box
        reach = self.radius * self.norm.dual_lengths(weights, axes=self.centres.ndim - 1)
        reach = reach * above(1.0, self.centres[0].numel() + 8)
        return torch.maximum(in_box, products(weights, self.centres) - reach)


def products(weights: Tensor, values: Tensor) -> Tensor:
    """Weights (batch or 1, rows, …) times values (batch or 1, …): (batch, rows)."""
    sums: Tensor = weights.flatten(2) @ values.flatten(1)[:, :, None]
    return sums[:, :, 0]


def smallest_product(weights: Tensor, ends: Ends) -> Tensor:
    """The smallest that weights · values can be, for values between two bounds, (batch, rows)."""
    at = middle(ends)
    return products(weights, at) - products(weights.abs(), ends[1] - at)


# --- Intervals ------------------------------------------------------------------------------


def interval_step(
    node: Node, transfer: TransferFunction, inputs: list[Box], *, is_exact: bool = False
) -> Box:
    """Bounds on an operation's output from bounds on its inputs.

    Args:
        node: the operation.
        transfer: its rules.
        inputs: bounds on its inputs.
        is_exact: whether the network's own rounding is left out.

    Raises:
        UnsupportedModuleError: if only its slope is known.
    """
    ends = _exact_ends(node, transfer, inputs)
    drift = None
    if isinstance(transfer.form, Affine) and all(box.drift is not None for box in inputs):
        drift = transfer.form.spread(*(box.drift for box in inputs)) * (1 + 2**-30)
    if transfer.is_move and not transfer.has_constants:
        return Box(*ends, drift=drift)
    rounding = transfer.rounding
    if rounding is not None:
        return _rounded(node, transfer, rounding, inputs, ends, drift, is_exact=is_exact)
    slack = cache(lambda: _slack(node, transfer, inputs, ends))
    if isinstance(transfer.form, Affine) and not transfer.is_move:
        # A change of sign is exact, but not the middles and half widths that it goes by.
        ends = ends[0] - slack(), ends[1] + slack()
    return Box(*ends, slack, drift=drift)


def _exact_ends(node: Node, transfer: TransferFunction, inputs: list[Box]) -> Ends:
    """The range of an operation in exact arithmetic, up to the slack."""
    ends = [box.ends for box in inputs]
    match transfer.form:
        case Affine(spread) if not transfer.is_move:
            at, radius = node.run(*map(middle, ends)), spread(*map(half_width, ends))
            return at - radius, at + radius
        case Smooth(box):
            return box(ends)
        case Unshaped():
            raise node.refusal("intervals do not go through it; use the method Lipschitz")
    first, last = (node.run(*(pair[side] for pair in ends)) for side in range(2))
    lowest = _lowest(transfer)
    if lowest == -math.inf:
        return first, last
    nearest = torch.full_like(first, lowest).clamp(*ends[0])
    return node.run(nearest), torch.maximum(first, last)


def _lowest(transfer: TransferFunction) -> float:
    """Where a curve turns from falling to rising; -inf if it never falls."""
    match transfer.form:
        case ConvexCurve(lowest) | Increasing(lowest):
            return lowest
    return -math.inf


def _rounded(  # noqa: PLR0913 - what is known of one operation
    node: Node,
    transfer: TransferFunction,
    rounding: Rounding,
    inputs: list[Box],
    ends: Ends,
    drift: Tensor | None,
    *,
    is_exact: bool,
) -> Box:
    """The box of an operation that rounds: its range, widened by what both arithmetics may lose."""
    known = [box.ends for box in inputs]
    results = largest_size(ends)
    if rounding.of_box is None:
        magnitude = rounding.magnitude(*map(largest_size, known))
    else:
        magnitude = rounding.of_box(known, results)
    slack = cache(lambda: _slack(node, transfer, inputs, ends, magnitude))
    own = own_arithmetic(node)
    of_magnitude, of_results = rounding.shares(own)

    absolute = own.absolute(rounding.count)

    @cache
    def lost() -> Tensor:
        error = weighted_sum(magnitude, of_magnitude, results + slack(), of_results) + absolute
        return infinite_beyond(own.largest / 4, magnitude, error)

    # What is computed here once is computed on the way back, too: the same bound holds.
    if is_exact:
        error = slack()
    elif isinstance(transfer.form, Affine):
        # Both errors in one go.
        share, rest = _float64_share(node)
        up = (1 + of_results) * (1 + 2**-40)
        error = weighted_sum(
            magnitude, of_magnitude + share * up, results, of_results + 2 * share * up
        )
        error = infinite_beyond(own.largest / 4, magnitude, error.add_(absolute + rest * up))
    else:
        error = slack() + lost()
    drift = drift if drift is None else drift + lost()
    # The last rounding is a small part of the slack.
    return Box(ends[0] - error, ends[1] + error, slack, None if is_exact else lost, drift)


def _slack(
    node: Node,
    transfer: TransferFunction,
    inputs: list[Box],
    ends: Ends,
    magnitude: Tensor | None = None,
) -> Tensor:
    """What float64 may lose in an operation, or in a sum of products with its results."""
    share, rest = _float64_share(node)
    results = largest_size(ends)
    known = [box.ends for box in inputs]
    reach = results
    if isinstance(transfer.form, Smooth):
        reach = transfer.form.reach(known)
    elif isinstance(transfer.form, ConvexCurve):
        reach = 2 * largest_size(known[0])
    magnitude = results if magnitude is None else magnitude
    return share * (magnitude + reach + results) + rest


def _float64_share(node: Node) -> tuple[float, float]:
    """By how much float64 may be off here: a share of the numbers, and what is flushed to zero."""
    terms = sum(math.prod(sample_shape(value)) for value in (*node.inputs, node.output))
    return 4 * FLOAT64.gamma(2 * terms + 64), FLOAT64.absolute(terms)


def propagate_intervals(
    graph: Graph,
    transfers: Transfers,
    ball: Ball,
    spreads: Mapping[Value, Tensor],
) -> dict[Value, Box]:
    """Bounds on every value, as the network computes it, for every input of a ball.

    Args:
        graph: of the model, in float64.
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
    known = [boxes[value] for value in last.inputs]
    box = interval_step(last, transfer, known, is_exact=ball.is_exact)
    if graph.output in spreads:
        assert box.drift is not None  # only affine operations come before
        at, radius = graph.run(ball.centres), above(ball.radius) * spreads[graph.output]
        terms = sum(math.prod(sample_shape(node.output)) for node in graph.nodes)
        # The middle is computed by the same operations in float64 as in the network's floats.
        own = min(own_arithmetic(node).unit for node in graph.nodes)
        slack = box.drift * ((not ball.is_exact) + FLOAT64.unit / own) * (1 + 2**-30)
        slack = slack + 4 * FLOAT64.gamma(8) * (at.abs() + radius) + FLOAT64.absolute(terms)
        box = box.tightened(at - radius - slack, at + radius + slack)
    return box


def rounding_share(boxes: Mapping[Value, Box]) -> Tensor:
    """How much of the boxes' widths is rounding of the network, at most, (batch,)."""
    shares = [torch.zeros(len(next(iter(boxes.values())).lower), dtype=torch.float64)]
    for box in boxes.values():
        if box.rounding is not None:
            widths = (box.upper - box.lower).flatten(1).sum(dim=1) / 2
            lost = box.rounding().expand_as(box.lower).flatten(1).sum(dim=1)
            shares.append(lost / widths.clamp(min=FLOAT64.smallest))
    return torch.stack(shares).nan_to_num(nan=0.0).amax(dim=0)


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
                part = graph.until(count).needed()
                needed = {made.output for made in part.nodes}
                rules = zip(graph.nodes, transfers, strict=True)
                chosen = tuple(rule for made, rule in rules if made.output in needed)
                spreads[node.output] = _unit_spread(part, chosen, norm)
    return spreads


def _unit_spread(graph: Graph, transfers: Transfers, norm: Norm) -> Tensor:
    lengths = []
    axes = len(sample_shape(graph.input))
    every = torch.arange(math.prod(sample_shape(graph.output)))
    for _, rows in unit_rows(graph, every, count=1):
        zeros = rows.new_zeros(1, *sample_shape(graph.input))
        pull_back = torch.func.vjp(graph.run, zeros)[1]
        (weights,) = torch.func.vmap(pull_back, in_dims=1, out_dims=1)(rows)
        lengths.append(norm.dual_lengths(weights[0], axes=axes))
    spread = torch.cat(lengths).reshape(sample_shape(graph.output))
    # Rounding is a share of what the weights would be if none of them cancelled.
    sizes = {graph.input: torch.ones(1, *sample_shape(graph.input), dtype=torch.float64)}
    terms = math.prod(sample_shape(graph.input))
    for node, transfer in zip(graph.nodes, transfers, strict=True):
        assert isinstance(transfer.form, Affine)
        if all(value in sizes for value in node.inputs):
            sizes[node.output] = transfer.form.spread(*(sizes[value] for value in node.inputs))
        terms += math.prod(sample_shape(node.output))
    slack = 4 * FLOAT64.gamma(terms + 64) * (sizes[graph.output][0] + spread)
    return spread + slack + FLOAT64.absolute(terms)


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
