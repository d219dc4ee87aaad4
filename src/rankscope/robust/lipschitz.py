"""How far apart two outputs can be, for inputs at a distance of 1: an upper bound for any model.

lipschitz_bound(nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2)), (4,)).value
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from rankscope.errors import RobustnessError
from rankscope.reading.trace import Value
from rankscope.robust.graph import Graph, Node, sample_shape
from rankscope.robust.margins import margins, other_classes, rounding
from rankscope.robust.transfer import TransferFunction, read_transfer_functions

_ASSUMPTIONS = (
    "inference mode",
    "Euclidean norms",
    "operations in exact arithmetic; the norms of weights are float64 upper bounds",
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
    if not (math.isfinite(scale) and scale > 0):
        raise RobustnessError(f"lipschitz_bound: the scale must be positive, got {scale}.")
    require_finite(model)
    graph, transfers = read_transfer_functions(model, input_shape)
    reaches = {graph.input: _Reach(scale, graph.input)}
    steps = []
    for node, transfer in zip(graph.nodes, transfers, strict=True):
        growth = transfer.growth()
        reach = _reach_of(node, transfer, growth, reaches)
        reaches[node.output] = reach
        steps.append(Step(node.name, transfer.rule, growth, reach.constant))
    value = reaches[graph.output].constant
    pairs = _pairs(graph, value, {key: reach.constant for key, reach in reaches.items()})
    scaled = () if scale == 1 else (f"inputs are multiplied by {scale:.6g} before the model",)
    return LipschitzBound(value, pairs, tuple(steps), (*_ASSUMPTIONS, *scaled))


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
        return _Reach(growth[0] * inputs[0].constant, value, picked, growth[0])
    if len(inputs) == 1:
        before = inputs[0]
        constant, since = growth[0] * before.constant, growth[0] * before.since
        return _Reach(constant, before.base, before.picked, since)
    constants = [g * reach.constant for g, reach in zip(growth, inputs, strict=True)]
    if not transfer.is_joint:
        return _Reach(sum(constants), node.output)
    joined = math.hypot(*constants)
    if _are_apart(inputs):
        # Different entries of one value: what moves one of the parts is not left for the others.
        largest = max(g * reach.since for g, reach in zip(growth, inputs, strict=True))
        joined = min(joined, largest * reaches[inputs[0].base].constant)
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
    pairs = torch.full((count, count), math.sqrt(2) * value, dtype=torch.float64)
    last = graph.nodes[-1] if graph.nodes else None
    if last is None or last.kind != "linear":
        return pairs
    weight = last["weight"].detach().double()
    rows = torch.linalg.vector_norm(weight[:, None] - weight[None], dim=2) * (1 + 1e-12)
    return torch.minimum(pairs, constants[last.inputs[0]] * rows)


def certified_radii(outputs: Tensor, labels: Tensor, bound: LipschitzBound) -> Tensor:
    r"""Euclidean radii within which no input has another label, (samples,).

    .. math:: \min_{i \ne y} \frac{f_y - f_i}{L_{y i}}, \qquad L_{y i} \le \sqrt 2 L

    with :math:`L_{y i}` of the difference of two outputs: if the last operation is a product with a
    matrix, that of the features times the distance of two rows. Margins are lowered by what
    rounding may have added.

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
    differences = margins(outputs.double(), labels) - rounding(outputs)
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
