"""Looking for perturbations that change a label: what is common to all attacks.

attacked = attack(model, inputs, labels, radius=36 / 255, norm=L2())
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from rankscope.errors import RobustnessError
from rankscope.modes import inference
from rankscope.progress import Progress, Report, ignore
from rankscope.robustness.losses import AttackLoss
from rankscope.robustness.margins import require_labels
from rankscope.robustness.norms import Norm
from rankscope.seeds import seed_of


@dataclass(frozen=True)
class Threat:
    """What an attacker may do to a sample.

    Args:
        radius: of a perturbation, at most.
        norm: that it is measured in.
        pixels: smallest and largest value of an entry; None if there is no limit.

    Raises:
        RobustnessError: if the radius is negative or not finite.
    """

    radius: float
    norm: Norm
    pixels: tuple[float, float] | None = (0.0, 1.0)

    def __post_init__(self) -> None:
        if not 0 <= self.radius < float("inf"):
            raise RobustnessError(f"A radius must be 0 or more, and finite, got {self.radius}.")

    def within(self, inputs: Tensor, perturbed: Tensor) -> Tensor:
        """The nearest inputs that are allowed; clamping never moves away from a sample."""
        near = inputs + self.norm.projected(perturbed - inputs, self.radius)
        return near if self.pixels is None else near.clamp(*self.pixels)


@dataclass(frozen=True, eq=False)
class Attacked:
    """What an attack found.

    Args:
        inputs: perturbed where that changed the label or began with another one, else as given.
        is_broken: whether the label is lost, (samples,).
        distances: of the perturbed inputs, in float64.
    """

    inputs: Tensor
    is_broken: Tensor
    distances: Tensor

    @property
    def accuracy(self) -> float:
        """The share of samples that keep their label."""
        return float((~self.is_broken).double().mean())


class Target:
    """A batch of samples under attack: remembers what was broken, and by which perturbation."""

    def __init__(self, model: nn.Module, inputs: Tensor, labels: Tensor, threat: Threat) -> None:
        self.inputs, self.labels, self.threat = inputs, labels, threat
        self._model = model
        self.found = inputs.clone()
        with torch.no_grad():
            outputs = model(inputs)
        require_labels(outputs, labels)
        self.is_broken = outputs.argmax(dim=1) != labels

    @property
    def standing(self) -> Tensor:
        """The samples that still have their label, by number."""
        return torch.nonzero(~self.is_broken).flatten()

    def try_points(self, chosen: Tensor, points: Tensor, loss: AttackLoss) -> tuple[Tensor, Tensor]:
        """The loss of points and its gradients; those that break a sample are kept.

        Args:
            chosen: which samples the points belong to.
            points: within the threat, or they do not count.
            loss: to be raised.
        """
        points = points.detach().clone()
        points.requires_grad = True
        with torch.enable_grad():
            outputs = self._model(points)
            values = loss(outputs, self.labels[chosen])
            (gradients,) = torch.autograd.grad(values.sum(), points)
        changes = points.detach().double() - self.inputs[chosen].double()
        is_near = self.threat.norm.lengths(changes) <= self.threat.radius
        is_won = (outputs.detach().argmax(dim=1) != self.labels[chosen]) & is_near
        is_new = is_won & ~self.is_broken[chosen]
        self.found[chosen[is_new]] = points.detach()[is_new]
        self.is_broken[chosen[is_new]] = True
        return values.detach(), gradients


@dataclass(frozen=True)
class Attack(ABC):
    """A way of looking for perturbations, several times over. Subclasses are frozen.

    Args:
        steps: in each search.
        restarts: searches from different random points, for samples that stand until then.
        loss: to be raised.
        seed: of the random points.
    """

    steps: int
    restarts: int
    loss: AttackLoss
    seed: int

    def __post_init__(self) -> None:
        if min(self.steps, self.restarts) < 1:
            raise RobustnessError(
                f"{type(self).__name__}: steps and restarts must be at least 1, got {self.steps} "
                f"and {self.restarts}."
            )

    @abstractmethod
    def search(self, target: Target, generator: torch.Generator) -> None:
        """One search, on the samples that stand."""


def attack(  # noqa: PLR0913 - the parts of an attack, all by name
    model: nn.Module,
    inputs: Tensor,
    labels: Tensor,
    threat: Threat,
    *,
    by: Attack,
    batch_size: int = 256,
    report: Report = ignore,
) -> Attacked:
    """Look for perturbations that change labels; the model is attacked in inference mode.

    Args:
        model: a classifier.
        inputs: (samples, …), within the range of pixels.
        labels: (samples,).
        threat: what is allowed.
        by: the attack.
        batch_size: samples at a time.
        report: told after each search of each batch.

    Raises:
        RobustnessError: if labels or inputs do not fit.
    """
    require_pixels(inputs, threat.pixels)
    parts = []
    starts = range(0, len(inputs), batch_size)
    with inference(model):
        for number, start in enumerate(starts):
            chosen = slice(start, start + batch_size)
            target = Target(model, inputs[chosen], labels[chosen], threat)
            for restart in range(by.restarts):
                seed = seed_of("attack", by.seed, restart, number)
                if threat.radius > 0 and len(target.standing):
                    by.search(target, torch.Generator().manual_seed(seed))
                done = number * by.restarts + restart + 1
                report(Progress("attacking", done, len(starts) * by.restarts))
            parts.append(target)
    found = torch.cat([part.found for part in parts])
    distances = threat.norm.lengths(found.double() - inputs.double())
    return Attacked(found, torch.cat([part.is_broken for part in parts]), distances)


def require_pixels(inputs: Tensor, pixels: tuple[float, float] | None) -> None:
    """Refuse inputs outside of the range: clamping would move them without any attack.

    Raises:
        RobustnessError: if there are such, or none at all.
    """
    if len(inputs) == 0:
        raise RobustnessError("There must be at least one sample, got 0.")
    lowest, highest = float(inputs.min()), float(inputs.max())
    if pixels is not None and not pixels[0] <= lowest <= highest <= pixels[1]:
        raise RobustnessError(
            f"Inputs must lie within {pixels[0]} to {pixels[1]}, got {lowest:.4g} to "
            f"{highest:.4g}; put the scaling into the model, or name another range of pixels."
        )
