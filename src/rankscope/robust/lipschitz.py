"""How far apart two outputs can be, for inputs at a distance of 1: an upper bound for any model.

lipschitz_bound(nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2)), (4,)).value

The same walk bounds what rounding in the network's own floats can do: the error of each operation,
from the sizes of the numbers that it adds up at a sample and what a perturbation changes of them,
times the constants of all operations behind it (`LipschitzWalk.errors`).
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from rankscope.errors import RobustnessError
from rankscope.reading.trace import Value
from rankscope.robust.forms import TransferFunction, own_arithmetic
from rankscope.robust.graph import Graph, Node, sample_shape
from rankscope.robust.margins import margins, other_classes
from rankscope.robust.rounding import FLOAT64, above, lengths_above
from rankscope.robust.sums import MOST_TERMS, error_of_sums
from rankscope.robust.transfer import read_transfer_functions

_ASSUMPTIONS = (
    "inference mode",
    "Euclidean norms",
    "constants are upper bounds, rounding of float64 included",
)


@dataclass(frozen=True)
class Step:
    """One operation on the way.

    Args:
        name: of the operation.
        rule: where its constants come from.
        constants: by how much it can stretch a change of each of its inputs.
        reach: by how much its output can change, for inputs of the model at a distance of 1.
    """

    name: str
    rule: str
    constants: tuple[float, ...]
    reach: float


@dataclass(frozen=True, eq=False)
class LipschitzBound:
    """An upper bound on a model's Lipschitz constant, with what it was made of.

    Args:
        value: no two outputs are further apart than this times the distance of the inputs.
        pairs: (outputs, outputs) for models that give a vector: the same for the difference of two
            outputs; None for others.
        steps: every operation.
        assumptions: what must hold for it.
    """

    value: float
    pairs: Tensor | None
    steps: tuple[Step, ...]
    assumptions: tuple[str, ...]

    def __str__(self) -> str:
        return f"Lipschitz constant at most {self.value:.6g}"


@dataclass(frozen=True, eq=False)
class _Reach:
    """How far a value reaches from the input, and from the value that it is a piece of.

    Args:
        constant: from the input.
        base: the value that it was cut out of, possibly itself.
        picked: which entries of it, numbered; None for all.
        since: from these entries.
    """

    constant: float
    base: Value
    picked: Tensor | None = None
    since: float = 1.0


def lipschitz_bound(
    model: nn.Module, input_shape: tuple[int, ...], *, scale: float = 1.0
) -> LipschitzBound:
    r"""Walk a model's graph and multiply, add or join the constants of its operations.

    Chains multiply, sums add (:math:`1 + L` for a residual), values side by side join by the root
    of squares, or as the larger of both if they were made from different entries of one value.
    Layers with weights are measured on inputs of the size that they get.

    Args:
        model: in any mode; its inference mode is what is bounded.
        input_shape: of one input.
        scale: by which inputs are multiplied before they reach the model, such as 1 over the
            smallest deviation; 1 if the model does so itself.

    Example:
        >>> model = nn.Sequential(nn.AvgPool2d(2), nn.Sigmoid(), nn.Flatten())
        >>> round(lipschitz_bound(model, (3, 8, 8)).value, 6)
        0.125

    Raises:
        UnsupportedModuleError: if an operation is not known, with its name and the reason.
        SizeError: if the model does not take such inputs.
        RobustnessError: if a number in the model, or the scale, is not finite.
    """
    require_scale(scale)
    return LipschitzWalk(model, input_shape, scale=scale).bound


class LipschitzWalk:
    """A model's graph with the constants of its operations.

    Args:
        model: as for `lipschitz_bound`.
        input_shape: of one input.
        scale: as for `lipschitz_bound`.

    Attributes:
        bound: on the model's Lipschitz constant.
        graph: of the model.
    """

    def __init__(self, model: nn.Module, input_shape: tuple[int, ...], *, scale: float) -> None:
        require_finite(model)
        graph, transfers = read_transfer_functions(model, input_shape, precise=True)
        self.graph, self._transfers = graph, transfers
        self._spreads: list[tuple[float, ...]] = []
        self._reaches = {graph.input: _Reach(scale, graph.input)}
        steps = []
        for node, transfer in zip(graph.nodes, transfers, strict=True):
            growth = transfer.growth()
            reach = _reach_of(node, transfer, growth, self._reaches)
            self._reaches[node.output] = reach
            steps.append(Step(node.name, transfer.rule, growth, reach.constant))
        value = self._reaches[graph.output].constant
        pairs = _pairs(graph, value, {key: r.constant for key, r in self._reaches.items()})
        scaled = () if scale == 1 else (f"inputs are multiplied by {scale:.6g} before the model",)
        self.bound = LipschitzBound(value, pairs, tuple(steps), (*_ASSUMPTIONS, *scaled))

    def margins(
        self, inputs: Tensor, labels: Tensor, radii: Sequence[float]
    ) -> tuple[Tensor, Tensor]:
        """Lower bounds on the margins above every other class, for all inputs of balls.

        Args:
            inputs: the centres, (samples, …).
            labels: (samples,).
            radii: Euclidean, of the balls.

        Returns:
            in exact arithmetic, and in the model's own floats, (radii, samples, classes - 1).
        """
        self._spreads = list(map(_spread_norms, self.graph.nodes, self._transfers))
        reached = torch.tensor(radii, dtype=torch.float64)[:, None]
        parts = [
            self._margins(some.double(), of, reached)
            for some, of in zip(
                torch.split(inputs, _BATCH_SIZE), torch.split(labels, _BATCH_SIZE), strict=True
            )
        ]
        exact, floats = (torch.cat([part[at] for part in parts], dim=1) for at in range(2))
        # Where only rounding is in the way it is looked at more closely, sum by sum.
        in_the_way = (exact > 0).all(dim=2) & ~(floats > 0).all(dim=2)
        for sample in in_the_way.any(dim=0).nonzero().flatten().tolist():
            at, one = in_the_way[:, sample], slice(sample, sample + 1)
            closer = self._margins(inputs[one].double(), labels[one], reached[at], closely=True)
            for known, found in zip((exact, floats), closer, strict=True):
                known[at, sample] = torch.maximum(known[at, sample], found[:, 0])
        return exact, floats

    def _margins(
        self, inputs: Tensor, labels: Tensor, radii: Tensor, *, closely: bool = False
    ) -> tuple[Tensor, Tensor]:
        outputs, errors, last = self._errors(inputs, radii, closely=closely)
        differences = margins(outputs, labels)
        others = other_classes(outputs, labels)
        assert self.bound.pairs is not None  # outputs are a vector for each sample
        constants = self.bound.pairs[labels[:, None], others]
        falls = above(1.0, 8) * constants * radii[..., None]
        lost = math.sqrt(2) * errors[self.graph.output].total[..., None]
        if last is not None:
            node = self.graph.nodes[-1]
            rows = _row_distances(node["weight"])[labels[:, None], others]
            before = errors[node.inputs[0]].total[..., None] * rows
            lost = torch.minimum(lost, before + math.sqrt(2) * last[..., None])
        lost = lost * above(1.0, 8)
        # The centre is computed in float64, by the same operations as in the model's floats.
        units = [own_arithmetic(node).unit for node in self.graph.nodes] or [FLOAT64.unit]
        share = FLOAT64.unit / min(units)
        plain = 8 * FLOAT64.unit * (differences.abs() + falls) + FLOAT64.smallest
        exact = differences - falls - plain - share * lost
        return exact, exact - lost

    def _errors(
        self, inputs: Tensor, radii: Tensor, *, closely: bool
    ) -> tuple[Tensor, dict[Value, "_Error"], Tensor | None]:
        """Outputs at samples, the errors of all values on the balls, and that of a last matrix.

        Closely, which takes longer, is for one sample.
        """
        graph = self.graph
        known = {graph.input: inputs}
        zeros = torch.zeros(len(radii), len(inputs), dtype=torch.float64)
        errors = {graph.input: _Error(zeros, zeros)}
        last = None
        uses = Counter(value for node in graph.nodes for value in node.inputs)
        uses[graph.output] += 1
        rules = zip(graph.nodes, self._transfers, self._spreads, self.bound.steps, strict=True)
        for node, transfer, spreads, step in rules:
            given = [known[value] for value in node.inputs]
            known[node.output] = outputs = node.run(*given)
            changes = [
                self._reaches[value].constant * radii + errors[value].total for value in node.inputs
            ]
            known_constants = spreads, step.constants
            local = _local_error(node, transfer, known_constants, (given, outputs), changes)
            if closely and local is not None:
                local = torch.fmin(
                    local, _error_of_known_sums(node, transfer, known_constants, given, changes)
                )
            local = zeros if local is None else local
            errors[node.output] = self._passed_on(node, transfer, step, errors).plus(local)
            last = local if node.kind == "linear" and node is graph.nodes[-1] else None
            for value in node.inputs:
                uses[value] -= 1
                if not uses[value]:
                    del known[value]
        return known[graph.output], errors, last

    def _passed_on(
        self,
        node: Node,
        transfer: TransferFunction,
        step: Step,
        errors: Mapping[Value, "_Error"],
    ) -> "_Error":
        """What an operation makes of the errors of its inputs, by the rules of distances."""
        inputs = [errors[value] for value in node.inputs]
        grown = [g * error.total for g, error in zip(step.constants, inputs, strict=True)]
        if transfer.is_selection:
            return _Error(grown[0], torch.zeros_like(grown[0]))
        if len(inputs) == 1:
            return _Error(grown[0], step.constants[0] * inputs[0].since)
        if not transfer.is_joint:
            total = torch.stack(grown).sum(dim=0)
            return _Error(total, torch.zeros_like(total))
        joined = torch.stack(grown).square().sum(dim=0).sqrt()
        reaches = [self._reaches[value] for value in node.inputs]
        if _are_apart(reaches):
            # Different entries of one value: its error is shared out among them.
            largest = max(g * r.since for g, r in zip(step.constants, reaches, strict=True))
            since = [g * e.since for g, e in zip(step.constants, inputs, strict=True)]
            rest = torch.stack(since).square().sum(dim=0).sqrt()
            joined = torch.minimum(joined, largest * errors[reaches[0].base].total + rest)
        return _Error(joined, torch.zeros_like(joined))


@dataclass(frozen=True, eq=False)
class _Error:
    """Euclidean bounds on what rounding does to a value, (radii, samples).

    Args:
        total: since the input.
        since: the part that came after the value that it was cut out of.
    """

    total: Tensor
    since: Tensor

    def plus(self, local: Tensor) -> "_Error":
        """With the error of one more operation."""
        return _Error((self.total + local) * _UP, (self.since + local) * _UP)


_UP = above(1.0, 16)
_BATCH_SIZE = 64


_POWER_STEPS = 6


def _spread_norms(node: Node, transfer: TransferFunction) -> tuple[float, ...]:
    r"""Norms of the sums of absolute values that rounding is a share of, from above.

    For a matrix B of numbers that are not negative and any positive vector z,
    :math:`\|B\|^2 \le \max_i (B^T B z)_i / z_i` (Collatz 1942); z comes from power iteration.
    """
    rounding = transfer.rounding
    if rounding is None:
        return ()
    zeros = [torch.zeros(1, *sample_shape(v), dtype=torch.float64) for v in node.inputs]
    norms = []
    for place, zero in enumerate(zeros):
        vector, ratio = torch.ones_like(zero), math.inf
        for _ in range(_POWER_STEPS):
            given = [*zeros[:place], vector, *zeros[place + 1 :]]
            rows, pull_back = torch.func.vjp(rounding.spread, *given)[:2]
            columns = pull_back(rows)[place]
            ratio = min(ratio, float((columns / vector).max()))
            # Bounded away from zero, so that the quotients are finite.
            vector = columns / columns.max().clamp(min=1e-300) + 1e-6
        norms.append(above(math.sqrt(ratio), 2 * (rows.numel() + columns.numel())))
    return tuple(norms)


def _local_error(
    node: Node,
    transfer: TransferFunction,
    constants: tuple[tuple[float, ...], tuple[float, ...]],
    known: tuple[list[Tensor], Tensor],
    changes: list[Tensor],
) -> Tensor | None:
    """A bound on the error of one operation on the balls, (radii, samples).

    Sums of absolute values are those at the centre, and what a change of the inputs of a known
    length can add to them.
    """
    rounding = transfer.rounding
    if rounding is None:
        return None
    given, outputs = known
    spreads, growth = constants
    own = own_arithmetic(node)
    magnitude = rounding.magnitude(*(each.abs() for each in given))
    if magnitude.shape != outputs.shape:
        magnitude = magnitude.expand_as(outputs)
    gamma = own.gamma(rounding.count)
    slack = FLOAT64.gamma(2 * rounding.count + 64) * magnitude
    at_centre = rounding.scaled_error(own, magnitude, outputs.abs() + slack)
    further = sum(s * change for s, change in zip(spreads, changes, strict=True))
    assert isinstance(further, Tensor)
    share = gamma * further
    if rounding.is_sum:
        moved = sum(g * change for g, change in zip(growth, changes, strict=True))
        share = gamma * torch.minimum(further, (further + moved) / 2)
        share = share + rounding.of_products(own) * further
    length = lengths_above(at_centre.flatten(1))
    largest = magnitude.flatten(1).amax(dim=1) + further
    error = length + share
    if rounding.products is not None:
        ((change,), (growing,)) = changes, growth
        products = rounding.products.length(given[0]) + rounding.products.steepest * change
        results = lengths_above((outputs.abs() + slack).flatten(1))
        of_products, of_results = rounding.products.shares(own, rounding.count)
        error = torch.fmin(
            error, of_products * products + of_results * (results + growing * change)
        )
    error = error + own.absolute(rounding.count) * math.sqrt(outputs[0].numel())
    error = error * above(1.0, outputs[0].numel() + 16)
    return torch.where(largest < own.largest / 4, error, math.inf)


def _error_of_known_sums(
    node: Node,
    transfer: TransferFunction,
    constants: tuple[tuple[float, ...], tuple[float, ...]],
    given: list[Tensor],
    changes: list[Tensor],
) -> Tensor:
    """The same from everything that is added at one sample; infinite where that is not known."""
    rounding = transfer.rounding
    size = math.prod(sample_shape(node.output))
    unknown = torch.full_like(changes[0], math.inf)
    if rounding is None or rounding.terms is None or size * rounding.count > MOST_TERMS:
        return unknown
    own = own_arithmetic(node)
    ((spread,), (growth,)), (change,) = constants, changes
    # Some of the terms are half of all of them and half of these with other signs.
    drifts = change * ((spread + growth) / 2) * _UP
    terms = rounding.terms(given[0])
    errors = [error_of_sums(terms, float(d), own, rounding.count) for d in drifts.flatten()]
    flushed = own.absolute(rounding.count) * math.sqrt(size)
    error = (torch.tensor(errors, dtype=torch.float64).view_as(change) + flushed) * _UP
    largest = terms.abs().sum(dim=1).max() + spread * change
    return torch.where(largest < own.largest / 4, error, unknown)


def _row_distances(weight: Tensor) -> Tensor:
    """Distances of the rows of a matrix, rounded upwards."""
    rows: Tensor = weight.detach().double()
    return lengths_above(rows[:, None] - rows[None]) * above(1.0)


def require_scale(scale: float) -> None:
    """Refuse a scale of inputs that is none.

    Raises:
        RobustnessError: if it is not positive or not finite.
    """
    if not (math.isfinite(scale) and scale > 0):
        raise RobustnessError(f"lipschitz_bound: the scale must be positive, got {scale}.")


def require_finite(model: nn.Module) -> None:
    """Refuse a model that nothing can be said about.

    Raises:
        RobustnessError: if a weight is not finite, with its name.
    """
    for name, tensor in model.state_dict().items():
        wrong = int((~torch.isfinite(tensor)).sum()) if tensor.is_floating_point() else 0
        if wrong:
            raise RobustnessError(
                f"{type(model).__name__}: {wrong:,} of {tensor.numel():,} numbers in {name} are "
                "not finite, so that nothing can be certified."
            )


def _reach_of(
    node: Node,
    transfer: TransferFunction,
    growth: tuple[float, ...],
    reaches: Mapping[Value, _Reach],
) -> _Reach:
    inputs = [reaches[value] for value in node.inputs]
    if transfer.is_selection:
        value = node.inputs[0]
        shape = sample_shape(value)
        entries = torch.arange(math.prod(shape)).reshape(1, *shape)
        picked = node.run(entries).flatten()
        return _Reach(above(growth[0] * inputs[0].constant), value, picked, growth[0])
    if len(inputs) == 1:
        before = inputs[0]
        constant, since = above(growth[0] * before.constant), above(growth[0] * before.since)
        return _Reach(constant, before.base, before.picked, since)
    constants = [g * reach.constant for g, reach in zip(growth, inputs, strict=True)]
    if not transfer.is_joint:
        return _Reach(above(sum(constants), len(constants) + 1), node.output)
    joined = above(math.hypot(*constants), len(constants) + 4)
    if _are_apart(inputs):
        # Different entries of one value: what moves one of the parts is not left for the others.
        largest = max(g * reach.since for g, reach in zip(growth, inputs, strict=True))
        joined = min(joined, above(largest * reaches[inputs[0].base].constant, 2))
    return _Reach(joined, node.output)


def _are_apart(inputs: Sequence[_Reach]) -> bool:
    picked = [torch.unique(reach.picked) for reach in inputs if reach.picked is not None]
    if len(picked) < len(inputs) or len({reach.base for reach in inputs}) > 1:
        return False
    return len(torch.unique(torch.cat(picked))) == sum(map(len, picked))


def _pairs(graph: Graph, value: float, constants: dict[Value, float]) -> Tensor | None:
    """Bounds for differences of two outputs: √2 times that of all, or by two rows of weights."""
    if len(sample_shape(graph.output)) != 1:
        return None
    count = sample_shape(graph.output)[0]
    pairs = torch.full((count, count), above(math.sqrt(2) * value, 2), dtype=torch.float64)
    last = graph.nodes[-1] if graph.nodes else None
    if last is None or last.kind != "linear":
        return pairs
    rows = _row_distances(last["weight"])
    return torch.minimum(pairs, above(constants[last.inputs[0]], 2) * rows)


def certified_radii(outputs: Tensor, labels: Tensor, bound: LipschitzBound) -> Tensor:
    r"""Euclidean radii within which no input has another label, (samples,).

    .. math:: \min_{i \ne y} \frac{f_y - f_i}{L_{y i}}, \qquad L_{y i} \le \sqrt 2 L

    with :math:`L_{y i}` of the difference of two outputs: if the last operation is a product with a
    matrix, that of the features times the distance of two rows. The radii hold in exact arithmetic
    if the outputs are exact; `certify` counts the rounding of both.

    Args:
        outputs: of the model, (samples, classes).
        labels: (samples,).
        bound: of the same model.

    Returns:
        float64; 0 where the label is not the largest.

    Raises:
        RobustnessError: if labels and outputs do not fit, or the bound is of another model.

    Reference:
        Tsuzuku, Sato & Sugiyama (2018), arXiv:1802.04034.
    """
    differences = margins(outputs.double(), labels)
    pairs = bound.pairs
    if pairs is None or len(pairs) != outputs.shape[1]:
        held = 0 if pairs is None else len(pairs)
        raise RobustnessError(
            f"The bound is of a model with {held} classes, but outputs have {outputs.shape[1]}."
        )
    constants = pairs[labels[:, None], other_classes(outputs, labels)]
    # Two outputs whose difference never changes: any perturbation is safe, if it is positive.
    ratios = torch.where(constants > 0, differences / constants, differences.sign() * math.inf)
    return ratios.nan_to_num(nan=0.0, posinf=math.inf).amin(dim=1).clamp(min=0.0)
