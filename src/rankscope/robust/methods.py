"""Ways to prove that no perturbation changes a label."""

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from rankscope.errors import RobustnessError
from rankscope.progress import Progress, Report, ignore
from rankscope.reading.trace import Value
from rankscope.robust.attacks import Threat
from rankscope.robust.bounds import (
    Ball,
    lower_bounds,
    propagate_intervals,
    propagate_linear_bounds,
    unit_spreads,
)
from rankscope.robust.graph import Graph
from rankscope.robust.lipschitz import certified_radii, lipschitz_bound
from rankscope.robust.margins import other_classes, rounding
from rankscope.robust.networks import LipschitzNetwork
from rankscope.robust.transfer import TransferFunction, read_transfer_functions

_BATCH_SIZE = 16
_DECLARED = 1e-3  # what may be missing of a declared constant: float32, and bounds that add up
_ROUNDED = "margins are lowered by 16 units of rounding of the largest output"


@dataclass(frozen=True, eq=False)
class Proof:
    """The result of a certification method on samples.

    Args:
        holds: (threats, samples), whether the label is proved to stay.
        lipschitz: the bound that was used, or None.
        assumptions: what must hold for it.
    """

    holds: Tensor
    lipschitz: float | None
    assumptions: tuple[str, ...]


@dataclass(frozen=True)
class Method(ABC):
    """A way to certify. Subclasses are frozen."""

    @property
    @abstractmethod
    def name(self) -> str:
        """Name of the method on the command line."""

    @abstractmethod
    def prove(
        self,
        model: nn.Module,
        samples: "Samples",
        threats: Sequence[Threat],
        report: Report = ignore,
    ) -> Proof:
        """Decide for every threat and every sample; labels that are wrong are never certified."""


@dataclass(frozen=True, eq=False)
class Samples:
    """Inputs, their labels, and the model's outputs for them."""

    inputs: Tensor
    labels: Tensor
    outputs: Tensor


@dataclass(frozen=True)
class Lipschitz(Method):
    """Margins over Lipschitz constants.

    Args:
        scale: by which inputs are multiplied before they reach the model.
        declared: what the constant should be by construction, without the scale; None for what the
            model itself says, if it is a `LipschitzNetwork`. A model whose measured bound is above
            it is refused: a weight is not what it should be.

    Raises:
        RobustnessError: if the measured bound is above what was declared.
    """

    scale: float = 1.0
    declared: float | None = None

    @property
    def name(self) -> str:
        return "lipschitz"

    def prove(
        self,
        model: nn.Module,
        samples: Samples,
        threats: Sequence[Threat],
        report: Report = ignore,
    ) -> Proof:
        del report
        shape = tuple(samples.inputs.shape[1:])
        bound = lipschitz_bound(model, shape, scale=self.scale)
        declared = self.declared
        if declared is None and isinstance(model, LipschitzNetwork):
            declared = model.lipschitz_constant
        if declared is not None and bound.value > declared * self.scale * (1 + _DECLARED):
            steepest = max(bound.steps, key=lambda step: max(step.constants))
            raise RobustnessError(
                f"{type(model).__name__} should have a Lipschitz constant of {declared:.6g}, "
                f"but its weights bound it only by {bound.value:.6g}; the largest single constant "
                f"is {max(steepest.constants):.6g}, of {steepest.name}."
            )
        radii = certified_radii(samples.outputs, samples.labels, bound)
        holds = [
            radii > threat.radius * threat.norm.euclidean(math.prod(shape)) for threat in threats
        ]
        return Proof(torch.stack(holds), bound.value, (*bound.assumptions, _ROUNDED))


@dataclass(frozen=True)
class BoundPropagation(Method):
    """Lower bounds on margins over the whole ball, for networks of any layers that are known."""

    @abstractmethod
    def bounds(
        self,
        graph: Graph,
        transfers: tuple[TransferFunction, ...],
        ball: Ball,
        spreads: Mapping[Value, Tensor],
        rows: Tensor,
    ) -> Tensor:
        """A lower bound on rows · output, (batch, rows)."""

    def prove(
        self,
        model: nn.Module,
        samples: Samples,
        threats: Sequence[Threat],
        report: Report = ignore,
    ) -> Proof:
        double = copy.deepcopy(model).double()
        shape = tuple(samples.inputs.shape[1:])
        graph, transfers = read_transfer_functions(
            double, shape, dtype=torch.float64, reader=self.name
        )
        spreads = unit_spreads(graph, transfers, threats[0].norm)
        is_right = samples.outputs.argmax(dim=1) == samples.labels
        slack = rounding(samples.outputs)
        holds = torch.zeros(len(threats), len(samples.labels), dtype=torch.bool)
        batches = [
            (at, chosen)
            for at in range(len(threats))
            for chosen in torch.split(is_right.nonzero().flatten(), _BATCH_SIZE)
        ]
        with torch.no_grad():
            for done, (at, chosen) in enumerate(batches, start=1):
                threat, inputs = threats[at], samples.inputs[chosen].double()
                ball = Ball(inputs, threat.radius, threat.norm, threat.pixels)
                rows = _margin_rows(samples.outputs[chosen], samples.labels[chosen])
                below = self.bounds(graph, transfers, ball, spreads, rows)
                holds[at, chosen] = (below > slack[chosen]).all(dim=1)
                report(Progress("certifying", done, len(batches)))
        return Proof(holds, None, ("inference mode", "bounds in float64", _ROUNDED))


@dataclass(frozen=True)
class Intervals(BoundPropagation):
    """Interval bound propagation: fast, and loose for networks that were not trained for it."""

    @property
    def name(self) -> str:
        return "intervals"

    def bounds(
        self,
        graph: Graph,
        transfers: tuple[TransferFunction, ...],
        ball: Ball,
        spreads: Mapping[Value, Tensor],
        rows: Tensor,
    ) -> Tensor:
        boxes = propagate_intervals(graph, transfers, ball, spreads)
        return lower_bounds(graph, transfers, ball, boxes, rows, through_curves=False)


@dataclass(frozen=True)
class LinearBounds(BoundPropagation):
    """Linear bounds, propagated backwards from the margins (CROWN), never worse than intervals.

    Args:
        inner_intervals: whether what goes into curves is bounded by intervals only; much faster
            for wide layers, and looser.
    """

    inner_intervals: bool = False

    @property
    def name(self) -> str:
        return "linear-bounds"

    def bounds(
        self,
        graph: Graph,
        transfers: tuple[TransferFunction, ...],
        ball: Ball,
        spreads: Mapping[Value, Tensor],
        rows: Tensor,
    ) -> Tensor:
        propagate = propagate_intervals if self.inner_intervals else propagate_linear_bounds
        boxes = propagate(graph, transfers, ball, spreads)
        return torch.maximum(
            lower_bounds(graph, transfers, ball, boxes, rows, through_curves=False),
            lower_bounds(graph, transfers, ball, boxes, rows),
        )


def _margin_rows(outputs: Tensor, labels: Tensor) -> Tensor:
    """Rows whose products with outputs are the margins, (samples, classes - 1, classes)."""
    unit = torch.eye(outputs.shape[1], dtype=torch.float64)
    return unit[labels][:, None] - unit[other_classes(outputs, labels)]
