"""Looking for perturbations that change a label: PGD, and APGD with steps of its own.

attacked = attack(model, inputs, labels, radius=36 / 255, norm=L2())
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from rankscope.errors import RobustnessError
from rankscope.modes import inference
from rankscope.progress import Progress, Report, ignore
from rankscope.robust.margins import AttackLoss, CrossEntropy, Margin, require_labels
from rankscope.robust.norms import Linf, Norm, along
from rankscope.robust.rounding import above
from rankscope.seeds import seed_of

_FIRST, _SHRINK, _LEAST = 0.22, 0.03, 0.06  # of the steps: when APGD looks back
_MOMENTUM, _ENOUGH = 0.75, 0.75


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

    def holds(self, inputs: Tensor, perturbed: Tensor) -> Tensor:
        """Whether perturbed inputs are surely within the threat, rounding included, (samples,)."""
        changes = perturbed.double() - inputs.double()
        lengths = self.norm.lengths(changes)
        if inputs.dtype is torch.float64 or not isinstance(self.norm, Linf):
            # Differences of shorter floats are exact, and so is the largest of them.
            lengths = lengths * above(1.0, changes[0].numel() + 8)
        is_near = lengths <= self.radius
        if self.pixels is None:
            return is_near
        low, high = self.pixels
        return is_near & ((perturbed >= low) & (perturbed <= high)).flatten(1).all(dim=1)


@dataclass(frozen=True, eq=False)
class Attacked:
    """The result of an attack.

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
        self.broken_inputs = inputs.clone()
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
        is_near = self.threat.holds(self.inputs[chosen], points.detach())
        is_won = (outputs.detach().argmax(dim=1) != self.labels[chosen]) & is_near
        is_new = is_won & ~self.is_broken[chosen]
        self.broken_inputs[chosen[is_new]] = points.detach()[is_new]
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
    last: Callable[[Target, torch.Generator], None] | None = None,
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
        last: what is tried in the end on samples that stand, such as `walk_edge`; None for nothing.
        batch_size: samples at a time.
        report: called after each search of each batch.

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
            if last is not None:
                last(target, torch.Generator().manual_seed(seed_of("edge", by.seed, number)))
            parts.append(target)
    broken_inputs = torch.cat([part.broken_inputs for part in parts])
    distances = threat.norm.lengths(broken_inputs.double() - inputs.double())
    return Attacked(broken_inputs, torch.cat([part.is_broken for part in parts]), distances)


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


