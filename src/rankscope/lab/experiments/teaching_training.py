"""Small trainings that topics explain: dead units, regularizers, augmentation, skips."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from rankscope.errors import TrainingError
from rankscope.lab.constructions.blocks import (
    EarlyStopping,
    branches,
    compose,
    dropout,
    l2_penalty,
    soft_threshold,
)
from rankscope.lab.constructions.dead_units import DeadUnits, dead_units

# Units that die while a network learns: the longer the steps, the more of them.


DYING_WIDTH, NUM_DYING_POINTS = 64, 400
RADIUS_SQUARED = 2 / torch.pi  # half of the points of the square are inside


@dataclass(frozen=True)
class DeadRun:
    """How many hidden units are dead before and after training.

    Args:
        before: at the first weights.
        after: at the last.
        accuracy: on the points of training, at the end.
    """

    before: DeadUnits
    after: DeadUnits
    accuracy: float


def train_until_dead(*, rate: float, steps: int = 300, seed: int = 0) -> DeadRun:
    """Teach a circle to one hidden layer by gradient descent, and count units before and after.

    Raises:
        TrainingError: if the rate is not positive.
    """
    if rate <= 0:
        raise TrainingError(f"train_until_dead needs a positive rate, got {rate:g}.")
    generator = torch.Generator().manual_seed(seed)
    points = 2 * torch.rand(NUM_DYING_POINTS, 2, generator=generator, dtype=torch.float64) - 1
    labels = (points.square().sum(dim=1, keepdim=True) < RADIUS_SQUARED).double()
    network = nn.Sequential(
        nn.Linear(2, DYING_WIDTH), nn.ReLU(), nn.Linear(DYING_WIDTH, 1)
    ).double()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.uniform_(-0.7, 0.7, generator=generator)
    before = dead_units(network, points)
    optimizer = torch.optim.SGD(network.parameters(), lr=rate)
    for _ in range(steps):
        optimizer.zero_grad()
        loss = nn.functional.binary_cross_entropy_with_logits(network(points), labels)
        torch.autograd.backward(loss)
        optimizer.step()
    with torch.no_grad():
        is_right = (network(points) > 0) == (labels > 0)
    return DeadRun(before, dead_units(network, points), float(is_right.double().mean()))


# A small network that learns noise by heart, and what regularizers do about it.


NUM_INPUTS, NUM_POINTS, NUM_TEST = 20, 40, 400
WIDTH, RATE, NOISE = 64, 0.05, 0.5
EVERY = 5  # steps between two looks at the losses


@dataclass(frozen=True, eq=False)
class NoisyRegression:
    """Points with noisy values, and points with true ones: only three inputs of 20 matter."""

    inputs: Tensor
    goals: Tensor
    test_inputs: Tensor
    test_goals: Tensor

    @classmethod
    def made(cls, generator: torch.Generator) -> "NoisyRegression":
        """Made-up data; the hidden rule is sin(x1) + x2 x3 / 2."""
        inputs = _normal(NUM_POINTS + NUM_TEST, NUM_INPUTS, generator=generator)
        goals = (inputs[:, 0].sin() + inputs[:, 1] * inputs[:, 2] / 2)[:, None]
        noise = NOISE * _normal(NUM_POINTS, 1, generator=generator)
        return cls(
            inputs[:NUM_POINTS],
            goals[:NUM_POINTS] + noise,
            inputs[NUM_POINTS:],
            goals[NUM_POINTS:],
        )


@dataclass(frozen=True)
class Regularizer:
    """A change of the training; this one changes nothing."""

    @property
    def name(self) -> str:
        """A few words."""
        return "nothing"

    def penalty(self, weights: list[Tensor]) -> Tensor:
        """Added to the loss."""
        return weights[0].new_zeros(())

    def before_step(self, weights: list[Tensor]) -> None:
        """Changes weights in place when gradients are known, before they are subtracted."""

    def after_step(self, weights: list[Tensor]) -> None:
        """Changes weights in place after each step."""

    def hidden(self, values: Tensor, generator: torch.Generator) -> Tensor:
        """Changes the hidden layer while training."""
        del generator
        return values

    def chosen(self, held_out: list[float]) -> int:
        """Which of the networks that were looked at is kept; the last."""
        return len(held_out) - 1


@dataclass(frozen=True)
class L1(Regularizer):
    """Absolute values, by soft thresholding after each step: weights become exactly zero."""

    strength: float = 0.02

    @property
    def name(self) -> str:
        """Name in the table."""
        return "L1"

    def after_step(self, weights: list[Tensor]) -> None:
        """Move every weight towards zero."""
        for weight in weights:
            weight.copy_(soft_threshold(weight, RATE * self.strength))


@dataclass(frozen=True)
class L2(Regularizer):
    """Squares, added to the loss."""

    strength: float = 0.05

    @property
    def name(self) -> str:
        """Name in the table."""
        return "L2"

    def penalty(self, weights: list[Tensor]) -> Tensor:
        """Half the sum of squares."""
        return self.strength * l2_penalty(weights)


@dataclass(frozen=True)
class WeightDecay(Regularizer):
    """Weights are multiplied by a number below one; with plain steps this is L2."""

    strength: float = 0.05

    @property
    def name(self) -> str:
        """Name in the table."""
        return "weight decay"

    def before_step(self, weights: list[Tensor]) -> None:
        """Shrink."""
        for weight in weights:
            weight.mul_(1 - RATE * self.strength)


@dataclass(frozen=True)
class Dropout(Regularizer):
    """Half of the hidden units are left out, others each time."""

    probability: float = 0.5

    @property
    def name(self) -> str:
        """Name in the table."""
        return "dropout"

    def hidden(self, values: Tensor, generator: torch.Generator) -> Tensor:
        """Drop units."""
        is_kept = torch.rand(values.shape, generator=generator) >= self.probability
        return dropout(values, is_kept, probability=self.probability)


@dataclass(frozen=True)
class Stopping(Regularizer):
    """Training ends when the held-out loss was looked at some times and has not fallen."""

    patience: int = 10

    @property
    def name(self) -> str:
        """Name in the table."""
        return "early stopping"

    def chosen(self, held_out: list[float]) -> int:
        """The best one that was seen."""
        return EarlyStopping(self.patience).best_step(held_out)


REGULARIZERS = (Regularizer(), L1(), L2(), WeightDecay(), Dropout(), Stopping())


@dataclass(frozen=True)
class Trained:
    """The result of a training run.

    Args:
        steps: after which it was looked at.
        train_losses: mean squared error on the noisy points.
        test_losses: the same on other points, without noise.
        kept: which of the looks was at the network that is kept.
        zeros: share of first-layer weights that are exactly zero at the end.
    """

    steps: tuple[int, ...]
    train_losses: tuple[float, ...]
    test_losses: tuple[float, ...]
    kept: int
    zeros: float


def train(regularizer: Regularizer, *, steps: int = 300, seed: int = 0) -> Trained:
    """Gradient descent on one hidden layer; data and first weights follow from the seed.

    Early stopping looks at a fifth of the other points, which do not count for the test.
    """
    generator = torch.Generator().manual_seed(seed)
    problem = NoisyRegression.made(generator)
    layers = _layers(generator)
    weights = [layer.weight for layer in layers]
    choices = torch.Generator().manual_seed(seed + 1)
    optimizer = torch.optim.SGD([p for layer in layers for p in layer.parameters()], lr=RATE)
    losses = [_losses(layers, problem)]
    for step in range(1, steps + 1):
        hidden = regularizer.hidden(layers[0](problem.inputs).relu(), choices)
        loss = (layers[1](hidden) - problem.goals).square().mean()
        optimizer.zero_grad()
        torch.autograd.backward(loss + regularizer.penalty(weights))
        with torch.no_grad():
            regularizer.before_step(weights)
            optimizer.step()
            regularizer.after_step(weights)
        if step % EVERY == 0:
            losses.append(_losses(layers, problem))
    trained, tested, held_out = (list(column) for column in zip(*losses, strict=True))
    looks = tuple(range(0, steps + 1, EVERY))
    zeros = float((weights[0] == 0).double().mean())
    return Trained(looks, tuple(trained), tuple(tested), regularizer.chosen(held_out), zeros)


def _layers(generator: torch.Generator) -> tuple[nn.Linear, nn.Linear]:
    first = nn.Linear(NUM_INPUTS, WIDTH, dtype=torch.float64)
    last = nn.Linear(WIDTH, 1, dtype=torch.float64)
    with torch.no_grad():
        for layer in (first, last):
            layer.weight.copy_(_normal(*layer.weight.shape, generator=generator))
            layer.weight.mul_((2 / layer.in_features) ** 0.5)
            layer.bias.zero_()
    return first, last


def _losses(
    layers: tuple[nn.Linear, nn.Linear], problem: NoisyRegression
) -> tuple[float, float, float]:
    with torch.no_grad():
        result = layers[1](layers[0](problem.inputs).relu())
        elsewhere = layers[1](layers[0](problem.test_inputs).relu())
        errors = (elsewhere - problem.test_goals).square()
        is_held_out = torch.arange(NUM_TEST) % 5 == 0
        return (
            float((result - problem.goals).square().mean()),
            float(errors[~is_held_out].mean()),
            float(errors[is_held_out].mean()),
        )


def _normal(*shape: int, generator: torch.Generator) -> Tensor:
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


# Examples that are moved while a network learns: it then knows them wherever they stand.


LENGTH, NUM_PATTERNS, NUM_EXAMPLES = 16, 4, 40
MOVED_NOISE, MOVED_WIDTH, MOVED_RATE = 0.5, 32, 0.01
FARTHEST = 4  # that test patterns are moved


def add_spread_copies(inputs: Tensor, goals: Tensor, spread: float) -> tuple[Tensor, Tensor]:
    """Every example moved by ± spread √d along each of d axes: noise of mean 0 and this spread.

    Least squares on the copies is least squares on the examples with the penalty spread² |w|².
    """
    num_examples, size = inputs.shape
    moves = spread * size**0.5 * torch.cat([torch.eye(size), -torch.eye(size)]).to(inputs.dtype)
    copies = (inputs[:, None] + moves).reshape(-1, size)
    return copies, goals.repeat_interleave(len(copies) // num_examples)


@dataclass(frozen=True)
class MovedRun:
    """What a network knows of patterns that were moved.

    Args:
        moves: how far test patterns were moved along a circle of 16 places.
        accuracies: for each move.
    """

    moves: tuple[int, ...]
    accuracies: tuple[float, ...]


def train_moved(*, farthest: int, steps: int = 200, seed: int = 0) -> MovedRun:
    """Teach four noisy patterns, each moved by up to `farthest` places anew in every step.

    Raises:
        TrainingError: if there is no step, or the moves are below 0.
    """
    if steps < 1 or farthest < 0:
        raise TrainingError(
            f"train_moved needs 1 or more steps and moves of 0 or more, got {steps}, {farthest}."
        )
    generator = torch.Generator().manual_seed(seed)
    patterns = _normal(NUM_PATTERNS, LENGTH, generator=generator)
    patterns[:, LENGTH // 2 :] = 0.0
    labels = torch.arange(NUM_EXAMPLES) % NUM_PATTERNS
    noise = MOVED_NOISE * _normal(2 * NUM_EXAMPLES, LENGTH, generator=generator)
    inputs, others = (
        patterns[labels] + noise[:NUM_EXAMPLES],
        patterns[labels] + noise[NUM_EXAMPLES:],
    )
    network = nn.Sequential(
        nn.Linear(LENGTH, MOVED_WIDTH), nn.ReLU(), nn.Linear(MOVED_WIDTH, NUM_PATTERNS)
    ).double()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.uniform_(-0.3, 0.3, generator=generator)
    optimizer = torch.optim.Adam(network.parameters(), lr=MOVED_RATE)
    for _ in range(steps):
        moves = torch.randint(-farthest, farthest + 1, (NUM_EXAMPLES,), generator=generator)
        places = (torch.arange(LENGTH) - moves[:, None]) % LENGTH
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(network(inputs.gather(1, places)), labels)
        torch.autograd.backward(loss)
        optimizer.step()
    moves_tried = tuple(range(-FARTHEST, FARTHEST + 1))
    with torch.no_grad():
        accuracies = tuple(
            float((network(others.roll(move, 1)).argmax(1) == labels).double().mean())
            for move in moves_tried
        )
    return MovedRun(moves_tried, accuracies)


# Deep networks with and without skip connections: gradients at the start, and what is learned.


DEEP_WIDTH, NUM_SPIRAL_POINTS, DEEP_RATE = 16, 256, 0.01
# Branches that start small, as usual: with skips the signal then neither fades nor grows.
GAIN = 0.7


@dataclass(frozen=True)
class DeepRun:
    """The first gradients of a deep network, and what it learned.

    Args:
        losses: cross-entropy before each step and after the last.
        accuracy: on its own points, at the end.
        first_gradients: norm of the first gradient of each branch's first matrix, input first.
    """

    losses: tuple[float, ...]
    accuracy: float
    first_gradients: tuple[float, ...]


def train_deep(*, depth: int, with_skips: bool, steps: int = 100, seed: int = 0) -> DeepRun:
    """Teach two interleaved spirals to a network of `depth` branches, in full batches with Adam.

    Raises:
        TrainingError: if there is no step.
    """
    if steps < 1:
        raise TrainingError(f"train_deep needs 1 or more steps, got {steps}.")
    generator = torch.Generator().manual_seed(seed)
    points, labels = spirals(generator)
    reading = nn.Linear(2, DEEP_WIDTH, dtype=torch.float64)
    answer = nn.Linear(DEEP_WIDTH, 1, dtype=torch.float64)
    with torch.no_grad():
        for layer in (reading, answer):
            layer.weight.normal_(0.0, layer.in_features**-0.5, generator=generator)
            layer.bias.zero_()
    parts = branches(depth, DEEP_WIDTH, generator=generator, gain=GAIN)
    network = nn.ModuleList([reading, *parts, answer])
    optimizer = torch.optim.Adam(network.parameters(), lr=DEEP_RATE)
    losses: list[float] = []
    gradients: tuple[float, ...] = ()
    for step in range(steps + 1):
        result = answer(compose(parts, reading(points), with_skips=with_skips))
        loss = nn.functional.binary_cross_entropy_with_logits(result, labels)
        losses.append(float(loss.detach()))
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        if step == 0:
            gradients = tuple(_gradient_norm(part) for part in parts)
        if step < steps:
            optimizer.step()
    accuracy = float(((result > 0) == (labels > 0)).double().mean())
    return DeepRun(tuple(losses), accuracy, gradients)


def spirals(generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Points of two spirals around each other, and which of the two each is of."""
    labels = (torch.arange(NUM_SPIRAL_POINTS) % 2).double()[:, None]
    places = torch.rand(NUM_SPIRAL_POINTS, 1, generator=generator, dtype=torch.float64).sqrt()
    angles = 1.5 * torch.pi * places + torch.pi * labels
    return 2 * places * torch.cat([angles.cos(), angles.sin()], dim=1), labels


def _gradient_norm(part: nn.Sequential) -> float:
    inner = part[0]
    assert isinstance(inner, nn.Linear)
    assert inner.weight.grad is not None
    return float(inner.weight.grad.norm())
