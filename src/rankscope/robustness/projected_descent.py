"""Attacks that follow gradients and stay within a ball: PGD, and APGD with steps of its own."""

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from rankscope.robustness.attacks import Attack, Target
from rankscope.robustness.losses import AttackLoss, CrossEntropy, Margin

_FIRST, _SHRINK, _LEAST = 0.22, 0.03, 0.06  # of the steps: when APGD looks back
_MOMENTUM, _ENOUGH = 0.75, 0.75


def _start(target: Target, chosen: Tensor, generator: torch.Generator) -> Tensor:
    inputs, threat = target.inputs[chosen], target.threat
    drawn = threat.norm.random(target.inputs, threat.radius, generator)[chosen]
    return threat.within(inputs, inputs + drawn)


@dataclass(frozen=True)
class ProjectedDescent(Attack):
    """Steps of one length along the steepest direction, each followed by a projection (PGD).

    Args:
        steps: in each search.
        restarts: searches from different random points.
        loss: to be raised.
        seed: of the random points.
        step: length of a step, as a share of the radius.

    Reference:
        Madry et al. (2018), arXiv:1706.06083.
    """

    steps: int = 10
    restarts: int = 1
    loss: AttackLoss = field(default_factory=CrossEntropy)
    seed: int = 0
    step: float = 0.25

    def search(self, target: Target, generator: torch.Generator) -> None:
        chosen, threat = target.standing, target.threat
        points = _start(target, chosen, generator)
        for _ in range(self.steps):
            _, gradients = target.try_points(chosen, points, self.loss)
            is_left = ~target.is_broken[chosen]
            chosen, points, gradients = chosen[is_left], points[is_left], gradients[is_left]
            if len(chosen) == 0:
                return
            moved = points + self.step * threat.radius * threat.norm.steepest(gradients)
            points = threat.within(target.inputs[chosen], moved)
        target.try_points(chosen, points, self.loss)


@dataclass
class _Trail:
    """Where each sample of a search is; all have one row for each sample that stands."""

    chosen: Tensor
    before: Tensor
    points: Tensor
    gradients: Tensor
    values: Tensor
    best: Tensor
    best_values: Tensor
    best_gradients: Tensor
    steps: Tensor
    num_gains: Tensor
    has_shrunk: Tensor
    best_then: Tensor

    def keep(self, is_left: Tensor) -> None:
        """Forget the others."""
        for name, rows in vars(self).items():
            setattr(self, name, rows[is_left])


@dataclass(frozen=True)
class AutoProjectedDescent(Attack):
    """Projected steps with momentum, halved for each sample when they stop helping (APGD).

    Args:
        steps: in each search.
        restarts: searches from different random points.
        loss: to be raised.
        seed: of the random points.

    Reference:
        Croce & Hein (2020), arXiv:2003.01690, algorithm 1.
    """

    steps: int = 50
    restarts: int = 1
    loss: AttackLoss = field(default_factory=Margin)
    seed: int = 0

    def checkpoints(self) -> tuple[int, ...]:
        """After which steps it looks back whether they helped.

        Example:
            >>> AutoProjectedDescent(steps=100).checkpoints()
            (22, 41, 57, 70, 80, 87, 93, 99)
        """
        shares = [0.0, _FIRST]
        while shares[-1] < 1:
            shares.append(shares[-1] + max(shares[-1] - shares[-2] - _SHRINK, _LEAST))
        # Rounded first, as 0.57 * 100 is a little more than 57.
        found = dict.fromkeys(math.ceil(round(share * self.steps, 6)) for share in shares[1:])
        return tuple(step for step in found if step <= self.steps)

    def search(self, target: Target, generator: torch.Generator) -> None:
        trail = self._begin(target, generator)
        checkpoints, last = self.checkpoints(), 0
        for number in range(1, self.steps + 1):
            trail.keep(~target.is_broken[trail.chosen])
            if len(trail.chosen) == 0:
                return
            self._move(target, trail, momentum=1.0 if number == 1 else _MOMENTUM)
            if number in checkpoints:
                _look_back(trail, number - last)
                last = number

    def _begin(self, target: Target, generator: torch.Generator) -> _Trail:
        chosen = target.standing
        points = _start(target, chosen, generator)
        values, gradients = target.try_points(chosen, points, self.loss)
        return _Trail(
            chosen,
            points,
            points,
            gradients,
            values,
            points,
            values,
            gradients,
            torch.full_like(values, 2 * target.threat.radius),
            torch.zeros_like(values),
            torch.zeros_like(values, dtype=torch.bool),
            values,
        )

    def _move(self, target: Target, trail: _Trail, *, momentum: float) -> None:
        threat, inputs = target.threat, target.inputs[trail.chosen]
        lengths = trail.steps.view(-1, *[1] * (inputs.ndim - 1))
        climbed = threat.within(
            inputs, trail.points + lengths * threat.norm.steepest(trail.gradients)
        )
        carried = momentum * (climbed - trail.points) + (1 - momentum) * (
            trail.points - trail.before
        )
        trail.before, trail.points = trail.points, threat.within(inputs, trail.points + carried)
        values, trail.gradients = target.try_points(trail.chosen, trail.points, self.loss)
        trail.num_gains = trail.num_gains + (values > trail.values)
        trail.values = values
        is_best = values > trail.best_values
        trail.best_values = torch.where(is_best, values, trail.best_values)
        trail.best = _chosen(is_best, trail.points, trail.best)
        trail.best_gradients = _chosen(is_best, trail.gradients, trail.best_gradients)


def _look_back(trail: _Trail, num_steps: int) -> None:
    """Halve the steps of samples that gained too seldom, and go back to their best points."""
    is_stuck = trail.num_gains < _ENOUGH * num_steps
    # Steps that were not halved last time, and still nothing better came.
    is_stuck |= ~trail.has_shrunk & (trail.best_values <= trail.best_then)
    trail.steps = torch.where(is_stuck, trail.steps / 2, trail.steps)
    trail.has_shrunk, trail.best_then = is_stuck, trail.best_values
    trail.num_gains = torch.zeros_like(trail.num_gains)
    trail.points = _chosen(is_stuck, trail.best, trail.points)
    trail.before = _chosen(is_stuck, trail.best, trail.before)
    trail.gradients = _chosen(is_stuck, trail.best_gradients, trail.gradients)
    trail.values = torch.where(is_stuck, trail.best_values, trail.values)


def _chosen(condition: Tensor, yes: Tensor, no: Tensor) -> Tensor:
    return torch.where(condition.view(-1, *[1] * (yes.ndim - 1)), yes, no)