# --- Attacks that follow gradients and stay within a ball -----------------------------------------


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
class _SearchState:
    """State of a search; all tensors have one row for each sample still searched."""

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
        """Steps after which the search checks whether the last ones helped.

        Example:
            >>> AutoProjectedDescent(steps=100).checkpoints()
            (22, 41, 57, 70, 80, 87, 93, 99)
        """
        shares = [0.0, _FIRST]
        while shares[-1] < 1:
            shares.append(shares[-1] + max(shares[-1] - shares[-2] - _SHRINK, _LEAST))
        # Rounded first, as 0.57 * 100 is a little more than 57.
        checkpoints = dict.fromkeys(math.ceil(round(share * self.steps, 6)) for share in shares[1:])
        return tuple(step for step in checkpoints if step <= self.steps)

    def search(self, target: Target, generator: torch.Generator) -> None:
        state = self._begin(target, generator)
        checkpoints, last = self.checkpoints(), 0
        for number in range(1, self.steps + 1):
            state.keep(~target.is_broken[state.chosen])
            if len(state.chosen) == 0:
                return
            self._move(target, state, momentum=1.0 if number == 1 else _MOMENTUM)
            if number in checkpoints:
                _look_back(state, number - last)
                last = number

    def _begin(self, target: Target, generator: torch.Generator) -> _SearchState:
        chosen = target.standing
        points = _start(target, chosen, generator)
        values, gradients = target.try_points(chosen, points, self.loss)
        return _SearchState(
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

    def _move(self, target: Target, state: _SearchState, *, momentum: float) -> None:
        threat, inputs = target.threat, target.inputs[state.chosen]
        lengths = along(state.steps, inputs)
        climbed = threat.within(
            inputs, state.points + lengths * threat.norm.steepest(state.gradients)
        )
        carried = momentum * (climbed - state.points) + (1 - momentum) * (
            state.points - state.before
        )
        state.before, state.points = state.points, threat.within(inputs, state.points + carried)
        values, state.gradients = target.try_points(state.chosen, state.points, self.loss)
        state.num_gains = state.num_gains + (values > state.values)
        state.values = values
        is_best = values > state.best_values
        state.best_values = torch.where(is_best, values, state.best_values)
        state.best = _where(is_best, state.points, state.best)
        state.best_gradients = _where(is_best, state.gradients, state.best_gradients)


def _look_back(state: _SearchState, num_steps: int) -> None:
    """Halve the steps of samples that gained too seldom, and go back to their best points."""
    is_stuck = state.num_gains < _ENOUGH * num_steps
    # Steps that were not halved last time, and still nothing better came.
    is_stuck |= ~state.has_shrunk & (state.best_values <= state.best_then)
    state.steps = torch.where(is_stuck, state.steps / 2, state.steps)
    state.has_shrunk, state.best_then = is_stuck, state.best_values
    state.num_gains = torch.zeros_like(state.num_gains)
    state.points = _where(is_stuck, state.best, state.points)
    state.before = _where(is_stuck, state.best, state.before)
    state.gradients = _where(is_stuck, state.best_gradients, state.gradients)
    state.values = torch.where(is_stuck, state.best_values, state.values)


def _where(condition: Tensor, yes: Tensor, no: Tensor) -> Tensor:
    return torch.where(along(condition, yes), yes, no)


# --- The very edge of a ball in the model's own floats --------------------------------------------


_ENTRIES = 2  # single entries that are moved alone, those with the largest gradients
_NUDGED = 4  # entries that are moved outwards one by one
_MOST_STEPS = 64  # inwards, by units in the last place


def walk_edge(target: Target, generator: torch.Generator) -> None:
    """Try points at the edge of the ball around every sample that stands.

    A wrong certificate fails there first, and attacks that project stay a little inside. The points
    are the furthest that can be represented: along a direction and its opposite, along single
    entries, and entry by entry a unit in the last place further out while the ball holds them.

    Args:
        target: remembers what was broken.
        generator: of the last units that are moved at random.
    """
    loss = Margin()
    chosen = target.standing
    if not len(chosen) or target.threat.radius == 0:
        return
    inputs = target.inputs
    _, gradients = target.try_points(chosen, inputs[chosen], loss)
    steepest = target.threat.norm.steepest(gradients)
    directions = [steepest, -steepest]
    order = gradients.flatten(1).abs().topk(min(_ENTRIES, gradients[0].numel()), dim=1).indices
    for place in order.T:
        single = torch.zeros_like(gradients).flatten(1)
        single[torch.arange(len(single)), place] = 1.0
        directions += [single.view_as(gradients), -single.view_as(gradients)]
    for direction in directions:
        is_left = ~target.is_broken[chosen]
        left = chosen[is_left]
        if not len(left):
            return
        points = edge_points(inputs[left], direction[is_left], target.threat)
        _, after = target.try_points(left, points, loss)
        # What the gradient says there, and the last units at random.
        moved = edge_points(inputs[left], target.threat.norm.steepest(after), target.threat)
        target.try_points(left, moved, loss)
        signs = torch.randint(-1, 2, points.shape, generator=generator).to(points)
        shaken = torch.nextafter(points, torch.where(signs == 0, points, signs * torch.inf))
        target.try_points(left, _drawn_in(inputs[left], shaken, target.threat), loss)


def edge_points(inputs: Tensor, directions: Tensor, threat: Threat) -> Tensor:
    """The furthest points within a ball along directions, in the dtype of the inputs.

    Args:
        inputs: the centres, (samples, …).
        directions: of the same shape.
        threat: the ball.
    """
    lengths = threat.norm.lengths(directions.double()).clamp(min=1e-300)
    units = directions.double() / along(lengths, inputs)
    points = (inputs.double() + threat.radius * units).to(inputs.dtype)
    points = _drawn_in(inputs, points, threat)
    largest = directions.flatten(1).abs().topk(min(_NUDGED, directions[0].numel()), dim=1)
    everywhere = torch.ones_like(directions, dtype=torch.bool)
    masks = [everywhere]
    for place in largest.indices.T:
        mask = torch.zeros_like(everywhere).flatten(1)
        mask[torch.arange(len(mask)), place] = True
        masks.append(mask.view_as(everywhere))
    for mask in masks:
        outer = torch.nextafter(points, directions.sign() * torch.inf)
        outer = torch.where(mask & (directions != 0), outer, points)
        points = _where(threat.holds(inputs, outer), outer, points)
    return points


def _drawn_in(inputs: Tensor, points: Tensor, threat: Threat) -> Tensor:
    """Points moved towards their centres, a unit in the last place at a time, until they fit."""
    if threat.pixels is not None:
        points = points.clamp(*threat.pixels)
    for _ in range(_MOST_STEPS):
        is_held = threat.holds(inputs, points)
        if bool(is_held.all()):
            return points
        points = _where(is_held, points, torch.nextafter(points, inputs))
    return threat.within(inputs, points)
