"""Ways to prove that no perturbation changes a label.

Every method proves two things in one go: that the label stays in exact arithmetic on the model's
weights, and that it stays in the model's own floats, by any order of summation (`rounding`).
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from rankscope.errors import RobustnessError
from rankscope.progress import Progress, Report, ignore
from rankscope.reading.trace import Value
from rankscope.robust.attacks import Threat
from rankscope.robust.bounds import (
    Ball,
    Below,
    Box,
    propagate_intervals,
    rounding_share,
    unit_spreads,
)
from rankscope.robust.forms import TransferFunction
from rankscope.robust.graph import Graph
from rankscope.robust.linear_bounds import lower_bounds, propagate_linear_bounds
from rankscope.robust.lipschitz import LipschitzWalk, require_scale
from rankscope.robust.margins import other_classes
from rankscope.robust.networks import LipschitzNetwork
from rankscope.robust.rounding import above
from rankscope.robust.transfer import read_transfer_functions

_BATCH_SIZE = 16
_DECLARED = 1e-3  # what may be missing of a declared constant: float32, and bounds that add up
_OWN_FLOATS = (
    "certified: in the model's own floats on a processor, sums in any order, with or without fused "
    "multiply-adds; direct convolutions (no Winograd, no Fourier); library functions to "
    "16 roundings"
)
_EXACT = "certified_exact_arithmetic: in exact arithmetic on the model's weights"
_KERNELS = "kernels built from parameters are those that this machine builds in the model's floats"
_ROUNDED = (_OWN_FLOATS, _EXACT, _KERNELS)
# Of the widths of boxes: from here on the bounds are computed again without the rounding.
_NOTICEABLE = 0.01


@dataclass(frozen=True, eq=False)
class Proof:
    """The result of a certification method on samples.

    Args:
        holds: (threats, samples), whether the label is proved to stay in the model's own floats.
        lipschitz: the bound that was used, or None.
        assumptions: what must hold for it.
        holds_exactly: the same in exact arithmetic on the model's weights; None if that is not
            more.
        arithmetic: the floats for which it holds, such as float32; None if that is not known.
    """

    holds: Tensor
    lipschitz: float | None
    assumptions: tuple[str, ...]
    holds_exactly: Tensor | None = None
    arithmetic: str | None = None


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
        require_scale(self.scale)
        walk = LipschitzWalk(model, shape, scale=self.scale)
        bound = walk.bound
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
        radii = [
            above(threat.radius * threat.norm.euclidean(math.prod(shape)), 4) for threat in threats
        ]
        is_right = samples.outputs.argmax(dim=1) == samples.labels
        with torch.no_grad():
            exact, floats = walk.margins(samples.inputs, samples.labels, radii)
        holds, holds_exactly = ((below > 0).all(dim=2) & is_right for below in (floats, exact))
        assumed = (*bound.assumptions, *_ROUNDED)
        return Proof(holds, bound.value, assumed, holds_exactly, walk.graph.arithmetic)


@dataclass(frozen=True)
class BoundPropagation(Method):
    """Lower bounds on margins over the whole ball, for networks of any layers that are known."""

    @abstractmethod
    def boxes(
        self,
        graph: Graph,
        transfers: tuple[TransferFunction, ...],
        ball: Ball,
        spreads: Mapping[Value, Tensor],
    ) -> dict[Value, Box]:
        """Bounds on every value."""

    def below(
        self,
        graph: Graph,
        transfers: tuple[TransferFunction, ...],
        ball: Ball,
        boxes: Mapping[Value, Box],
        rows: Tensor,
    ) -> Below:
        """A lower bound on rows · output, (batch, rows), from bounds on every value."""
        return lower_bounds(graph, transfers, ball, boxes, rows, through_curves=False)

    def bounds(
        self,
        graph: Graph,
        transfers: tuple[TransferFunction, ...],
        ball: Ball,
        spreads: Mapping[Value, Tensor],
        rows: Tensor,
    ) -> Below:
        """A lower bound on rows · output, (batch, rows), in both arithmetics.

        Where rounding widens the bounds on values noticeably, and the bound is not positive, what
        holds in exact arithmetic is computed again without it.
        """
        boxes = self.boxes(graph, transfers, ball, spreads)
        below = self.below(graph, transfers, ball, boxes, rows)
        again = ~(below.exact > 0).all(dim=1) & (rounding_share(boxes) > _NOTICEABLE)
        chosen = again.nonzero().flatten()
        if not len(chosen):
            return below
        part = replace(ball, centres=ball.centres[chosen], is_exact=True)
        boxes = self.boxes(graph, transfers, part, spreads)
        rows = rows[chosen] if len(rows) > 1 else rows
        exact = below.exact.clone()
        exact[chosen] = self.below(graph, transfers, part, boxes, rows).exact
        return Below(exact, below.floats)

    def prove(
        self,
        model: nn.Module,
        samples: Samples,
        threats: Sequence[Threat],
        report: Report = ignore,
    ) -> Proof:
        shape = tuple(samples.inputs.shape[1:])
        graph, transfers = read_transfer_functions(model, shape, precise=True, reader=self.name)
        is_right = samples.outputs.argmax(dim=1) == samples.labels
        holds = torch.zeros(len(threats), len(samples.labels), dtype=torch.bool)
        holds_exactly = holds.clone()
        batches = [
            (at, chosen)
            for at in range(len(threats))
            for chosen in torch.split(is_right.nonzero().flatten(), _BATCH_SIZE)
        ]
        with torch.no_grad():
            spreads = unit_spreads(graph, transfers, threats[0].norm)
            for done, (at, chosen) in enumerate(batches, start=1):
                threat, inputs = threats[at], samples.inputs[chosen].double()
                ball = Ball(inputs, threat.radius, threat.norm, threat.pixels)
                rows = _margin_rows(samples.outputs[chosen], samples.labels[chosen])
                below = self.bounds(graph, transfers, ball, spreads, rows)
                holds[at, chosen] = (below.floats > 0).all(dim=1)
                holds_exactly[at, chosen] = (below.exact > 0).all(dim=1)
                report(Progress("certifying", done, len(batches)))
        assumed = ("inference mode", "bounds in float64, rounded outwards", *_ROUNDED)
        return Proof(holds, None, assumed, holds_exactly, graph.arithmetic)


@dataclass(frozen=True)
class Intervals(BoundPropagation):
    """Interval bound propagation: fast, and loose for networks that were not trained for it."""

    @property
    def name(self) -> str:
        return "intervals"

    def boxes(
        self,
        graph: Graph,
        transfers: tuple[TransferFunction, ...],
        ball: Ball,
        spreads: Mapping[Value, Tensor],
    ) -> dict[Value, Box]:
        return propagate_intervals(graph, transfers, ball, spreads)


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

    def boxes(
        self,
        graph: Graph,
        transfers: tuple[TransferFunction, ...],
        ball: Ball,
        spreads: Mapping[Value, Tensor],
    ) -> dict[Value, Box]:
        propagate = propagate_intervals if self.inner_intervals else propagate_linear_bounds
        return propagate(graph, transfers, ball, spreads)

    def below(
        self,
        graph: Graph,
        transfers: tuple[TransferFunction, ...],
        ball: Ball,
        boxes: Mapping[Value, Box],
        rows: Tensor,
    ) -> Below:
        near = super().below(graph, transfers, ball, boxes, rows)
        return near.maximum(lower_bounds(graph, transfers, ball, boxes, rows))


def _margin_rows(outputs: Tensor, labels: Tensor) -> Tensor:
    """Rows whose products with outputs are the margins, (samples, classes - 1, classes)."""
    unit = torch.eye(outputs.shape[1], dtype=torch.float64)
    return unit[labels][:, None] - unit[other_classes(outputs, labels)]
